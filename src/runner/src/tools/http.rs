//! A tool that is an HTTP endpoint.
//!
//! Arguments that stand in the path go there; the others are the JSON body of a POST, PUT or PATCH, and the query of a
//! GET or DELETE. Any 2xx is the answer; any other status is an error that tells the model what the server said.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::Value;

use super::{
    client::{self, HttpClient},
    error::ToolError,
    headers::{ToolHeaders, ToolVariables},
    template::{UrlTemplate, plain},
};

/// Where and how.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct HttpTool {
    template: UrlTemplate,
    method: Method,
    headers: ToolHeaders,
}

impl HttpTool {
    /// A tool; without a method it is a GET.
    ///
    /// # Errors
    /// What is wrong, without a header's value.
    pub(super) fn new(
        template: UrlTemplate,
        method: Option<&str>,
        headers: &BTreeMap<String, String>,
    ) -> Result<Self, String> {
        let method = match method.unwrap_or("GET").to_ascii_uppercase().as_str() {
            "GET" => Method::GET,
            "DELETE" => Method::DELETE,
            "POST" => Method::POST,
            "PUT" => Method::PUT,
            "PATCH" => Method::PATCH,
            _ => return Err("its method is none of GET, DELETE, POST, PUT, PATCH".into()),
        };
        Ok(Self { template, method, headers: ToolHeaders::read(headers)? })
    }

    /// Calls it.
    ///
    /// # Errors
    /// Everything that goes wrong, as text for the model and without a header's value.
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
        let mut request =
            client.for_url(&url).await?.request(self.method.clone(), url).headers(self.headers.expand(environment)?);
        if has_body {
            request = request.json(&arguments);
        }
        client::read(request.send().await.map_err(client::failed)?).await
    }
}
