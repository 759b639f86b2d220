//! Requests of the diagnosis: any path of the API server, its response time and clock, and single requests to a Pod.

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use bytes::Bytes;
use cluster::access::OWN_AUTHORIZATION;
use futures::future::{Either, select};
use http::{
    HeaderValue, Method, Request, StatusCode,
    header::{CONNECTION, CONTENT_TYPE, DATE, HOST},
};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, client::Body};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    UserClient,
    read_error::{ReadError, error_chain},
};

/// Largest response of a Pod that is read, in bytes.
const MAX_BODY: usize = 4 << 20;

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

    /// Sends a GET to a port of a Pod, through the API server as `kubectl port-forward` does.
    ///
    /// # Errors
    /// [`PodError`].
    pub(crate) async fn ask_pod(
        &self,
        (namespace, pod, port): (&str, &str, u16),
        path: &str,
        token: Option<HeaderValue>,
    ) -> Result<(StatusCode, String), PodError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let doing = format!("forward a connection to Pod {namespace}/{pod}");
        let mut forwarded = pods.portforward(pod, &[port]).await.map_err(ReadError::request(doing))?;
        let broken = |error: &dyn std::error::Error| PodError::Broken(error_chain(error));
        let stream = forwarded.take_stream(port).ok_or_else(|| PodError::Broken("no connection".to_owned()))?;
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| broken(&error))?;
        // A connection that is forwarded comes from loopback, by which a server without sign-in judges it.
        let mut request = Request::get(path).header(HOST, "localhost").header(CONNECTION, "close");
        if let Some(token) = token {
            request = request.header(OWN_AUTHORIZATION, token);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| broken(&error))?;
        let exchange = pin!(async move {
            let (head, body) = sender.send_request(request).await.map_err(|error| broken(&error))?.into_parts();
            let body = Limited::new(body, MAX_BODY).collect().await.map_err(|error| broken(error.as_ref()))?;
            Ok::<_, PodError>((head.status, String::from_utf8_lossy(&body.to_bytes()).into_owned()))
        });
        // The connection has to be polled for the exchange to go on.
        match select(exchange, pin!(connection)).await {
            Either::Left((answer, _)) => answer,
            Either::Right((_, exchange)) => exchange.await,
        }
    }
}

/// Reason for which a Pod did not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PodError {
    /// The API server does not forward the connection.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The Pod takes no connection, or breaks it.
    #[error("no answer: {0}")]
    Broken(String),
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
