//! State shared by all connections of a sidecar.

use std::sync::Arc;

use daemon::ids::random_hex;

use super::{
    callers::CallerVerifier, config::ProxyConfig, drain::DrainState, load::LoadTracker, metrics::ProxyMetrics,
    startup::Startup, upstream::Upstream, usage::UsageTally,
};

/// State shared by all connections.
#[derive(Debug)]
pub(super) struct ProxyContext {
    pub(super) config: ProxyConfig,
    pub(super) load: Arc<LoadTracker>,
    pub(super) drain: Arc<DrainState>,
    pub(super) upstream: Arc<Upstream>,
    pub(super) startup: Startup,
    pub(super) metrics: ProxyMetrics,
    pub(super) callers: CallerVerifier,
    pub(super) usage: UsageTally,
}

impl ProxyContext {
    /// Creates the state of a sidecar that has served nothing yet.
    pub(super) fn new(config: ProxyConfig) -> Result<Arc<Self>, getrandom::Error> {
        let load = LoadTracker::new(config.concurrency, random_hex::<8>()?);
        let upstream = Arc::new(Upstream::new(config.upstream));
        let life = DrainState::new(&config, load.clone(), upstream.clone());
        let callers = CallerVerifier::new(&config);
        let startup = Startup::new(&config, upstream.clone());
        // Without a key no gateway may read what is counted.
        let is_read = config.has_runner && !config.usage_key.as_str().is_empty();
        let (metrics, usage) = (ProxyMetrics::new(), UsageTally::new(is_read, random_hex::<8>()?));
        Ok(Arc::new(Self { config, load, drain: life, upstream, startup, metrics, callers, usage }))
    }
}
