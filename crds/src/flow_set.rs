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
    references::{HasReferences, ReferenceSet},
    schema,
    status::WorkloadStatus,
    traffic,
};

/// Desired state of a FlowSet: its flows, and how their common Pods run.
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
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
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
    printcolumn(
        name = "Desired",
        type_ = "integer",
        json_path = ".status.desiredReplicas",
        description = "Pods that the spec or the load requires.",
        priority = 1
    ),
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.endpoint", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = traffic::rules)]
pub struct FlowSetSpec {
    /// Flows of the set, 1 to 64, each under its own name.
    #[schemars(schema_with = "schema::by_name::<FlowEntry>", length(min = 1, max = 64))]
    pub flows: Vec<FlowEntry>,
    /// Settings of its Pods.
    #[serde(flatten)]
    pub runtime: Runtime,
}

crate::phased_object::phased_object!(workload FlowSet "flowsets", in workload);

impl HasReferences for FlowSet {
    fn collect(&self, mentions: &mut ReferenceSet) {
        self.spec.flows.iter().for_each(|flow| flow.definition.collect(mentions));
        self.spec.runtime.collect(mentions);
    }
}

/// One flow of a FlowSet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowEntry {
    /// Name of the flow and of its route: at most 40 lower-case letters, digits and '-', beginning with a letter and
    /// ending with a letter or digit.
    #[schemars(length(max = 40), regex(pattern = "^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Prompts, model and tools of the flow.
    #[serde(flatten)]
    pub definition: FlowDefinition,
}

/// Observed state of a FlowSet, as the operator last wrote it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FlowSetStatus {
    /// Status fields of every workload.
    #[serde(flatten)]
    pub workload: WorkloadStatus,
    /// State of each flow, in the order of the spec.
    #[schemars(schema_with = "schema::by_name::<FlowState>")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FlowState>,
    /// Number of flows that are rendered and served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_flows: Option<i32>,
    /// Number of flows in the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_flows: Option<i32>,
}

/// Value under `flow/NAME` in `status.inputs` for a flow that the set runs without.
pub const LEFT_OUT: &str = "left out";

/// State of one flow of a FlowSet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FlowState {
    /// Name of the flow.
    pub name: String,
    /// True while the flow is served.
    #[serde(default)]
    pub ready: bool,
    /// Resolving while an object that the flow refers to is missing, else the phase of the FlowSet.
    #[serde(default)]
    pub phase: String,
    /// Message on what is missing or wrong; absent while nothing is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}
