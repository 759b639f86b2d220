//! A toy kind for the tests of this crate: a lamp that is Pending until it is lit.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use meta::{CommonStatus, Phase, PhaseClass, PhasedObject};
use serde_json::Value;

use super::{Edge, EdgeFrom, Rule, Table};

/// The life of a lamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum LampPhase {
    Pending,
    Lit,
    Broken,
}

impl Phase for LampPhase {
    const ALL: &'static [Self] = &[Self::Pending, Self::Lit, Self::Broken];
    const FIRST: Self = Self::Pending;
    const FAILED: Self = Self::Broken;
    const TERMINATING: Option<Self> = None;

    fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Lit => "Lit",
            Self::Broken => "Broken",
        }
    }
    fn class(self) -> PhaseClass {
        match self {
            Self::Pending => PhaseClass::Progressing,
            Self::Lit => PhaseClass::Settled,
            Self::Broken => PhaseClass::Failed,
        }
    }
    fn default_message(self) -> &'static str {
        "it waits for power"
    }
}

impl fmt::Display for LampPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An object of the toy kind; its spec is its wattage.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lamp {
    pub(crate) metadata: ObjectMeta,
    pub(crate) watts: u32,
    pub(crate) status: Option<CommonStatus>,
}

impl PhasedObject for Lamp {
    type Phase = LampPhase;

    const KIND: &'static str = "Lamp";
    const CRD: &'static str = "lamps.example.com";
    const FINALIZER: Option<&'static str> = None;

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
    fn common(&self) -> Option<&CommonStatus> {
        self.status.as_ref()
    }
    fn common_mut(&mut self) -> &mut CommonStatus {
        self.status.get_or_insert_default()
    }
    fn status_json(&self) -> Value {
        serde_json::to_value(&self.status).unwrap_or_default()
    }
    fn spec_digest(&self) -> String {
        self.watts.to_string()
    }
    fn same_spec(&self, other: &Self) -> bool {
        self.watts == other.watts
    }
}

/// The table of the toy kind.
pub(crate) const TABLE: Table<LampPhase> = Table {
    edges: &[
        Edge::rule(EdgeFrom::Nothing, LampPhase::Pending, Rule::Admit, "first seen"),
        Edge::new(LampPhase::Pending, LampPhase::Lit, "light", "it has power"),
        Edge::new(LampPhase::Lit, LampPhase::Pending, "watch", "the power is gone"),
        Edge::rule(EdgeFrom::In(LampPhase::Pending), LampPhase::Broken, Rule::Fail, "failed permanently"),
        Edge::new(LampPhase::Broken, LampPhase::Pending, "repair", "the bulb was replaced"),
    ],
    render_version: 1,
    not_retryable: &[],
    conditions: &[],
    available_follows_ready: true,
    decision_paths: &["contentHash", "children", "children[].uid"],
};
