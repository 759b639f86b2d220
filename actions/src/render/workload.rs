//! The children that run a workload, whatever its kind: ServiceAccount, Service and Deployment.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use kube::Resource;
use serde_json::{Value, json};

use super::{
    RenderError,
    labels::{child, selector_labels},
    pod::template,
    service::service,
    workload_parts::WorkloadParts,
};
use crate::ports::{ChildKind, ChildManifest};

impl WorkloadParts<'_> {
    /// Name of the ServiceAccount of the Pods.
    pub(super) fn service_account(&self) -> &str {
        given(self.service_account_name).unwrap_or(&self.name)
    }

    /// The Service and the Deployment. Without `replicas` the apply leaves that field to whoever has it.
    ///
    /// # Errors
    /// [`RenderError::PodTemplate`] and [`RenderError::EnvTaken`]: an overlay that cannot be merged.
    pub(super) fn children<K: Resource<DynamicType = ()>>(
        &self,
        owner: &K,
        replicas: Option<i32>,
    ) -> Result<[ChildManifest; 2], RenderError> {
        Ok([service(owner, self.label, &self.port), self.deployment(owner, replicas)?])
    }

    fn deployment<K: Resource<DynamicType = ()>>(
        &self,
        owner: &K,
        replicas: Option<i32>,
    ) -> Result<ChildManifest, RenderError> {
        let mut spec = json!({
            "selector": { "matchLabels": selector_labels(self.label, &self.name) },
            "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 0, "maxSurge": 1 } },
            // The default, but ours: the workload is Failed when it is over, and it has to outlast the startup probe.
            "progressDeadlineSeconds": 600,
        });
        spec["template"] = template(self)?;
        if let Some(replicas) = replicas {
            spec["replicas"] = json!(replicas);
        }
        let fields = Value::Object([("spec".to_owned(), spec)].into_iter().collect());
        Ok(child(owner, self.label, ChildKind::Deployment, self.name.clone(), fields))
    }
}

/// The ServiceAccount of `owner`'s own, when the spec names none.
pub(super) fn own_service_account<K: Resource<DynamicType = ()>>(
    owner: &K,
    label: &str,
    named: Option<&str>,
) -> Option<ChildManifest> {
    let name = owner.meta().name.clone().unwrap_or_default();
    let fields = json!({ "automountServiceAccountToken": false });
    given(named).is_none().then(|| child(owner, label, ChildKind::ServiceAccount, name, fields))
}

fn given(name: Option<&str>) -> Option<&str> {
    name.filter(|name| !name.is_empty())
}

/// A Secret's `data`, not `stringData`: that one is write-only, and its fields would never be owned.
pub(super) fn base64(values: &BTreeMap<String, String>) -> BTreeMap<&str, Value> {
    values.iter().map(|(name, value)| (name.as_str(), json!(ByteString(value.clone().into_bytes())))).collect()
}
