//! State that all requests of the bridge share: the children of both eras.

use std::sync::Arc;

use super::{resources::Resources, sessions::Sessions, stateless::StatelessChild};

/// Children of the bridge, and the resources that they share.
#[derive(Debug)]
pub(super) struct Bridge {
    pub(super) resources: Arc<Resources>,
    pub(super) sessions: Arc<Sessions>,
    pub(super) stateless: Arc<StatelessChild>,
}

impl Bridge {
    /// Returns a bridge without sessions, whose shared child starts on first use.
    pub(super) fn new(resources: Resources) -> Self {
        Self {
            sessions: Arc::new(Sessions::new(resources.options.max_sessions)),
            stateless: Arc::default(),
            resources: Arc::new(resources),
        }
    }
}
