//! Tool that calls an HTTP endpoint.
//!
//! Arguments named in the path are inserted there; the others are the JSON body of a POST, PUT or PATCH, or the query
//! of a GET or DELETE. The body of any 2xx is the result; any other status is an error with the server's text for the
//! model.

use std::collections::BTreeMap;

use reqwest::{
    Method,
    header::{HeaderName, HeaderValue},
};
use serde_json::Value;

use super::{
    client::{self, HttpClient},
    error::ToolError,
    headers::{ToolHeaders, ToolVariables},
    template::{UrlTemplate, plain},
};

/// Header by which a server knows a call that it had before
/// ([draft of the IETF](https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/)).
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Endpoint, method and headers.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct HttpTool {
    template: UrlTemplate,
    method: Method,
    pub(super) headers: ToolHeaders,
}

impl HttpTool {
    /// Validates the settings; the default method is GET.
    ///
    /// # Errors
    /// An unknown method.
    pub(super) fn new(template: UrlTemplate, method: Option<&str>, headers: ToolHeaders) -> Result<Self, String> {
        let method = match method.unwrap_or("GET").to_ascii_uppercase().as_str() {
            "GET" => Method::GET,
            "DELETE" => Method::DELETE,
            "POST" => Method::POST,
            "PUT" => Method::PUT,
            "PATCH" => Method::PATCH,
            _ => return Err("its method is none of GET, DELETE, POST, PUT, PATCH".into()),
        };
        Ok(Self { template, method, headers })
    }

    /// Reports whether the effect of two calls is that of one
    /// ([RFC 9110 section 9.2.2](https://www.rfc-editor.org/rfc/rfc9110#section-9.2.2)).
    pub(super) fn is_idempotent(&self) -> bool {
        matches!(self.method, Method::GET | Method::PUT | Method::DELETE)
    }

    /// Calls the endpoint.
    ///
    /// # Errors
    /// Any failure, as text for the model and without the value of a header.
    pub(super) async fn call(
        &self,
        mut arguments: BTreeMap<String, Value>,
        client: &HttpClient,
        environment: &ToolVariables<'_>,
    ) -> Result<String, ToolError> {
        let mut url = self.template.fill(&mut arguments).map_err(ToolError::Arguments)?;
        let has_body = matches!(self.method, Method::POST | Method::PUT | Method::PATCH);
        if !has_body && !arguments.is_empty() {
            url.query_pairs_mut().extend_pairs(arguments.iter().map(|(name, value)| (name, plain(value))));
        }
        let request = client.for_url(&url).await?.request(self.method.clone(), url);
        let mut headers = self.headers.expand(environment)?;
        if let Some(key) = environment.idempotency_key().and_then(|key| HeaderValue::from_str(key).ok()) {
            headers.entry(IDEMPOTENCY_KEY).or_insert(key);
        }
        let mut request = request.headers(headers).headers(environment.trace().headers());
        if has_body {
            request = request.json(&arguments);
        }
        client::read(request.send().await.map_err(client::failed)?).await
    }
}
