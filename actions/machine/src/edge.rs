//! Declares the edges of the state machine, the transitions between phases, as data. One table of edges per kind is used for the
//! check of every transition, the start-up check of the table itself, and the diagram in the documentation.

use std::fmt;

use meta::Phase;

/// Phase from which an edge starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgeFrom<P> {
    /// An object without a phase, or with one that this build does not know.
    Nothing,
    /// Every phase except Terminating.
    Any,
    /// This phase.
    In(P),
}

/// Action or rule that may take an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgeOwner {
    /// The action of this name.
    Action(&'static str),
    /// A rule of the driver.
    Rule(Rule),
}

/// Transition that the driver decides itself, before any action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// First reconcile of an object. A new object is admitted by the default of its CRD, one in an unknown phase by a write.
    Admit,
    /// The spec, or the version of its rendering, differs from the admitted one.
    SpecChanged,
    /// An action failed terminally, or its attempts are used up.
    Fail,
    /// The object is being deleted.
    Delete,
}

impl Rule {
    /// Returns the name in history, traces and diagrams.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admit => "Admit",
            Self::SpecChanged => "SpecChanged",
            Self::Fail => "Fail",
            Self::Delete => "Delete",
        }
    }
}

impl EdgeOwner {
    /// Returns the name in history, traces and diagrams.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Action(name) => name,
            Self::Rule(rule) => rule.as_str(),
        }
    }
}

impl fmt::Display for EdgeOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Allowed transition between two phases.
///
/// # Example
///
/// ```
/// use machine::{Edge, EdgeOwner, example::LampPhase};
///
/// let light = Edge::new(LampPhase::Pending, LampPhase::Lit, "switch", "it has power");
/// let switch = EdgeOwner::Action("switch");
/// assert!(light.allows(Some(LampPhase::Pending), LampPhase::Lit, switch));
/// assert!(!light.allows(Some(LampPhase::Lit), LampPhase::Pending, switch), "an edge has one direction");
/// assert!(!light.allows(Some(LampPhase::Pending), LampPhase::Lit, EdgeOwner::Action("watch")));
/// ```
#[doc(alias = "transition")]
#[derive(Debug, Clone, Copy)]
pub struct Edge<P: 'static> {
    /// Phase before.
    pub from: EdgeFrom<P>,
    /// Phase after.
    pub to: P,
    /// Action or rule that takes it.
    pub by: EdgeOwner,
    /// Condition under which it is taken, for the diagram.
    pub why: &'static str,
}

impl<P: Phase> Edge<P> {
    /// Creates an edge that an action takes from one phase to another.
    pub const fn new(from: P, to: P, by: &'static str, why: &'static str) -> Self {
        Self { from: EdgeFrom::In(from), to, by: EdgeOwner::Action(by), why }
    }

    /// Creates an edge that a rule of the driver takes.
    pub const fn rule(from: EdgeFrom<P>, to: P, rule: Rule, why: &'static str) -> Self {
        Self { from, to, by: EdgeOwner::Rule(rule), why }
    }

    /// Reports whether a transition from `from` (`None`: no phase yet) to `to` by `by` is this edge.
    pub fn allows(&self, from: Option<P>, to: P, by: EdgeOwner) -> bool {
        let begins = match self.from {
            EdgeFrom::Nothing => from.is_none(),
            EdgeFrom::Any => from.is_none_or(|phase| Some(phase) != P::TERMINATING),
            EdgeFrom::In(phase) => from == Some(phase),
        };
        begins && self.to == to && self.by == by
    }
}
