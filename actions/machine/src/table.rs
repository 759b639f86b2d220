//! Holds what a kind tells the driver about itself, as data: [`Table`].

use super::Edge;

/// What the driver asks of a kind, besides its objects and its actions. `P` is the type of its phases.
#[derive(Debug, Clone, Copy)]
pub struct Table<P: 'static> {
    /// Every move its objects may make.
    pub edges: &'static [Edge<P>],
    /// Raised by hand when the same spec is to be rendered differently; objects admitted under an older one start over.
    pub render_version: i64,
    /// Failure reasons that waiting does not mend.
    pub not_retryable: &'static [&'static str],
    /// Condition types its actions write; all others but Ready, Reconciling and Stalled belong to other clients.
    pub conditions: &'static [&'static str],
    /// Whether `Available` says the same as `Ready`, as for kinds without Pods.
    pub available_follows_ready: bool,
    /// Paths in its status, `[]` for every item of a list, by which its actions choose what to do, besides the driver's own.
    pub decision_paths: &'static [&'static str],
}
