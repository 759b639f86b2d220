//! Reduces objects while they are decoded: fields that no decision needs are never kept, least of all the bytes of a Secret.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use actions::{
    discovery::Definitions,
    ports::{CachedChild, ChildKind, ChildRef, Controller, DeploymentState, ReplicasManagers},
    render::MANAGED_BY_LABEL,
    workload::{REPLICAS, SCALER},
};
use crds::{FIELD_MANAGER, MANAGED_BY, digest::sha256_hex, tool_server::TOOLS_KEY};
use k8s_openapi::ByteString;
use meta::{Key, condition_type};
use serde::{Deserialize, Deserializer, Serialize, de::IgnoredAny};
use serde_json::value::RawValue;

use super::store::ObjectVersion;

/// Reason of `Progressing=False` of a Deployment whose ReplicaSet cannot be created, for example because of a quota.
const REPLICA_SET_CREATE_ERROR: &str = "ReplicaSetCreateError";

/// Decodes only the key, the uid and the resource version of an object.
///
/// # Errors
/// Fails if it has no such metadata.
pub fn object_version(json: &str) -> Result<ObjectVersion, serde_json::Error> {
    #[derive(Deserialize)]
    struct WireVersioned<'a> {
        #[serde(borrow)]
        metadata: WireVersionMeta<'a>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct WireVersionMeta<'a> {
        #[serde(default, borrow)]
        name: Cow<'a, str>,
        #[serde(default, borrow)]
        namespace: Cow<'a, str>,
        #[serde(default, borrow)]
        uid: Cow<'a, str>,
        #[serde(borrow)]
        resource_version: Cow<'a, str>,
    }
    let wire = serde_json::from_str::<WireVersioned<'_>>(json)?.metadata;
    let version = wire.resource_version.parse().map_err(serde::de::Error::custom)?;
    Ok(ObjectVersion {
        key: Key::new(wire.namespace, wire.name),
        uid: wire.uid.into_owned(),
        resource_version: version,
    })
}

/// Decodes the labels of an object, and whether it is being deleted.
///
/// # Errors
/// Fails if it has no metadata.
pub fn labels(json: &str) -> Result<(BTreeMap<String, String>, bool), serde_json::Error> {
    #[derive(Deserialize)]
    struct Labelled {
        metadata: Labels,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Labels {
        #[serde(default)]
        labels: BTreeMap<String, String>,
        deletion_timestamp: Option<IgnoredAny>,
    }
    let Labels { labels, deletion_timestamp } = serde_json::from_str::<Labelled>(json)?.metadata;
    Ok((labels, deletion_timestamp.is_some()))
}

/// Decodes a child of this kind.
///
/// # Errors
/// Fails if the JSON is no such object.
pub fn child(kind: ChildKind, head: &ObjectVersion, json: &str) -> Result<CachedChild, serde_json::Error> {
    let wire: WireChild<'_> = serde_json::from_str(json)?;
    let fields = FieldOwnership::read(&wire.metadata.managed_fields)?;
    let deployment = (kind == ChildKind::Deployment).then(|| wire.deployment(&fields));
    let mut data = wire.data.texts(kind)?;
    data.extend(wire.binary_data.into_iter().map(|(key, BinaryDigest(digest))| (key, digest)));
    let metadata = wire.metadata;
    let ours = kind == ChildKind::ConfigMap && metadata.labels.get(MANAGED_BY_LABEL).is_some_and(|by| by == MANAGED_BY);
    let definitions = wire.data.0.get(TOOLS_KEY).filter(|_| ours);
    let definitions = definitions.map(|raw| serde_json::from_str::<Cow<'_, str>>(raw.get())).transpose()?;
    let controller = metadata.owner_references.into_iter().find(|owner| owner.controller).map(Controller::from);
    // The labels name the owner only where no controller reference does. They are collected anew, because a map from which all entries are
    // removed keeps its memory.
    let is_kept = |name: &str| controller.is_none() && (name.starts_with("recif.dev/") || name == MANAGED_BY_LABEL);
    let labels = metadata.labels.into_iter().filter(|(name, _)| is_kept(name)).collect();
    Ok(CachedChild {
        child: ChildRef { kind, namespace: head.key.namespace.clone(), name: head.key.name.clone() },
        uid: head.uid.clone(),
        resource_version: head.resource_version,
        generation: metadata.generation,
        labels,
        controller,
        owned: fields.owned,
        deleting: metadata.deletion_timestamp.is_some(),
        data,
        deployment,
        definitions: definitions.map(|text| Arc::new(Definitions::read(&text))),
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireChild<'a> {
    #[serde(borrow)]
    metadata: WireChildMeta<'a>,
    #[serde(default, borrow)]
    data: WireData<'a>,
    #[serde(default)]
    binary_data: BTreeMap<String, BinaryDigest>,
    #[serde(default)]
    spec: WireSpec,
    #[serde(default)]
    status: WireStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireChildMeta<'a> {
    #[serde(default)]
    generation: i64,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    owner_references: Vec<WireOwnerReference>,
    #[serde(default)]
    deletion_timestamp: Option<serde::de::IgnoredAny>,
    #[serde(default, borrow)]
    managed_fields: Vec<WireManagedFields<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireOwnerReference {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    #[serde(default)]
    controller: bool,
}

impl From<WireOwnerReference> for Controller {
    fn from(owner: WireOwnerReference) -> Self {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group).to_owned();
        Self { group, kind: owner.kind, name: owner.name, uid: owner.uid }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireManagedFields<'a> {
    #[serde(default, borrow)]
    manager: Cow<'a, str>,
    #[serde(default, borrow)]
    operation: Cow<'a, str>,
    #[serde(default, borrow)]
    subresource: Cow<'a, str>,
    #[serde(default, borrow)]
    fields_v1: Option<&'a RawValue>,
}

/// Set of fields as `managedFields` holds it: nested objects, sorted here whatever their order was.
#[derive(Deserialize, Serialize)]
struct FieldSet(BTreeMap<String, FieldSet>);

/// Field managers of the fields that decisions depend on.
#[derive(Default)]
struct FieldOwnership {
    owned: Option<String>,
    replicas_by: ReplicasManagers,
}

impl FieldOwnership {
    fn read(entries: &[WireManagedFields<'_>]) -> Result<Self, serde_json::Error> {
        let mut found = Self::default();
        for entry in entries {
            let Some(raw) = entry.fields_v1 else { continue };
            let ours = entry.manager == FIELD_MANAGER && entry.operation == "Apply" && entry.subresource.is_empty();
            if !ours && !raw.get().contains("\"f:replicas\"") {
                continue;
            }
            let mut set: FieldSet = serde_json::from_str(raw.get())?;
            // Taken out, because another field manager may take it over without any other change.
            let has_replicas = set.0.get_mut("f:spec").is_some_and(|spec| spec.0.remove("f:replicas").is_some());
            if ours {
                found.owned = Some(sha256_hex(&serde_json::to_vec(&set)?));
                found.replicas_by.operator = has_replicas;
            } else if has_replicas && entry.manager == SCALER && entry.operation == "Apply" {
                found.replicas_by.scaler = true;
            } else if has_replicas && entry.manager == REPLICAS && entry.operation == "Apply" {
                found.replicas_by.replicas_apply = true;
            } else if has_replicas {
                found.replicas_by.other = Some(entry.manager.clone().into_owned());
            }
        }
        Ok(found)
    }
}

/// `data` of a Secret or a ConfigMap; other kinds have none.
#[derive(Deserialize, Default)]
#[serde(transparent)]
struct WireData<'a>(#[serde(borrow)] BTreeMap<String, &'a RawValue>);

impl WireData<'_> {
    fn texts(&self, kind: ChildKind) -> Result<BTreeMap<String, String>, serde_json::Error> {
        let digest = |raw: &RawValue| match kind {
            ChildKind::Secret => serde_json::from_str(raw.get()).map(|BinaryDigest(digest)| digest),
            _ => serde_json::from_str::<Cow<'_, str>>(raw.get()).map(|text| sha256_hex(text.as_bytes())),
        };
        self.0.iter().map(|(key, raw)| Ok((key.clone(), digest(raw)?))).collect()
    }
}

/// Digest of bytes that arrive as base64; the bytes themselves are dropped here.
struct BinaryDigest(String);

impl<'de> Deserialize<'de> for BinaryDigest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ByteString::deserialize(deserializer).map(|bytes| Self(sha256_hex(&bytes.0)))
    }
}

#[derive(Deserialize, Default)]
struct WireSpec {
    #[serde(default)]
    replicas: Option<i32>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireStatus {
    observed_generation: i64,
    replicas: i32,
    updated_replicas: i32,
    ready_replicas: i32,
    available_replicas: i32,
    conditions: Vec<WireCondition>,
}

#[derive(Deserialize)]
struct WireCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

impl WireChild<'_> {
    fn deployment(&self, fields: &FieldOwnership) -> DeploymentState {
        let status = &self.status;
        let find = |type_: &str, value: &str| {
            status.conditions.iter().find(|found| found.type_ == type_ && found.status == value)
        };
        let stopped = find(condition_type::PROGRESSING, "False");
        DeploymentState {
            observed_generation: status.observed_generation,
            desired: self.spec.replicas.unwrap_or(1),
            replicas: status.replicas,
            updated: status.updated_replicas,
            ready: status.ready_replicas,
            available: status.available_replicas,
            stalled: stopped.map(|found| found.message.clone()),
            replica_failure: find(condition_type::REPLICA_FAILURE, "True").map(|found| found.message.clone()),
            replica_set_failure: stopped
                .filter(|found| found.reason == REPLICA_SET_CREATE_ERROR)
                .map(|found| found.message.clone()),
            replicas_managers: fields.replicas_by.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: ChildKind, json: &str) -> CachedChild {
        child(kind, &object_version(json).unwrap(), json).unwrap()
    }

    fn deployment(managed_fields: &str) -> CachedChild {
        let json = format!(
            r#"{{"metadata":{{"name":"a","namespace":"ns","uid":"u","resourceVersion":"7","generation":2,
            "ownerReferences":[{{"apiVersion":"agents.recif.dev/v1","kind":"Agent","name":"a","uid":"x","controller":true}}],
            "managedFields":[{managed_fields}]}},"spec":{{"replicas":3,"template":{{}}}},
            "status":{{"observedGeneration":2,"updatedReplicas":1,"conditions":[{{"type":"Progressing","status":"False","message":"late"}}]}}}}"#
        );
        read(ChildKind::Deployment, &json)
    }

    const OURS: &str = r#"{"manager":"recif-operator","operation":"Apply","fieldsV1":{"f:spec":{"f:b":{},"f:a":{}}}}"#;

    #[test]
    fn a_deployment_keeps_what_decisions_need() {
        let found = deployment(OURS);
        assert_eq!(found.resource_version, 7);
        assert_eq!(found.controller.unwrap().group, "agents.recif.dev");
        let state = found.deployment.unwrap();
        assert_eq!((state.desired, state.updated, state.ready), (3, 1, 0));
        assert_eq!(state.stalled.as_deref(), Some("late"));
    }

    #[test]
    fn a_deployment_without_a_replica_set_says_so() {
        let state = |reason: &str| {
            let json = format!(
                r#"{{"metadata":{{"name":"a","namespace":"ns","uid":"u","resourceVersion":"7"}},"status":{{"conditions":
                [{{"type":"Progressing","status":"False","reason":"{reason}","message":"quota"}}]}}}}"#
            );
            let found = read(ChildKind::Deployment, &json).deployment.unwrap();
            (found.replica_set_failure, found.stalled)
        };
        let quota = Some("quota".to_owned());
        assert_eq!(state("ReplicaSetCreateError"), (quota.clone(), quota.clone()));
        assert_eq!(state("ProgressDeadlineExceeded"), (None, quota));
    }

    #[test]
    fn labels_are_kept_where_only_they_say_whose_it_is() {
        let labelled = |owners: &str| {
            let json = format!(
                r#"{{"metadata":{{"name":"a","namespace":"ns","uid":"u","resourceVersion":"7","ownerReferences":[{owners}],
                "labels":{{"app":"a","recif.dev/agent":"a","app.kubernetes.io/managed-by":"recif"}}}}}}"#
            );
            read(ChildKind::ServiceAccount, &json).labels.into_keys().collect::<Vec<_>>()
        };
        assert_eq!(labelled(""), [MANAGED_BY_LABEL, "recif.dev/agent"]);
        assert!(labelled(r#"{"apiVersion":"v1","kind":"Agent","name":"a","uid":"x","controller":true}"#).is_empty());
    }

    #[test]
    fn what_we_own_is_hashed_in_canonical_form() {
        let sorted = sha256_hex(br#"{"f:spec":{"f:a":{},"f:b":{}}}"#);
        assert_eq!(deployment(OURS).owned, Some(sorted));
    }

    #[test]
    fn a_scaler_that_takes_the_replicas_changes_nothing_that_we_own() {
        let with_replicas = OURS.replace("f:b\":{}", "f:b\":{},\"f:replicas\":{}");
        assert_eq!(deployment(&with_replicas).owned, deployment(OURS).owned);
        assert_ne!(deployment(&OURS.replace("f:b", "f:c")).owned, deployment(OURS).owned);
    }

    #[test]
    fn only_our_own_apply_of_the_object_itself_counts() {
        let status = OURS.replace("\"operation\"", "\"subresource\":\"status\",\"operation\"");
        for other in [OURS.replace("recif-operator", "kubectl"), OURS.replace("Apply", "Update"), status] {
            assert_eq!(deployment(&other).owned, None, "{other}");
        }
    }

    #[test]
    fn replicas_have_another_manager_only_when_they_are_not_ours() {
        let kubectl = r#"{"manager":"kubectl","operation":"Update","subresource":"scale","fieldsV1":{"f:spec":{"f:replicas":{}}}}"#;
        let by = |entries: &str| deployment(entries).deployment.unwrap().replicas_managers;
        assert_eq!(by(&format!("{OURS},{kubectl}")).other_manager(), Some("kubectl"));
        let ours = OURS.replace("f:b", "f:replicas");
        assert_eq!(by(&format!("{kubectl},{ours}")).other_manager(), None);
        assert_eq!(by(&kubectl.replace("f:spec", "f:template")), ReplicasManagers::default());
        let scaler = ours.replace("recif-operator", "recif-scaler");
        let expected = ReplicasManagers { operator: true, scaler: true, ..ReplicasManagers::default() };
        assert_eq!(by(&format!("{scaler},{ours}")), expected);
        assert_eq!(by(&format!("{scaler},{kubectl}")).other_manager(), None);
        let number = by(&ours.replace("recif-operator", "recif-replicas"));
        assert_eq!((number.has_operator(), number.operator, number.other_manager()), (true, false, None));
    }

    #[test]
    fn equal_values_have_equal_digests_in_secrets_and_config_maps() {
        let metadata = r#""metadata":{"name":"a","namespace":"ns","uid":"u","resourceVersion":"7"}"#;
        let secret = read(ChildKind::Secret, &format!(r#"{{{metadata},"data":{{"k":"aGk="}}}}"#));
        let plain =
            read(ChildKind::ConfigMap, &format!(r#"{{{metadata},"data":{{"k":"hi"}},"binaryData":{{"b":"aGk="}}}}"#));
        assert_eq!(secret.data["k"], sha256_hex(b"hi"));
        assert_eq!(plain.data["k"], sha256_hex(b"hi"));
        assert_eq!(plain.data["b"], sha256_hex(b"hi"));
    }

    #[test]
    fn a_secret_leaves_no_trace_of_its_bytes() {
        let json =
            r#"{"metadata":{"name":"a","namespace":"ns","uid":"u","resourceVersion":"7"},"data":{"k":"c2VzYW1l"}}"#;
        let shown = format!("{:?}", read(ChildKind::Secret, json));
        assert!(!shown.contains("sesame") && !shown.contains("c2VzYW1l"), "{shown}");
    }
}
