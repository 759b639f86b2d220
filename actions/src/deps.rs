//! Defines the dependencies that every action gets.

use std::sync::Arc;

use machine::NamespaceReader;

use crate::{
    applied::AppliedRecords,
    debounce::Debounce,
    discovery::ToolDiscovery,
    ports::{CacheReader, ChildClient},
    prompt::rejections::PromptRejections,
    render::RenderSettings,
};

/// Ports and shared state of the actions of all kinds.
pub struct Deps {
    /// Client for requests about children.
    pub client: Arc<dyn ChildClient>,
    /// Informer caches.
    pub cache: Arc<dyn CacheReader>,
    /// Discovery of the tools of MCP servers.
    pub discovery: Arc<dyn ToolDiscovery>,
    /// The operator's own settings.
    pub settings: Arc<RenderSettings>,
    /// Applied children that no status records yet.
    pub applied_records: AppliedRecords,
    /// Debounce of objects whose missing references have arrived.
    pub debounce: Debounce,
    /// Cache of the prompts of flows that Récif's runner rejects.
    pub prompt_rejections: PromptRejections,
}

impl NamespaceReader for Deps {
    fn is_namespace_going(&self, namespace: &str) -> bool {
        self.cache.is_namespace_going(namespace)
    }
}
