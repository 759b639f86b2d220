//! Tests an operator, a gateway and a control plane that are limited to some namespaces: the actions of one tenant in its
//! namespace do not block another tenant. These scenarios run alone, because the cluster-wide operator is stopped
//! meanwhile.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    kinds::{
        AGENT, CLUSTER_ROLE, CLUSTER_ROLE_BINDING, DEPLOYMENT, KubeKind, NAMESPACE, POD, ROLE_BINDING, SERVICE_ACCOUNT,
    },
    manifests::{agent, documents},
    namespace::{Namespace, REPORT_TIMEOUT, START_TIMEOUT},
    object::{Object, ObjectExt as _, ObjectsByName},
    operator,
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const ALONE: &[Scenario] = scenarios!(Exclusive:
    one_tenants_end_stops_no_other,
);

/// Deployments of an installation.
const PARTS: [&str; 3] = ["recif-operator", "recif-gateway", "recif-control-plane"];
const FINALIZER: &str = "recif.dev/cleanup";

/// Installation in a namespace of its own, for two tenants.
struct NamespacedInstall {
    system: Namespace,
    tenants: [Namespace; 2],
}

async fn one_tenants_end_stops_no_other(ns: Namespace) -> Result<()> {
    let replicas = operator::replicas(&ns.env).await?;
    operator::scale(&ns.env, 0).await?;
    let mut tenants = Vec::new();
    for name in ["a", "b"] {
        tenants.push(Namespace::create(ns.env.clone(), &format!("{}-{name}", ns.name)).await?);
    }
    let [a, b] = <[Namespace; 2]>::try_from(tenants).map_err(|_| anyhow::anyhow!("two tenants"))?;
    let install = NamespacedInstall { system: ns.clone(), tenants: [a, b] };
    let result = install.lose_a_tenant().await;
    let removed = install.remove().await;
    operator::scale(&ns.env, replicas).await?;
    result.and(removed)
}

impl NamespacedInstall {
    async fn lose_a_tenant(&self) -> Result<()> {
        let [a, b] = &self.tenants;
        self.make().await?;
        a.start(&agent("one", json!({}))).await?;
        b.start(&agent("one", json!({}))).await?;
        for tenant in [a, b] {
            tenant.until(ROLE_BINDING, "recif-operator", REPORT_TIMEOUT, "is held", is_held).await?;
        }
        let mut recorders = Vec::new();
        for part in ["recif-gateway", "recif-control-plane"] {
            recorders.push((part, self.system.record(DEPLOYMENT, part).await?));
        }

        a.delete_itself().await?;
        // The RoleBinding may be gone already.
        drop(a.delete(ROLE_BINDING, "recif-operator").await);
        let gone = |all: &ObjectsByName| (!all.contains_key(&a.name)).then_some(());
        let what = "the first tenant's namespace gone";
        let all = a.env.all(NAMESPACE);
        crate::watch::await_condition(all, Default::default(), Duration::from_secs(120), what, gone).await?;
        self.check_edit_followed("after the namespace went").await?;

        self.restart().await?;
        self.ready("recif-operator").await?;
        self.check_edit_followed("after a restart").await?;

        // A permission that is missing from the start: nothing is changed that depends on the unknown state.
        self.list_secrets(false).await?;
        self.restart().await?;
        let runs = b.record(AGENT, "one").await?;
        let edited = b.edit(AGENT, "one", json!({"spec": {"systemPrompt": "unseen"}})).await?;
        let says = |it: &Object| it.phase() == "Running" && it.condition("Ready").contains("secrets");
        let unsure = b.until(AGENT, "one", START_TIMEOUT, "runs and names the right", says).await?;
        ensure!(runs.up_to(&unsure).await?.iter().all(|it| it.phase() == "Running"), "it left Running");
        self.list_secrets(true).await?;
        let done = |it: &Object| it.is_running() && it.generation() == edited.generation();
        b.until(AGENT, "one", START_TIMEOUT, "goes on", done).await?;

        for (part, recorder) in &recorders {
            let now = self.system.get(DEPLOYMENT, part).await?;
            let away = |it: &&Object| it.number("/status/readyReplicas") == 0;
            ensure!(recorder.up_to(&now).await?.iter().find(away).is_none(), "{part} was not ready at some time");
        }
        Ok(())
    }

    /// Checks that an edit of the other tenant's agent is applied.
    async fn check_edit_followed(&self, prompt: &str) -> Result<()> {
        let b = &self.tenants[1];
        let edited = b.edit(AGENT, "one", json!({"spec": {"systemPrompt": prompt}})).await?;
        let done = |it: &Object| it.is_running() && it.generation() == edited.generation();
        b.until(AGENT, "one", START_TIMEOUT, &format!("follows an edit {prompt}"), done).await.map(drop)
    }

    async fn ready(&self, part: &str) -> Result<()> {
        let ready = |it: &Object| it.number("/status/readyReplicas") == 1;
        self.system.until(DEPLOYMENT, part, START_TIMEOUT, "is ready", ready).await.map(drop)
    }

    /// Replaces the operator's Pod.
    async fn restart(&self) -> Result<()> {
        for pod in self.system.list(POD).await? {
            if pod.name_any().starts_with("recif-operator") {
                self.system.delete(POD, &pod.name_any()).await?;
                self.system.until_gone(POD, &pod.name_any(), START_TIMEOUT).await?;
            }
        }
        Ok(())
    }

    /// Returns the name of a cluster-scoped object, which is unique to this installation.
    fn unique_name(&self, name: &str) -> String {
        format!("{name}-{}", self.system.name)
    }

    /// Applies config/namespaced, in this namespace and for these tenants.
    async fn make(&self) -> Result<()> {
        let env = &self.system.env;
        let image = operator::image(env).await?;
        let folder = env.file("config/namespaced");
        let folder = folder.to_str().context("a path that is text")?;
        let text = env.kubectl(&["kustomize", folder]).await?;
        let names = self.tenants.each_ref().map(|tenant| tenant.name.as_str()).join(",");
        let text = text.replace("recif.local/operator:dev", &image).replace("recif-system", &self.system.name);
        let text = text.replace("--namespaces=team-a", &format!("--namespaces={names}"));
        for mut manifest in documents(&text)? {
            let kind = manifest["kind"].as_str().unwrap_or_default().to_owned();
            match kind.as_str() {
                "ClusterRole" if PARTS.iter().any(|part| manifest["metadata"]["name"] == *part) => {
                    manifest["metadata"]["name"] =
                        self.unique_name(manifest["metadata"]["name"].as_str().unwrap_or_default()).into();
                    self.cluster_wide(CLUSTER_ROLE, &manifest).await?;
                }
                "ClusterRoleBinding" => {
                    manifest["metadata"]["name"] =
                        self.unique_name(manifest["metadata"]["name"].as_str().unwrap_or_default()).into();
                    self.cluster_wide(CLUSTER_ROLE_BINDING, &manifest).await?;
                }
                "RoleBinding" if manifest["metadata"]["namespace"] == "team-a" => {
                    let role = manifest["roleRef"]["name"].as_str().unwrap_or_default();
                    manifest["roleRef"]["name"] = self.unique_name(role).into();
                    for tenant in &self.tenants {
                        manifest["metadata"]["namespace"] = tenant.name.clone().into();
                        tenant.apply(&manifest).await?;
                    }
                }
                "Deployment" => {
                    manifest["spec"]["replicas"] = 1.into();
                    self.system.apply(&manifest).await?;
                }
                "ServiceAccount" | "Role" | "RoleBinding" | "Service" => drop(self.system.apply(&manifest).await?),
                _ => {}
            }
        }
        for part in PARTS {
            self.ready(part).await?;
        }
        Ok(())
    }

    async fn cluster_wide(&self, kind: KubeKind, manifest: &Value) -> Result<()> {
        let params = PatchParams::apply("e2e").force();
        let name = manifest["metadata"]["name"].as_str().unwrap_or_default();
        let applied = self.system.env.all(kind).patch(name, &params, &Patch::Apply(manifest)).await;
        applied.map(drop).with_context(|| format!("apply {}/{name}", kind.kind))
    }

    /// Grants the operator the permission to list and watch Secrets, or revokes it.
    async fn list_secrets(&self, may: bool) -> Result<()> {
        let (roles, name) = (self.system.env.all(CLUSTER_ROLE), self.unique_name("recif-operator"));
        let role = roles.get(&name).await?;
        let mut rules = role.at("/rules").clone();
        for rule in rules.as_array_mut().into_iter().flatten() {
            let resources = rule["resources"].as_array().cloned().unwrap_or_default();
            if resources.contains(&json!("secrets")) || resources.contains(&json!("was-secrets")) {
                let renamed = resources.iter().map(|it| match it.as_str() {
                    Some("secrets" | "was-secrets") => json!(if may { "secrets" } else { "was-secrets" }),
                    _ => it.clone(),
                });
                rule["resources"] = renamed.collect();
            }
        }
        let patch = Patch::Merge(json!({"rules": rules}));
        roles.patch(&name, &PatchParams::default(), &patch).await.context("change the operator's rights")?;
        // The API server applies a changed role only after a moment.
        let account = format!("system:serviceaccount:{}:recif-operator", self.system.name);
        let path = format!("/api/v1/namespaces/{}/secrets", self.tenants[1].name);
        poll(REPORT_TIMEOUT, "the right as it was set", || async {
            let request = http::Request::get(&path).header("impersonate-user", &account).body(Vec::new())?;
            let allowed = self.system.env.client.request::<Value>(request).await.is_ok();
            Ok((allowed == may).then_some(()))
        })
        .await
    }

    /// Deletes the tenants, and then the installation.
    async fn remove(&self) -> Result<()> {
        let b = &self.tenants[1];
        let env = &self.system.env;
        if b.find(AGENT, "one").await?.is_some() {
            b.delete(AGENT, "one").await?;
            b.until_gone(AGENT, "one", START_TIMEOUT).await?;
            b.until(ROLE_BINDING, "recif-operator", REPORT_TIMEOUT, "is let go", |it| !is_held(it)).await?;
        }
        for part in PARTS {
            if self.system.find(DEPLOYMENT, part).await?.is_some() {
                self.system.delete(DEPLOYMENT, part).await?;
            }
        }
        for account in self.system.list(SERVICE_ACCOUNT).await? {
            if PARTS.contains(&account.name_any().as_str()) {
                self.system.delete(SERVICE_ACCOUNT, &account.name_any()).await?;
            }
        }
        for kind in [CLUSTER_ROLE_BINDING, CLUSTER_ROLE] {
            for object in env.all(kind).list(&Default::default()).await?.items {
                if object.name_any().ends_with(&self.unique_name("")) {
                    env.all(kind).delete(&object.name_any(), &Default::default()).await?;
                }
            }
        }
        for tenant in &self.tenants {
            if env.all(NAMESPACE).get_opt(&tenant.name).await?.is_some() {
                tenant.delete_itself().await?;
            }
        }
        Ok(())
    }
}

fn is_held(binding: &Object) -> bool {
    binding.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}
