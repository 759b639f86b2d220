//! Dry runs of the sample agent: its Deployment and Pod, made by the renderer of the operator.

use std::collections::BTreeMap;

use actions::render::{
    AGENT_LABEL, AgentImages, AgentParts, Namespaces, PinnedProxy, PodSecurity, RenderSettings, agent_config,
    agent_workload_children, child_labels,
};
use crds::{Agent, agent::DEFAULT_IMAGE};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::{
    api::{ApiReader, Unread, lacks_right, unread},
    parts::Part,
};

/// Name of the sample agent.
const NAME: &str = "my-agent";
/// The agent of the first steps.
const SAMPLE: &str = include_str!("../../../../../config/samples/agent.yaml");

/// Result of a dry run.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::doctor) enum DryRun {
    /// The API server would create this.
    Accepted(Box<Value>),
    /// It would not, for this reason.
    Refused(String),
    /// It was not asked.
    Unread(Unread),
}

/// Dry runs, and what was sent.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::doctor) struct DryRuns {
    /// The Deployment.
    pub deployment: DryRun,
    /// The Pod.
    pub pod: DryRun,
    /// The Pod that was sent.
    pub sent: Value,
}

/// Images of the sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::doctor) struct SampleImages {
    agent: String,
    proxy: String,
}

impl SampleImages {
    /// Returns the images that the operator gives; those of a local build where there is none.
    pub(super) fn of(operator: Option<&Part>) -> Self {
        let image = |flag: &str, variable: &str| {
            let set = operator.and_then(|part| part.setting(flag, variable));
            set.filter(|image| !image.is_empty()).map(str::to_owned)
        };
        Self {
            agent: image("--agent-image", "RECIF_AGENT_IMAGE").unwrap_or_else(|| DEFAULT_IMAGE.to_owned()),
            proxy: image("--proxy-image", "RECIF_PROXY_IMAGE").unwrap_or_else(|| "recif.local/proxy:dev".to_owned()),
        }
    }
}

/// Returns the labels of the sample's Pods.
pub(in crate::doctor) fn sample_labels() -> BTreeMap<String, String> {
    child_labels(AGENT_LABEL, NAME)
}

/// Returns the labels of our workloads' Pods, and those of the sample agent.
pub(super) async fn workload_labels(api: &ApiReader<'_>, namespace: &str) -> Vec<BTreeMap<String, String>> {
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    let ours = "&labelSelector=app.kubernetes.io%2Fmanaged-by%3Drecif-operator";
    let pods: Vec<Pod> = api.list("list pods", &path, ours).await.ok().flatten().unwrap_or_default();
    pods.into_iter().filter_map(|pod| pod.metadata.labels).chain([sample_labels()]).collect()
}

/// Returns the Deployment of the sample agent, as the operator renders it, under a generated name and without owner.
pub(in crate::doctor) fn sample_deployment(namespace: &str, images: &SampleImages) -> Result<Value, String> {
    let mut agent: Agent = serde_yaml::from_str(SAMPLE).map_err(|error| error.to_string())?;
    agent.metadata.namespace = Some(namespace.to_owned());
    agent.metadata.uid = Some("00000000-0000-0000-0000-000000000000".to_owned());
    let settings = RenderSettings {
        operator_namespace: namespace.to_owned(),
        cluster_domain: "cluster.local".to_owned(),
        database_url: None,
        database_namespaces: Namespaces::All,
        ollama_base_url: None,
        agent_image: images.agent.clone(),
        runner_image: images.agent.clone(),
        proxy_image: images.proxy.clone(),
        telemetry: BTreeMap::new(),
        network_policies: true,
        cluster_cidrs: Vec::new(),
        pod_security: PodSecurity::Baseline,
    };
    let config = agent_config(&agent, &AgentParts::default(), &settings).map_err(|error| error.to_string())?;
    let proxy = PinnedProxy { image: &images.proxy, caller_keys: Some(""), tells_ready: true, declares_port: true };
    let images = AgentImages { agent: &images.agent, proxy };
    let children = agent_workload_children(&agent, &config, images, Some(1)).map_err(|error| error.to_string())?;
    let deployment = children.into_iter().find(|child| child.body["kind"] == "Deployment");
    let mut body = deployment.ok_or("the sample has no Deployment")?.body;
    body["metadata"] = generated(&body["metadata"]["labels"]);
    Ok(body)
}

fn generated(labels: &Value) -> Value {
    json!({ "generateName": "recif-doctor-", "labels": labels })
}

/// Returns the Pod of a Deployment. The ServiceAccount of the agent does not exist, so it is that of the namespace.
fn pod_of(deployment: &Value) -> Value {
    let template = &deployment["spec"]["template"];
    let mut spec = template["spec"].clone();
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("serviceAccountName");
    }
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": generated(&template["metadata"]["labels"]), "spec": spec })
}

/// Sends the dry runs.
pub(super) async fn dry_runs(api: &ApiReader<'_>, namespace: &str, images: &SampleImages) -> DryRuns {
    let deployment = match sample_deployment(namespace, images) {
        Ok(deployment) => deployment,
        Err(why) => {
            let unread = DryRun::Unread(Unread::Failed(format!("the sample cannot be rendered: {why}")));
            return DryRuns { deployment: unread.clone(), pod: unread, sent: Value::Null };
        }
    };
    let sent = pod_of(&deployment);
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments?dryRun=All");
    let pods = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
    let (deployment, pod) = futures::join!(
        dry_run(api, "create deployments", &path, &deployment),
        dry_run(api, "create pods", &pods, &sent)
    );
    DryRuns { deployment, pod, sent }
}

async fn dry_run(api: &ApiReader<'_>, doing: &str, path: &str, body: &Value) -> DryRun {
    let asked = api.within(async { Ok(api.ask(doing, path, body).await) }).await;
    match asked {
        Ok(Ok(object)) => DryRun::Accepted(Box::new(object)),
        Ok(Err(error)) => match error.status() {
            Some(_) if !lacks_right(&error) => DryRun::Refused(error.cause()),
            _ => DryRun::Unread(unread(doing, &error)),
        },
        Err(why) => DryRun::Unread(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_is_what_the_operator_makes() {
        let images = SampleImages::of(None);
        let deployment = sample_deployment("team-a", &images).unwrap();
        let pod = pod_of(&deployment);
        assert_eq!(deployment["metadata"]["generateName"], "recif-doctor-");
        assert!(deployment["metadata"]["ownerReferences"].is_null() && pod["spec"]["serviceAccountName"].is_null());
        assert_eq!(pod["spec"]["initContainers"][0]["restartPolicy"], "Always");
        assert_eq!(pod["spec"]["containers"][0]["image"], "corail:latest");
        assert_eq!(pod["metadata"]["labels"], json!(sample_labels()));
    }
}
