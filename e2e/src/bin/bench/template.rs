//! Reconstructs the server-side applies that the operator sends for one agent from the stored objects.
//!
//! `metadata.managedFields` lists the fields of each apply; with them and the stored values the apply can be sent again for
//! another agent.

use anyhow::{Context as _, Result};
use kube::{
    Api,
    core::{ApiResource, DynamicObject},
};
use serde_json::{Map, Value, json};

use crate::agents::{AgentNamespace, resource};

const MANAGER: &str = "recif-operator";

/// Requests that are sent for one agent.
pub(crate) struct ApplyTemplate {
    /// Name of the agent from which the template was read.
    pub(crate) agent: String,
    /// Final status.
    pub(crate) status: Value,
    /// Bodies of the children's applies.
    children: Vec<(ApiResource, Value)>,
}

impl ApplyTemplate {
    /// Reads the template from a Running agent.
    pub(crate) async fn of(namespace: &AgentNamespace, agent: &str) -> Result<Self> {
        let status = namespace.agents.get(agent).await.context("get the agent")?.data["status"].clone();
        let config = format!("{agent}-config");
        let kinds = [
            (resource("", "v1", "ServiceAccount", "serviceaccounts"), agent),
            (resource("", "v1", "ConfigMap", "configmaps"), &config),
            (resource("", "v1", "Secret", "secrets"), &config),
            (resource("", "v1", "Service", "services"), agent),
            (resource("apps", "v1", "Deployment", "deployments"), agent),
        ];
        let mut children = Vec::new();
        for (kind, name) in kinds {
            let api: Api<DynamicObject> = Api::namespaced_with(namespace.client.clone(), &namespace.name, &kind);
            if let Some(child) = api.get_opt(name).await.with_context(|| format!("get {} {name}", kind.kind))? {
                let body = applied(&child, &kind, name)?;
                children.push((kind, body));
            }
        }
        Ok(Self { agent: agent.into(), status, children })
    }

    /// Returns the applies for an agent with this name and uid.
    pub(crate) fn children_of(&self, agent: &str, uid: &str) -> Result<Vec<(ApiResource, Value)>> {
        let renamed = |(kind, body): &(ApiResource, Value)| {
            let text = body.to_string().replace(&self.agent, agent);
            let mut body: Value = serde_json::from_str(&text).context("rename a child")?;
            if let Some(owner) = body.pointer_mut("/metadata/ownerReferences/0/uid") {
                *owner = uid.into();
            }
            Ok((kind.clone(), body))
        };
        self.children.iter().map(renamed).collect()
    }
}

/// Returns the body of the server-side apply that created the child.
fn applied(child: &DynamicObject, kind: &ApiResource, name: &str) -> Result<Value> {
    let entries = child.metadata.managed_fields.iter().flatten();
    let mut ours = entries.filter(|entry| entry.manager.as_deref() == Some(MANAGER));
    let fields = ours.find_map(|entry| entry.fields_v1.as_ref()).context("the operator applied no field")?;
    let live = serde_json::to_value(child)?;
    let mut body = picked(&live, &fields.0);
    body["apiVersion"] = json!(kind.api_version);
    body["kind"] = json!(kind.kind);
    body["metadata"]["name"] = json!(name);
    Ok(body)
}

/// Returns the part of a value that a set of fields (`fieldsV1`) names. A field without nested fields is returned whole.
fn picked(value: &Value, fields: &Value) -> Value {
    let named: Vec<(&String, &Value)> =
        fields.as_object().into_iter().flatten().filter(|(key, _)| *key != ".").collect();
    if named.is_empty() {
        return value.clone();
    }
    if let Value::Array(items) = value {
        return named.into_iter().filter_map(|(key, inner)| item(items, key, inner)).collect();
    }
    let member = |(key, inner): (&String, &Value)| {
        let key = key.strip_prefix("f:")?;
        Some((key.to_owned(), picked(value.get(key)?, inner)))
    };
    Value::Object(named.into_iter().filter_map(member).collect::<Map<_, _>>())
}

/// Returns the list item that a key such as `k:{"name":"agent"}` or `v:"text"` names.
fn item(items: &[Value], key: &str, fields: &Value) -> Option<Value> {
    if let Some(wanted) = key.strip_prefix("v:") {
        return serde_json::from_str(wanted).ok();
    }
    let wanted: Map<String, Value> = serde_json::from_str(key.strip_prefix("k:")?).ok()?;
    let matches = |item: &&Value| wanted.iter().all(|(key, value)| item.get(key) == Some(value));
    items.iter().find(matches).map(|item| picked(item, fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_applied_is_what_the_fields_name() {
        let live = json!({
            "spec": {"replicas": 1, "ports": [{"port": 80, "name": "http", "protocol": "TCP"}, {"port": 1}]},
            "data": {"a": "b"}, "finalizers": ["x", "y"], "status": {},
        });
        let fields = json!({
            "f:spec": {"f:ports": {"k:{\"port\":80}": {".": {}, "f:name": {}, "f:port": {}}}},
            "f:data": {}, "f:finalizers": {"v:\"x\"": {}},
        });
        let body = json!({"spec": {"ports": [{"name": "http", "port": 80}]}, "data": {"a": "b"}, "finalizers": ["x"]});
        assert_eq!(picked(&live, &fields), body);
    }
}
