//! Error responses of the bridge.

use http::{HeaderValue, Response, StatusCode, header};

use super::{body::BridgeBody, headers::HeaderError, message::RpcId, reply};

/// Response, or error response.
pub(super) type HandlerResult = Result<Response<BridgeBody>, BoxedErrorResponse>;

/// Boxed, so that the result of a success stays small.
pub(super) type BoxedErrorResponse = Box<Response<BridgeBody>>;

/// Returns an error of JSON-RPC.
pub(super) fn error_response(status: StatusCode, id: Option<&RpcId>, code: i32, why: &str) -> BoxedErrorResponse {
    Box::new(reply::error_response(status, id, code, why))
}

/// Returns the error for another method.
pub(super) fn not_allowed() -> BoxedErrorResponse {
    let mut response = reply::empty(StatusCode::METHOD_NOT_ALLOWED);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
    Box::new(response)
}

/// Returns the error on which clients begin a new session.
pub(super) fn session_not_found(id: Option<&RpcId>) -> BoxedErrorResponse {
    error_response(StatusCode::NOT_FOUND, id, -32001, "Session not found")
}

/// Returns the error for header fields that do not fit.
pub(super) fn header_error_response(why: HeaderError, id: Option<&RpcId>) -> BoxedErrorResponse {
    error_response(StatusCode::BAD_REQUEST, id, why.code, &why.why)
}
