//! Holds what the connections of a sidecar share.

use std::sync::Arc;

use daemon::ids::random_hex;

use super::{
    callers::Callers, config::Config, life::Life, load::Load, metrics::Metrics, startup::Startup, upstream::Upstream,
};

/// What all connections share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: Config,
    pub(super) load: Arc<Load>,
    pub(super) life: Arc<Life>,
    pub(super) upstream: Arc<Upstream>,
    pub(super) startup: Startup,
    pub(super) metrics: Metrics,
    pub(super) callers: Callers,
}

impl Shared {
    /// Nothing has happened yet.
    pub(super) fn new(config: Config) -> Result<Arc<Self>, getrandom::Error> {
        let load = Load::new(config.concurrency, random_hex::<8>()?);
        let upstream = Arc::new(Upstream::new(config.upstream));
        let life = Life::new(&config, load.clone(), upstream.clone());
        let callers = Callers::new(&config);
        let startup = Startup::new(&config, upstream.clone());
        Ok(Arc::new(Self { config, load, life, upstream, startup, metrics: Metrics::new(), callers }))
    }
}
