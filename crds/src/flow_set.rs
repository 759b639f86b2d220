//! `FlowSet`: many flows in one Pod.
#![expect(
    clippy::duplicated_attributes,
    reason = "the lint takes the parts of two `printcolumn(…)` for the same attribute"
)]

use kube::CustomResource;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    flow::{FlowDefinition, Runtime},
    schema,
    status::WorkloadStatus,
};

/// Which flows, and how they run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "agents.recif.dev",
    version = "v1",
    kind = "FlowSet",
    plural = "flowsets",
    singular = "flowset",
    shortname = "fls",
    category = "recif",
    namespaced,
    status = "FlowSetStatus",
    derive = "PartialEq",
    doc = "Many flows that run in the same Pods. One that is broken does not keep the others from serving.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.currentReplicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase", priority = 1),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "Whether every flow serves."
    ),
    printcolumn(
        name = "ReadyFlows",
        type_ = "integer",
        json_path = ".status.readyFlows",
        description = "Flows that serve."
    ),
    printcolumn(
        name = "Total",
        type_ = "integer",
        json_path = ".status.totalFlows",
        description = "Flows of the spec."
    ),
    printcolumn(
        name = "Available",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Available\")].status",
        description = "Whether a Pod serves."
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.endpoint", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::traffic_rules)]
pub struct FlowSetSpec {
    /// The flows, each under its own name.
    #[schemars(schema_with = "schema::flows")]
    pub flows: Vec<FlowEntry>,
    /// How they run.
    #[serde(flatten)]
    pub runtime: Runtime,
}

crate::phased_object::phased_object!(workload FlowSet "flowsets", in workload);

/// One flow of a set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = schema::one_model)]
pub struct FlowEntry {
    /// Its name, which is its route: at most 40 lower-case letters, digits and '-', beginning with a letter.
    #[schemars(schema_with = "schema::flow_name")]
    pub name: String,
    /// What it answers with.
    #[serde(flatten)]
    pub definition: FlowDefinition,
}

/// What the operator last saw and did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FlowSetStatus {
    /// What every workload keeps.
    #[serde(flatten)]
    pub workload: WorkloadStatus,
    /// The flows, in the order of the spec.
    #[schemars(schema_with = "schema::flow_states")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FlowState>,
    /// How many flows are rendered and served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_flows: Option<i32>,
    /// How many flows the spec has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_flows: Option<i32>,
}

/// Pinned in `status.inputs` under `flow/NAME` for a flow that the set runs without.
pub const LEFT_OUT: &str = "left out";

/// How one flow of a set is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FlowState {
    /// Its name.
    pub name: String,
    /// Whether it is served.
    #[serde(default)]
    pub ready: bool,
    /// Resolving while something that it refers to is missing, else the set's phase.
    #[serde(default)]
    pub phase: String,
    /// What is missing or wrong.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}
