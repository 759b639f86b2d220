//! Defines the configuration of the driver for a kind, as data: [`Table`].

use super::Edge;

/// Configuration of the driver for a kind, besides its objects and its actions. `P` is the type of its phases.
///
/// # Example
///
/// A table is data: what leads to a phase can be read from it.
///
/// ```
/// use machine::example::{LampPhase, TABLE};
///
/// let into = |phase| TABLE.edges.iter().filter(move |edge| edge.to == phase).map(|edge| edge.by.as_str());
/// assert!(into(LampPhase::Lit).eq(["switch"]));
/// assert!(into(LampPhase::Pending).eq(["Admit", "switch", "SpecChanged", "SpecChanged"]));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Table<P: 'static> {
    /// Allowed transitions of its objects.
    pub edges: &'static [Edge<P>],
    /// Version of the rendering, raised by hand if the same spec is to be rendered differently; objects admitted under an older
    /// one start over.
    pub render_version: i64,
    /// Failure reasons that a later retry does not repair.
    pub not_retryable: &'static [&'static str],
    /// Condition types its actions write; all others but Ready, Reconciling and Stalled belong to other clients.
    pub conditions: &'static [&'static str],
    /// True if `Available` equals `Ready`, as for kinds without Pods.
    pub available_follows_ready: bool,
    /// Paths in the status that decide on steps, `[]` for every item of a list, besides those that all kinds have.
    pub decision_paths: &'static [&'static str],
}
