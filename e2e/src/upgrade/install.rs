//! Installation of one checkout: its CRDs, its programs, and its `recif`.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, ensure};
use kube::{ResourceExt as _, runtime::watcher::Config};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::{
    env::{Env, output, run_to_exit},
    kinds::{DEFINITION, DEPLOYMENT, POD},
    manifests::documents,
    namespace::Namespace,
    object::{ObjectExt, ObjectsByName},
    operator,
    watch::await_condition,
};

/// Longest time for the rollout of a Deployment, next to the load on a small machine.
const ROLLOUT: Duration = Duration::from_secs(180);
/// Longest time until the old Pods are gone: longer than their grace period.
const GONE: Duration = Duration::from_secs(120);

/// Programs and manifests of a checkout.
#[derive(Debug)]
pub(super) struct Install<'a> {
    /// Its name in messages.
    pub(super) name: &'static str,
    /// Folder of the checkout.
    pub(super) root: PathBuf,
    /// Its images, each as `recif.local/NAME:TAG`.
    pub(super) images: &'a [String],
    /// Its `recif`.
    pub(super) recif: PathBuf,
}

impl Install<'_> {
    /// Applies its CRDs and waits until the API server serves them.
    pub(super) async fn apply_crds(&self, env: &Env) -> Result<()> {
        let (crds, _) = self.manifests(env).await?;
        let names: Vec<String> =
            crds.iter().filter_map(|crd| Some(format!("crd/{}", crd["metadata"]["name"].as_str()?))).collect();
        apply(env, crds).await.with_context(|| format!("apply the {} CRDs", self.name))?;
        let mut wait = vec!["wait", "--for", "condition=Established", "--timeout", "30s"];
        wait.extend(names.iter().map(String::as_str));
        env.kubectl(&wait).await.map(drop)
    }

    /// Applies everything else, and waits until its programs alone run and one of them leads.
    pub(super) async fn apply(&self, env: &Env) -> Result<()> {
        let (_, others) = self.manifests(env).await?;
        apply(env, others).await.with_context(|| format!("apply the {} programs", self.name))?;
        let timeout = format!("{}s", ROLLOUT.as_secs());
        for deployment in env.within(operator::NAMESPACE, DEPLOYMENT).list(&Default::default()).await? {
            let name = format!("deployment/{}", deployment.name_any());
            let status: &[&str] = &["-n", operator::NAMESPACE, "rollout", "status", &name, "--timeout", &timeout];
            env.kubectl_within(ROLLOUT + Duration::from_secs(10), status).await?;
        }
        let images = self.images;
        let alone = |pods: &ObjectsByName| {
            let mut images_of = pods.values().map(|pod| pod.text("/spec/containers/0/image"));
            images_of.all(|image| images.iter().any(|it| it == image)).then_some(())
        };
        let what = format!("Pods of the {} programs alone", self.name);
        await_condition(env.within(operator::NAMESPACE, POD), Config::default(), GONE, &what, alone).await?;
        let pods: Vec<String> = operator::pods(env).await?.iter().map(ObjectExt::id).collect();
        let leads = |holder: &str| pods.iter().any(|pod| pod == holder);
        operator::await_leader(env, Duration::from_secs(30), "one of its operators that leads", leads).await.map(drop)
    }

    /// Checks that no check of its `recif doctor` fails.
    pub(super) async fn check_by_doctor(&self, ns: &Namespace) -> Result<()> {
        let mut doctor = Command::new(&self.recif);
        doctor.args(["doctor", "-n", &ns.name]);
        let ended = run_to_exit(doctor, None).await?;
        ensure!(ended.code == 0, "recif doctor of the {} programs: {ended:?}", self.name);
        Ok(())
    }

    /// Returns the CRDs of `config/default`, and its other manifests, with the images of this installation.
    async fn manifests(&self, env: &Env) -> Result<(Vec<Value>, Vec<Value>)> {
        let mut build = env.kubectl_command();
        build.arg("kustomize").arg(self.root.join("config/default"));
        let mut text = output(build, None, Duration::from_secs(60)).await?;
        for image in self.images {
            let (name, _) = image.rsplit_once(':').with_context(|| format!("{image} has no tag"))?;
            text = text.replace(&format!("{name}:dev"), image);
        }
        let (crds, mut others): (Vec<Value>, Vec<Value>) =
            documents(&text)?.into_iter().partition(|document| document["kind"] == DEFINITION.kind);
        self.name_agent_image(&mut others)?;
        Ok((crds, others))
    }

    /// Sets the image that Agents run that name none: the cluster's alias for it has one meaning only.
    fn name_agent_image(&self, manifests: &mut [Value]) -> Result<()> {
        let runner = self.images.iter().find(|image| image.contains("/runner:")).context("no image of the runner")?;
        let is_operator = |it: &&mut Value| it["kind"] == DEPLOYMENT.kind && it["metadata"]["name"] == operator::NAME;
        let deployment = manifests.iter_mut().find(is_operator).context("config/default has no operator")?;
        let env = deployment.pointer_mut("/spec/template/spec/containers/0/env").and_then(Value::as_array_mut);
        let env = env.context("the operator has no variables")?;
        env.retain(|variable| variable["name"] != "RECIF_AGENT_IMAGE");
        env.push(json!({"name": "RECIF_AGENT_IMAGE", "value": runner}));
        Ok(())
    }
}

async fn apply(env: &Env, manifests: Vec<Value>) -> Result<()> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": manifests}).to_string();
    env.kubectl_with(&["apply", "--server-side", "--force-conflicts", "--filename", "-"], list).await.map(drop)
}
