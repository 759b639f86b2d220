//! Holds what is handed to every action.

use std::sync::Arc;

use crate::{
    applied::AppliedRecords,
    debounce::Debounce,
    discovery::ToolDiscovery,
    ports::{CacheReader, ChildClient},
    prompt::rejections::PromptRejections,
    render::RenderSettings,
};

/// The ports of every kind, as its actions see them.
pub struct Deps {
    /// Requests.
    pub client: Arc<dyn ChildClient>,
    /// Caches.
    pub cache: Arc<dyn CacheReader>,
    /// Servers that are asked for their tools.
    pub discovery: Arc<dyn ToolDiscovery>,
    /// The operator's own settings.
    pub settings: Arc<RenderSettings>,
    /// What was applied and is not yet in a status.
    pub applied_records: AppliedRecords,
    /// Whose missing references have come.
    pub debounce: Debounce,
    /// What our runner refuses of the prompts of flows.
    pub prompt_rejections: PromptRejections,
}
