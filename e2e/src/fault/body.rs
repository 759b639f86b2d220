//! Body of a response under faults, and the loss of its connection.

use std::{io, pin::Pin};

use bytes::Bytes;
use futures::Stream;
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;

/// Body of a response under faults.
pub type FaultBody = UnsyncBoxBody<Bytes, ConnectionLostError>;

/// Frames of a response body.
pub(super) type BodyFrames = Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, ConnectionLostError>> + Send>>;

/// Error of a request whose connection must be reset: there is no response, or not the rest of it.
#[derive(Debug, thiserror::Error)]
#[error("the connection was lost: {0}")]
pub struct ConnectionLostError(String);

impl From<ConnectionLostError> for io::Error {
    fn from(lost: ConnectionLostError) -> Self {
        Self::new(io::ErrorKind::ConnectionReset, lost)
    }
}

pub(super) fn connection_lost(why: impl std::fmt::Display) -> ConnectionLostError {
    ConnectionLostError(why.to_string())
}
