//! Says how far an answer has come.

use crate::BodyScanner;

/// How far the answer has come.
#[derive(Debug)]
pub(super) enum ResponseState {
    /// No complete final head yet; so many bytes were searched for its end. Interim ones may have been passed on, after
    /// which the client can still be told anything, but nobody else may be asked.
    Head { scanned: usize, interim: bool },
    /// In its body, which an HTTP/1.0 client gets without its chunks.
    Body { body: BodyScanner, dechunk: bool, keep: ConnectionReuse },
}

/// Which connections may serve again.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConnectionReuse {
    pub(super) client: bool,
    pub(super) upstream: bool,
}
