//! Response types of the state machines and of the graph of references, from which the OpenAPI document is generated.

use schemars::JsonSchema;
use serde::Serialize;

use crate::fleet::Ready;

/// The state machine of a kind.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Machine {
    /// Its phases, in the order in which a healthy object sees them.
    pub(super) phases: Vec<&'static str>,
    /// Its moves.
    pub(super) edges: Vec<Edge>,
}

/// A move.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Edge {
    /// The phase before; empty: none yet; `*`: any but Terminating.
    pub(super) from: &'static str,
    /// The phase after.
    pub(super) to: &'static str,
    /// The action or rule that moves.
    pub(super) by: &'static str,
    /// When.
    pub(super) why: &'static str,
}

/// Who refers to what.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Graph {
    /// Every object, and those that are referred to and missing.
    pub(super) nodes: Vec<Node>,
    /// Every reference.
    pub(super) edges: Vec<Link>,
}

/// An object in the graph.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Node {
    /// Its kind.
    pub(super) kind: String,
    /// Its namespace.
    pub(super) namespace: String,
    /// Its name.
    pub(super) name: String,
    /// Its phase; null: it has none, or you may not see it.
    pub(super) phase: Option<String>,
    /// Its Ready condition; Unknown too if it is missing, or you may not see it.
    pub(super) ready: Ready,
    /// Whether it is not there; false too if that is not known: you may not see it, or it is a Secret or ConfigMap.
    pub(super) missing: bool,
}

/// A reference.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Link {
    /// Who refers: Kind/namespace/name.
    pub(super) from: String,
    /// To what: Kind/namespace/name.
    pub(super) to: String,
    /// Whether that is missing, or in Error or Failed.
    pub(super) broken: bool,
}
