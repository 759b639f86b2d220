//! Plays a user in one namespace while the operator is disturbed: creates, edits, deletes, and causes drift.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy},
    core::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// Name of the foreign objects, which the operator must not change.
pub(crate) const FOREIGN: &str = "foreign";
/// Longest wait for a step in the middle of the script, under faults.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Returns the [`ApiResource`] of a kind.
pub(crate) fn resource(kind: &str) -> ApiResource {
    let (group, version, plural) = match kind {
        "Agent" => (crds::GROUP, crds::VERSION, "agents"),
        "Tool" => (crds::GROUP, crds::VERSION, "tools"),
        "Deployment" => ("apps", "v1", "deployments"),
        "CustomResourceDefinition" => ("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
        "NetworkPolicy" => ("networking.k8s.io", "v1", "networkpolicies"),
        "PodDisruptionBudget" => ("policy", "v1", "poddisruptionbudgets"),
        "Service" => ("", "v1", "services"),
        "ConfigMap" => ("", "v1", "configmaps"),
        "Secret" => ("", "v1", "secrets"),
        "ServiceAccount" => ("", "v1", "serviceaccounts"),
        _ => ("", "v1", "namespaces"),
    };
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    ApiResource { group: group.into(), version: version.into(), api_version, kind: kind.into(), plural: plural.into() }
}

/// Namespace in which the script is played.
#[derive(Clone)]
pub(crate) struct ScriptNamespace {
    pub(crate) client: Client,
    pub(crate) name: String,
}

impl ScriptNamespace {
    /// Returns the API of a kind in the namespace.
    pub(crate) fn api(&self, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.name, &resource(kind))
    }

    /// Creates the namespace.
    pub(crate) async fn make(&self) -> Result<()> {
        let namespaces: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource("Namespace"));
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name}});
        namespaces.create(&PostParams::default(), &serde_json::from_value(body)?).await.context("make a namespace")?;
        Ok(())
    }

    /// Deletes the namespace, without waiting.
    pub(crate) async fn remove(&self) -> Result<()> {
        let namespaces: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource("Namespace"));
        namespaces.delete(&self.name, &DeleteParams::default()).await.context("delete a namespace")?;
        Ok(())
    }

    /// Plays the whole script.
    pub(crate) async fn play(&self) -> Result<()> {
        for (name, spec) in [
            ("weather", json!({"type": "http", "endpoint": "http://weather.example/now"})),
            ("clock", json!({"type": "builtin"})),
        ] {
            self.create("Tool", name, spec).await?;
        }
        self.create_foreign().await?;
        let database = "postgresql://u:hunter2@db.example:5432/one";
        for (name, fields) in [
            ("plain", json!({})),
            ("tooled", json!({"tools": ["weather", "clock"], "systemPrompt": "You are a pirate."})),
            ("stored", json!({"storage": "postgresql", "databaseUrl": database})),
            ("wide", json!({"replicas": 2})),
            ("waiting", json!({"tools": ["later"]})),
            ("gone", json!({"tools": ["clock"]})),
        ] {
            self.create("Agent", name, fields).await?;
        }
        self.until("the first agents Running", |agents| {
            ["plain", "tooled", "stored", "wide", "gone"].iter().all(|name| is_running(agents, name))
                && phase(agents, "waiting") == "Resolving"
        })
        .await?;
        self.patch("Agent", "tooled", json!({"spec": {"systemPrompt": null, "tools": ["clock"]}})).await?;
        self.patch("Agent", "stored", json!({"spec": {"storage": null, "databaseUrl": null}})).await?;
        self.patch("Agent", "wide", json!({"spec": {"replicas": 3}})).await?;
        self.create("Tool", "later", json!({"type": "builtin"})).await?;
        let foreground =
            DeleteParams { propagation_policy: Some(PropagationPolicy::Foreground), ..DeleteParams::default() };
        self.api("Agent").delete("gone", &foreground).await.context("delete Agent gone")?;
        self.api("ConfigMap").delete("plain-config", &DeleteParams::default()).await.context("delete a child")?;
        let drift = json!({"metadata": {"labels": {"app.kubernetes.io/part-of": "another-client"}}});
        self.patch("Service", "plain", drift).await?;
        // The agent is created again under its name while its children may still be terminating.
        self.until("the deleted agent gone", |agents| find(agents, "gone").is_none()).await?;
        self.create("Agent", "gone", json!({"systemPrompt": "You are back."})).await?;
        // The faults are still active: they apply to every step.
        self.until("the end", Self::is_settled).await
    }

    /// Reports whether all agents are in the state in which the script leaves them.
    pub(crate) fn is_settled(agents: &[DynamicObject]) -> bool {
        let names: Vec<_> = agents.iter().map(ResourceExt::name_any).collect();
        names == ["gone", "plain", "stored", "tooled", "waiting", "wide"]
            && names.iter().all(|name| is_running(agents, name))
    }

    /// Returns the agents, sorted by name.
    pub(crate) async fn agents(&self) -> Result<Vec<DynamicObject>> {
        Ok(self.api("Agent").list(&ListParams::default()).await.context("list agents")?.items)
    }

    async fn until(&self, what: &str, is_so: impl Fn(&[DynamicObject]) -> bool) -> Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let agents = self.agents().await?;
            if is_so(&agents) {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("{}: after {TIMEOUT:?} not seen: {what}; {}", self.name, described(&agents));
            }
            sleep(Duration::from_millis(500)).await;
        }
    }

    /// Creates a foreign ConfigMap, and a Secret that it controls and that has the labels of an agent's.
    async fn create_foreign(&self) -> Result<()> {
        let body = |kind: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": FOREIGN}});
        let config = serde_json::from_value(body("ConfigMap"))?;
        let config =
            self.api("ConfigMap").create(&PostParams::default(), &config).await.context("create a ConfigMap")?;
        let mut secret: DynamicObject = serde_json::from_value(body("Secret"))?;
        let labels = [("app.kubernetes.io/managed-by", crds::MANAGED_BY), ("recif.dev/agent", "stored")];
        secret.metadata.labels = Some(labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        secret.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            name: FOREIGN.into(),
            uid: config.uid().unwrap_or_default(),
            controller: Some(true),
            ..OwnerReference::default()
        }]);
        self.api("Secret").create(&PostParams::default(), &secret).await.context("create a Secret").map(drop)
    }

    /// Creates an Agent or a Tool.
    pub(crate) async fn create(&self, kind: &str, name: &str, fields: Value) -> Result<()> {
        let mut spec =
            if kind == "Agent" { json!({"name": name, "framework": "corail"}) } else { json!({"name": name}) };
        if let (Value::Object(spec), Value::Object(fields)) = (&mut spec, fields) {
            spec.extend(fields);
        }
        let api_version = format!("{}/{}", crds::GROUP, crds::VERSION);
        let body = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec});
        let created = self.api(kind).create(&PostParams::default(), &serde_json::from_value(body)?).await;
        created.with_context(|| format!("create {kind} {name}")).map(drop)
    }

    /// Edits an object with a merge patch.
    pub(crate) async fn patch(&self, kind: &str, name: &str, patch: Value) -> Result<()> {
        let patched = self.api(kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.with_context(|| format!("edit {kind} {name}")).map(drop)
    }
}

/// Describes each agent: name, phase, observed generation and failure.
pub(crate) fn described(agents: &[DynamicObject]) -> String {
    let line = |agent: &DynamicObject| {
        let status = &agent.data["status"];
        format!("{} {} {} {}", agent.name_any(), status["phase"], status["observedGeneration"], status["failure"])
    };
    agents.iter().map(line).collect::<Vec<_>>().join("; ")
}

fn find<'a>(agents: &'a [DynamicObject], name: &str) -> Option<&'a DynamicObject> {
    agents.iter().find(|agent| agent.name_any() == name)
}

fn phase<'a>(agents: &'a [DynamicObject], name: &str) -> &'a str {
    find(agents, name).and_then(|agent| agent.data["status"]["phase"].as_str()).unwrap_or_default()
}

fn is_running(agents: &[DynamicObject], name: &str) -> bool {
    find(agents, name).is_some_and(|agent| {
        agent.data["status"]["observedGeneration"].as_i64() == agent.metadata.generation
            && phase(agents, name) == "Running"
    })
}
