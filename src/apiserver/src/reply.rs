//! Answers of the server, and how they become responses.

use std::convert::Infallible;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, Full, StreamBody, combinators::UnsyncBoxBody};
use serde_json::Value;

use crate::{errors::StatusError, logs::LogStream, openapi::OpenApiDocument, watch::Watch};

/// Body of a response.
pub type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

/// Answer to a request.
pub(crate) enum Reply {
    /// An object, with texts of the header `Warning`.
    Object(StatusCode, Value, Vec<String>),
    /// A text of a media type.
    Text(StatusCode, &'static str, String),
    /// A document of the API, which a client may keep as long as its hash is the one in the query.
    Document(OpenApiDocument, bool),
    /// Another address.
    Redirect(String),
    /// Nothing.
    Empty,
    /// Changes, one by line.
    Watch(Box<Watch>),
    /// Lines of a container.
    Log(LogStream),
}

impl Reply {
    /// Makes an answer of an object.
    pub(crate) fn object(object: Value) -> Self {
        Self::Object(StatusCode::OK, object, Vec::new())
    }

    /// Makes an answer of a text in JSON.
    pub(crate) fn json(text: String) -> Self {
        Self::Text(StatusCode::OK, JSON, text)
    }

    /// Makes the answer to a path that leads nowhere.
    pub(crate) fn missing() -> Self {
        Self::Text(StatusCode::NOT_FOUND, TEXT, "404 page not found\n".to_owned())
    }

    /// Makes the answer that all is well.
    pub(crate) fn healthy() -> Self {
        Self::Text(StatusCode::OK, TEXT, "ok".to_owned())
    }

    /// Returns the response.
    pub(crate) fn into_response(self) -> Response<ResponseBody> {
        let full = |text: String| Full::new(Bytes::from(text)).boxed_unsync();
        match self {
            Self::Object(code, object, warnings) => {
                let mut response = response(code, JSON, full(object.to_string()));
                for warning in warnings {
                    let text = format!("299 - {warning:?}");
                    if let Ok(value) = HeaderValue::from_str(&text) {
                        response.headers_mut().append(header::WARNING, value);
                    }
                }
                response
            }
            Self::Text(code, media_type, text) => response(code, media_type, full(text)),
            Self::Document(document, is_named_by_hash) => {
                let mut response = response(StatusCode::OK, JSON, full(document.text));
                let headers = response.headers_mut();
                headers.insert(header::VARY, HeaderValue::from_static("Accept"));
                if let Ok(tag) = HeaderValue::from_str(&format!("{:?}", document.hash)) {
                    headers.insert(header::ETAG, tag);
                }
                if is_named_by_hash {
                    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
                }
                response
            }
            Self::Redirect(to) => {
                let mut response = response(StatusCode::MOVED_PERMANENTLY, TEXT, empty());
                if let Ok(to) = HeaderValue::from_str(&to) {
                    response.headers_mut().insert(header::LOCATION, to);
                }
                response
            }
            Self::Empty => {
                let mut response = Response::new(empty());
                *response.status_mut() = StatusCode::NO_CONTENT;
                response
            }
            Self::Watch(watch) => response(StatusCode::OK, JSON, StreamBody::new(watch.into_frames()).boxed_unsync()),
            Self::Log(log) => {
                let frames = log.map(|bytes| Ok(Frame::data(bytes)));
                response(StatusCode::OK, "text/plain", StreamBody::new(frames).boxed_unsync())
            }
        }
    }
}

impl From<StatusError> for Reply {
    fn from(error: StatusError) -> Self {
        Self::Object(error.code, error.status(), Vec::new())
    }
}

fn empty() -> ResponseBody {
    Empty::new().boxed_unsync()
}

fn response(code: StatusCode, media_type: &'static str, body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}
