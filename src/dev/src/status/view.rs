//! The state of an object, as far as it concerns the user.

use std::time::Duration;

use crds::{ApiKind, Role, reason};
use kube::core::DynamicObject;
use meta::CommonStatus;
use serde_json::Value;

use crate::manifest::ObjectId;

/// Time after which a failure is shown: shorter ones are on the way to something better.
const FAILED_AFTER: Duration = Duration::from_millis(300);
/// Time after which it is shown that an object waits for something.
const WAITS_AFTER: Duration = Duration::from_secs(1);
/// Time after which it is shown that Pods do not become ready; many programs take seconds to start.
const DEPLOYS_AFTER: Duration = Duration::from_secs(10);

/// State of an object, as far as it concerns the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct View {
    /// Its phase.
    pub(super) phase: String,
    /// It is as it should be.
    pub(super) is_good: bool,
    /// Explanation of the state.
    pub(super) sentence: String,
    /// Reason of that, for machines.
    pub(super) reason: String,
    /// Digest of what its Pods run; none for kinds without Pods.
    pub(super) content: Option<String>,
    /// It runs Pods.
    pub(super) is_workload: bool,
}

impl View {
    /// Returns the state of a Deployment of the user's.
    pub(super) fn of_deployment(id: &ObjectId, object: &DynamicObject) -> Self {
        let number = |pointer: &str| object.data.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
        let wanted = object.data.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1);
        let available = number("/status/availableReplicas").min(number("/status/updatedReplicas"));
        let generation = object.metadata.generation.unwrap_or_default();
        // None of another template is left, either.
        let is_good = number("/status/observedGeneration") >= generation
            && available == wanted
            && number("/status/replicas") == wanted;
        Self {
            phase: if is_good { "Running" } else { "Deploying" }.to_owned(),
            is_good,
            sentence: format!(
                "Deployment {}/{} waits for its Pods: {available} of {wanted} are available.",
                id.namespace, id.name
            ),
            reason: String::new(),
            content: Some(generation.to_string()),
            is_workload: true,
        }
    }

    /// Returns the state of an object of ours.
    pub(super) fn of(kind: &ApiKind, object: &DynamicObject) -> Self {
        let status = object.data.get("status").cloned();
        let status: Option<CommonStatus> = status.map(|status| serde_json::from_value(status).unwrap_or_default());
        let why = crds::why::why(kind.name, &object.metadata, status.as_ref());
        let digest = |pointer: &str| object.data.pointer(pointer).and_then(Value::as_str);
        let template = digest("/status/template").unwrap_or_default();
        Self {
            phase: why.phase.unwrap_or_default(),
            is_good: !why.attention,
            sentence: why.sentence,
            reason: why.reason.unwrap_or_default(),
            content: digest("/status/contentHash").map(|hash| [hash, template].join(" ")),
            is_workload: kind.role == Role::Workload,
        }
    }

    /// Returns how long this state may last before the user learns of it.
    pub(super) fn patience(&self) -> Duration {
        match (self.phase.as_str(), self.reason.as_str()) {
            ("Failed" | "Error", _) => FAILED_AFTER,
            ("Deploying" | "Running", "" | "Deploying" | reason::NOT_READY | reason::PODS_NOT_READY) => DEPLOYS_AFTER,
            ("Rendering", "" | "Rendering") => DEPLOYS_AFTER,
            _ => WAITS_AFTER,
        }
    }
}
