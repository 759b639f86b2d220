//! Pure builders: from a spec and what it refers to, to the objects we apply. No I/O, no clock, no client.

/// The operator's settings that rendering uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Namespace of the operator; single-label hosts of its own URLs live there.
    pub operator_namespace: String,
    /// DNS domain of the cluster, such as `cluster.local`.
    pub cluster_domain: String,
    /// Default database of agents, from `DATABASE_URL`; a valid DSN.
    pub database_url: Option<String>,
    /// Default Ollama, from `OLLAMA_BASE_URL`.
    pub ollama_base_url: Option<String>,
}
