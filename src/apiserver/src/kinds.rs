//! Table of the kinds that are kept: ours with their schemas, and the built-in ones that ours need.

use std::sync::{LazyLock, OnceLock};

use k8s_openapi::{
    api::{
        apps::v1 as apps, core::v1 as core, discovery::v1 as discovery, networking::v1 as net, policy::v1 as policy,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::schema::Schema;

/// One resource of the API.
#[derive(Debug)]
pub(crate) struct Kind {
    /// API group; empty for the core group.
    pub(crate) group: &'static str,
    /// Version.
    pub(crate) version: &'static str,
    /// Kind, such as `ConfigMap`.
    pub(crate) name: &'static str,
    /// Plural, as in URLs.
    pub(crate) plural: &'static str,
    /// Short names.
    pub(crate) short: &'static [&'static str],
    /// Categories.
    pub(crate) categories: &'static [&'static str],
    /// Properties of its objects and of their writes.
    pub(crate) traits: Traits,
    /// Check of its objects.
    pub(crate) shape: Shape,
}

/// Properties of the objects of a kind, and of their writes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Traits {
    /// Its objects are in no namespace.
    pub(crate) cluster: bool,
    /// It has the subresource `status`, and status and spec are written apart.
    pub(crate) status: bool,
    /// `metadata.generation` counts the changes of the spec.
    pub(crate) generation: bool,
    /// An update need not name the version that it replaces.
    pub(crate) unconditional: bool,
    /// A deletion that is done returns the object, not a Status.
    pub(crate) returns_deleted: bool,
    /// It can only be read.
    pub(crate) read_only: bool,
}

/// Check of the objects of a kind.
#[derive(Debug)]
pub(crate) enum Shape {
    /// By the schema of a definition, which is compiled at first use.
    Custom { definition: Value, schema: Box<OnceLock<Result<Schema, String>>> },
    /// By the types of k8s-openapi.
    BuiltIn(fn(Value) -> Result<Value, String>),
    /// Not at all: each request gets an answer, and nothing is kept.
    Review,
}

/// Paths of the subresource `scale`, as JSON pointers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScalePaths {
    /// Replicas wanted.
    pub(crate) spec: String,
    /// Replicas there are.
    pub(crate) status: String,
    /// Label selector of the Pods; a text or, for a Deployment, a LabelSelector.
    pub(crate) selector: String,
}

impl Kind {
    /// Returns the resource with its group, as in messages: `models.agents.recif.dev`.
    pub(crate) fn resource(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Returns the `apiVersion` of its objects.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Returns the singular.
    pub(crate) fn singular(&self) -> String {
        self.name.to_lowercase()
    }

    /// Reports whether it is the form of events that is not stored.
    pub(crate) fn is_event_view(&self) -> bool {
        self.group == "events.k8s.io"
    }

    /// Returns the compiled schema of a kind of ours.
    pub(crate) fn schema(&self) -> Option<Result<&Schema, &str>> {
        let Shape::Custom { definition, schema } = &self.shape else { return None };
        let compiled = schema.get_or_init(|| {
            let versions = definition.pointer("/spec/versions/0/schema/openAPIV3Schema");
            Schema::compile(versions.unwrap_or(&Value::Null))
        });
        Some(compiled.as_ref().map_err(String::as_str))
    }

    /// Returns the paths of the subresource `scale`, for kinds that have it.
    pub(crate) fn scale(&self) -> Option<ScalePaths> {
        match &self.shape {
            Shape::Custom { definition, .. } => {
                let scale = definition.pointer("/spec/versions/0/subresources/scale")?;
                let path = |field: &str| scale[field].as_str().unwrap_or_default().replace('.', "/");
                Some(ScalePaths {
                    spec: path("specReplicasPath"),
                    status: path("statusReplicasPath"),
                    selector: path("labelSelectorPath"),
                })
            }
            _ if self.name == "Deployment" => Some(ScalePaths {
                spec: "/spec/replicas".to_owned(),
                status: "/status/replicas".to_owned(),
                selector: "/spec/selector".to_owned(),
            }),
            _ => None,
        }
    }

    /// Returns the object before a creation, which has the structs that Go always has: what a creation adds are the fields in
    /// them.
    pub(crate) fn empty(&self) -> Value {
        let mut empty = json!({ "apiVersion": self.api_version(), "kind": self.name, "metadata": {} });
        if matches!(self.shape, Shape::BuiltIn(_)) {
            empty["spec"] = json!({});
            empty["status"] = json!({});
        }
        match self.name {
            "Deployment" => {
                empty["spec"] = json!({ "strategy": {}, "template": { "metadata": {}, "spec": { "containers": [] } } });
            }
            "Event" => empty["source"] = json!({}),
            "Namespace" => empty["spec"] = json!({ "finalizers": ["kubernetes"] }),
            "NetworkPolicy" => empty["spec"] = json!({ "podSelector": {} }),
            "Pod" => empty["spec"] = json!({ "containers": [] }),
            _ => {}
        }
        empty
    }
}

const CLUSTER: Traits = Traits {
    cluster: true,
    status: false,
    generation: false,
    unconditional: true,
    returns_deleted: false,
    read_only: false,
};
const PLAIN: Traits = Traits { cluster: false, ..CLUSTER };
const OURS: Traits = Traits { status: true, generation: true, unconditional: false, ..PLAIN };
const ALL: &[&str] = &["all"];

/// Reads an object by its type and writes it again, so that unknown fields and nulls are gone.
fn typed<K: DeserializeOwned + Serialize>(object: Value) -> Result<Value, String> {
    let object: K = serde_json::from_value(object).map_err(|error| error.to_string())?;
    serde_json::to_value(object).map_err(|error| error.to_string())
}

/// Makes a row of a built-in kind.
fn row<K: DeserializeOwned + Serialize>(
    api: (&'static str, &'static str, &'static str),
    short: &'static [&'static str],
    categories: &'static [&'static str],
    traits: Traits,
) -> Kind {
    let (group, name, plural) = api;
    Kind { group, version: "v1", name, plural, short, categories, traits, shape: Shape::BuiltIn(typed::<K>) }
}

/// Returns every kind. Of events, the core group's is the one that is stored.
pub(crate) fn all() -> &'static [Kind] {
    static ALL_KINDS: LazyLock<Vec<Kind>> = LazyLock::new(table);
    &ALL_KINDS
}

fn table() -> Vec<Kind> {
    let generation = Traits { generation: true, ..PLAIN };
    let mut kinds = vec![
        row::<core::Namespace>(("", "Namespace", "namespaces"), &["ns"], &[], Traits { status: true, ..CLUSTER }),
        row::<core::ConfigMap>(("", "ConfigMap", "configmaps"), &["cm"], &[], PLAIN),
        row::<core::Secret>(("", "Secret", "secrets"), &[], &[], PLAIN),
        row::<core::ServiceAccount>(
            ("", "ServiceAccount", "serviceaccounts"),
            &["sa"],
            &[],
            Traits { returns_deleted: true, ..PLAIN },
        ),
        row::<core::Service>(
            ("", "Service", "services"),
            &["svc"],
            ALL,
            Traits { status: true, returns_deleted: true, ..PLAIN },
        ),
        row::<core::Pod>(
            ("", "Pod", "pods"),
            &["po"],
            ALL,
            Traits { status: true, returns_deleted: true, ..generation },
        ),
        row::<core::Event>(("", "Event", "events"), &["ev"], &[], PLAIN),
        row::<k8s_openapi::api::events::v1::Event>(("events.k8s.io", "Event", "events"), &["ev"], &[], PLAIN),
        row::<apps::Deployment>(
            ("apps", "Deployment", "deployments"),
            &["deploy"],
            ALL,
            Traits { status: true, ..generation },
        ),
        row::<discovery::EndpointSlice>(("discovery.k8s.io", "EndpointSlice", "endpointslices"), &[], &[], generation),
        row::<net::NetworkPolicy>(
            ("networking.k8s.io", "NetworkPolicy", "networkpolicies"),
            &["netpol"],
            &[],
            generation,
        ),
        row::<policy::PodDisruptionBudget>(
            ("policy", "PodDisruptionBudget", "poddisruptionbudgets"),
            &["pdb"],
            &[],
            Traits { status: true, unconditional: false, ..generation },
        ),
        row::<CustomResourceDefinition>(
            ("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions"),
            &["crd", "crds"],
            &["api-extensions"],
            Traits { read_only: true, generation: true, status: true, ..CLUSTER },
        ),
    ];
    let review = |group, name, plural, traits| Kind {
        group,
        version: "v1",
        name,
        plural,
        short: &[],
        categories: &[],
        traits,
        shape: Shape::Review,
    };
    kinds.extend([
        review("authentication.k8s.io", "TokenReview", "tokenreviews", CLUSTER),
        review("authentication.k8s.io", "SelfSubjectReview", "selfsubjectreviews", CLUSTER),
        review("authorization.k8s.io", "SubjectAccessReview", "subjectaccessreviews", CLUSTER),
        review("authorization.k8s.io", "SelfSubjectAccessReview", "selfsubjectaccessreviews", CLUSTER),
        review("authorization.k8s.io", "LocalSubjectAccessReview", "localsubjectaccessreviews", PLAIN),
    ]);
    kinds.extend(crds::KINDS.iter().map(|kind| Kind {
        group: crds::GROUP,
        version: crds::VERSION,
        name: kind.name,
        plural: kind.plural,
        short: std::slice::from_ref(&kind.short),
        categories: &["recif"],
        traits: OURS,
        shape: Shape::Custom {
            // Cannot fail: a definition consists of texts, numbers, lists and maps with text keys.
            definition: serde_json::to_value(kind.definition()).unwrap_or_default(),
            schema: Box::default(),
        },
    }));
    kinds
}

/// Returns the index of the kind in whose form objects of a kind are stored.
pub(crate) fn stored(kinds: &[Kind], index: usize) -> usize {
    let is_event = kinds.get(index).is_some_and(Kind::is_event_view);
    let core = |kind: &Kind| kind.group.is_empty() && kind.name == "Event";
    if is_event { kinds.iter().position(core).unwrap_or(index) } else { index }
}
