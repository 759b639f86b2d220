//! Holds what is handed to every action.

use std::sync::Arc;

use crate::{
    applied::Baselines,
    discovery::Discoveries,
    ports::{Cluster, Views},
    prompt::verdicts::Verdicts,
    render::Settings,
    settling::Settling,
};

/// The ports of every kind, as its actions see them.
pub struct World {
    /// Requests.
    pub cluster: Arc<dyn Cluster>,
    /// Caches.
    pub views: Arc<dyn Views>,
    /// Servers that are asked for their tools.
    pub discoveries: Arc<dyn Discoveries>,
    /// The operator's own settings.
    pub settings: Arc<Settings>,
    /// What was applied and is not yet in a status.
    pub baselines: Baselines,
    /// Whose missing references have come.
    pub settling: Settling,
    /// What our runner refuses of the prompts of flows.
    pub verdicts: Verdicts,
}
