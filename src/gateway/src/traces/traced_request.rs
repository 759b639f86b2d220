//! Admitted request to a workload, of which a span may begin.

use std::sync::Arc;

use http1::RequestHead;
use tokio::time::Instant;

use crate::{auth::RequestCaller, peer::Peer, workload::WorkloadState};

/// Admitted request to a workload.
pub(crate) struct TracedRequest<'a> {
    pub(crate) head: &'a RequestHead<'a>,
    pub(crate) caller: &'a RequestCaller,
    pub(crate) peer: &'a Peer,
    pub(crate) workload: &'a Arc<WorkloadState>,
    pub(crate) arrived: Instant,
}
