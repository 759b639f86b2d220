//! Requests of the diagnosis: any path of the API server, and its response time and clock.

use std::time::{Duration, Instant};

use http::{
    Method, Request,
    header::{CONTENT_TYPE, DATE},
};
use jiff::Timestamp;
use kube::client::Body;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{UserClient, read_error::ReadError};

/// Response time of the API server, and its clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerTime {
    /// Time from the request to the head of its response.
    pub took: Duration,
    /// Time of the server, in whole seconds; `None` if it says none.
    pub clock: Option<Timestamp>,
}

impl UserClient {
    /// Sends a request with an optional JSON body and returns the response as `T`; `doing` is the request in words.
    ///
    /// # Errors
    /// [`ReadError::Request`].
    pub(crate) async fn request<T: DeserializeOwned>(
        &self,
        doing: &str,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, ReadError> {
        let bytes = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, "application/json").body(bytes);
        let request = request.map_err(|error| ReadError::request(doing)(kube::Error::HttpError(error)))?;
        self.client.request(request).await.map_err(ReadError::request(doing))
    }

    /// Sends a GET, whatever the answer is, and measures it.
    ///
    /// # Errors
    /// [`ReadError::Request`] if there is no answer.
    pub(crate) async fn measure(&self, path: &str) -> Result<ServerTime, ReadError> {
        let doing = format!("get {path}");
        let request = Request::get(path).body(Body::empty());
        let request = request.map_err(|error| ReadError::request(doing.clone())(kube::Error::HttpError(error)))?;
        let began = Instant::now();
        let answer = self.client.send(request).await.map_err(ReadError::request(doing))?;
        let took = began.elapsed();
        let date = answer.headers().get(DATE).and_then(|date| date.to_str().ok());
        Ok(ServerTime { took, clock: date.and_then(http_date) })
    }
}

/// Parses the value of `Date` ([RFC 9110, section 5.6.7](https://www.rfc-editor.org/rfc/rfc9110#section-5.6.7)).
fn http_date(text: &str) -> Option<Timestamp> {
    jiff::fmt::rfc2822::parse(text).ok().map(|time| time.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_a_server_is_read_from_its_responses() {
        let time = http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        assert_eq!(time.to_string(), "1994-11-06T08:49:37Z");
        assert_eq!(http_date("soon"), None);
    }
}
