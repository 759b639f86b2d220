//! What the machine may do, as data: one table of edges per kind drives the check of every move, the start-up check of
//! the table itself, and the diagram in the documentation.

use std::fmt;

use meta::Phase;

/// Where an edge begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgeFrom<P> {
    /// An object without a phase, or with one that this build does not know.
    Nothing,
    /// Every phase but Terminating.
    Any,
    /// This phase.
    In(P),
}

/// Who may take an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgeOwner {
    /// The action of this name.
    Action(&'static str),
    /// A rule of the driver.
    Rule(Rule),
}

/// What the driver itself decides, before any action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// First sight of an object: of a new one by the default of its schema, of one in an unknown phase by a write.
    Admit,
    /// The spec, or how it is rendered, is another than the one admitted.
    SpecChanged,
    /// An action failed for good, or its attempts are used up.
    Fail,
    /// The object is being deleted.
    Delete,
}

impl Rule {
    /// The name in history, traces and diagrams.
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
    /// The name in history, traces and diagrams.
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

/// One move the machine may make.
#[derive(Debug, Clone, Copy)]
pub struct Edge<P: 'static> {
    /// Where it begins.
    pub from: EdgeFrom<P>,
    /// Where it leads.
    pub to: P,
    /// Who may take it.
    pub by: EdgeOwner,
    /// When it is taken, for the diagram.
    pub why: &'static str,
}

impl<P: Phase> Edge<P> {
    /// An edge from one phase to another by an action.
    pub const fn new(from: P, to: P, by: &'static str, why: &'static str) -> Self {
        Self { from: EdgeFrom::In(from), to, by: EdgeOwner::Action(by), why }
    }

    /// An edge by a rule of the driver.
    pub const fn rule(from: EdgeFrom<P>, to: P, rule: Rule, why: &'static str) -> Self {
        Self { from, to, by: EdgeOwner::Rule(rule), why }
    }

    /// Whether a move from `from` (`None`: no phase yet) to `to` by `by` is this edge.
    pub fn allows(&self, from: Option<P>, to: P, by: EdgeOwner) -> bool {
        let begins = match self.from {
            EdgeFrom::Nothing => from.is_none(),
            EdgeFrom::Any => from.is_none_or(|phase| Some(phase) != P::TERMINATING),
            EdgeFrom::In(phase) => from == Some(phase),
        };
        begins && self.to == to && self.by == by
    }
}
