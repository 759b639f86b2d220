//! Reads the message of a client from the body of a request, within the memory budget.

use std::{future::poll_fn, pin::pin, time::Duration};

use bytes::Bytes;
use http::StatusCode;
use http_body::Body as _;
use hyper::body::Incoming;
use tokio::time::timeout;

use super::{
    http_errors::{BoxedErrorResponse, error_response},
    memory::{MemoryBudget, MemoryPermit, NO_ROOM},
    message,
};

/// Largest body of a request, in bytes.
const MAX_BODY: usize = 4 << 20;
/// Largest body that is read and discarded, in bytes, so that its client gets the response while it still sends.
const MAX_DISCARDED_BODY: usize = 16 << 20;
/// Longest time for the upload of a body.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Message of a client, with its permit of the memory budget.
pub(super) struct ReceivedMessage {
    pub(super) text: String,
    permit: MemoryPermit,
}

impl ReceivedMessage {
    /// Returns the message as the line that a child gets.
    pub(super) fn line(self) -> Bytes {
        self.permit.attach(message::line(self.text))
    }
}

/// Reads the whole body.
pub(super) async fn read(body: Incoming, memory: &MemoryBudget) -> Result<ReceivedMessage, BoxedErrorResponse> {
    let too_large = || {
        let why = format!("a message may have {} MiB at most", MAX_BODY >> 20);
        error_response(StatusCode::PAYLOAD_TOO_LARGE, None, -32600, &why)
    };
    if body.size_hint().lower() > MAX_DISCARDED_BODY as u64 {
        return Err(too_large());
    }
    let mut body = pin!(body);
    let (mut bytes, mut share) = (Vec::new(), MemoryPermit::default());
    let mut length = 0;
    let reading = async {
        while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            let Ok(frame) = frame else {
                return Err(error_response(StatusCode::BAD_REQUEST, None, -32700, "the body did not end"));
            };
            let Ok(data) = frame.into_data() else { continue };
            length += data.len();
            if length > MAX_DISCARDED_BODY {
                break;
            }
            if length <= MAX_BODY {
                let no_room = || error_response(StatusCode::SERVICE_UNAVAILABLE, None, -32000, NO_ROOM);
                share.merge(memory.try_acquire(data.len()).ok_or_else(no_room)?);
                bytes.extend_from_slice(&data);
            } else {
                (bytes, share) = (Vec::new(), MemoryPermit::default());
            }
        }
        if length > MAX_BODY { Err(too_large()) } else { Ok(()) }
    };
    let late = |_| error_response(StatusCode::REQUEST_TIMEOUT, None, -32000, "the body did not come in time");
    timeout(UPLOAD_TIMEOUT, reading).await.map_err(late)??;
    let not_text = |_| error_response(StatusCode::BAD_REQUEST, None, -32700, "this is not UTF-8");
    let text = String::from_utf8(bytes).map_err(not_text)?;
    Ok(ReceivedMessage { text, permit: share })
}
