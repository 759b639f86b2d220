//! Progress of a response.

use crate::BodyScanner;

/// Progress of the response.
#[derive(Debug)]
pub(super) enum ResponseState {
    /// No complete final head yet; `scanned` bytes were searched for its end. Interim responses may have been forwarded
    /// (`interim`). Then the client can still get any final response, but the request must not be sent to another
    /// server.
    Head { scanned: usize, interim: bool },
    /// In the body, which an HTTP/1.0 client gets without its chunk framing.
    Body { body: BodyScanner, dechunk: bool, keep: ConnectionReuse },
}

/// Connections that may be reused.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConnectionReuse {
    pub(super) client: bool,
    pub(super) upstream: bool,
}
