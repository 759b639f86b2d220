//! Renders the children that run a workload of any kind: ServiceAccount, Service and Deployment.

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
    /// Returns the name of the Pods' ServiceAccount.
    pub(super) fn service_account(&self) -> &str {
        given(self.service_account_name).unwrap_or(&self.name)
    }

    /// Returns the Service and the Deployment. Without `replicas` the apply leaves that field to its other manager.
    ///
    /// # Errors
    /// [`RenderError::PodTemplate`] and [`RenderError::EnvReserved`]: an overlay that cannot be merged.
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
            // The default, but set explicitly: the workload is Failed after it, and it must be longer than the startup probe.
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

/// Returns the ServiceAccount of `owner`, if the spec names none.
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

/// Returns the values for a Secret's `data`, not for `stringData`: that one is write-only, so its fields would never be owned.
pub(super) fn base64(values: &BTreeMap<String, String>) -> BTreeMap<&str, Value> {
    values.iter().map(|(name, value)| (name.as_str(), json!(ByteString(value.clone().into_bytes())))).collect()
}
