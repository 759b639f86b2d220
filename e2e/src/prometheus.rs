//! Prometheus on the network of the cluster. It scrapes the Pods that the monitors of `config/monitoring` select, as the Prometheus
//! operator, which is not there, would have it do.

use std::{collections::BTreeMap, net::SocketAddr, path::Path, process::Stdio};

use anyhow::{Context as _, Result, ensure};
use kube::{ResourceExt as _, api::ListParams};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::{
    client::{ClientTarget, HttpClientConnection},
    env::Env,
    kinds::POD,
    manifests,
    namespace::Namespace,
    object::{Object, ObjectExt as _},
};

/// Address inside the cluster's network.
const ADDRESS: &str = "127.0.0.1:9099";

/// Prometheus that runs until it is dropped.
pub(crate) struct Prometheus {
    target: ClientTarget,
    _process: Child,
}

impl Prometheus {
    /// Starts it with the monitors of the repository, in a folder of the cluster.
    pub(crate) async fn start(ns: &Namespace) -> Result<Self> {
        let env = &ns.env;
        let folder = env.state().join("prometheus");
        let _ = tokio::fs::remove_dir_all(&folder).await;
        tokio::fs::create_dir_all(&folder).await?;
        let mut jobs = Vec::new();
        for monitor in manifests::documents(&manifests::text(&env.file("config/monitoring/scrape.yaml"))?)? {
            jobs.push(job(ns, &monitor).await?);
        }
        let config = json!({ "global": { "scrape_interval": "1s" }, "scrape_configs": jobs });
        // JSON is YAML.
        tokio::fs::write(folder.join("prometheus.yml"), config.to_string()).await?;
        let process = spawn(env, &folder).await?;
        let address: SocketAddr = ADDRESS.parse()?;
        let target = ClientTarget { route: "Prometheus", address, prefix: String::new(), headers: String::new() };
        Ok(Self { target, _process: process })
    }

    /// Returns the series that a query finds now.
    pub(crate) async fn query(&self, env: &Env, query: &str) -> Result<Vec<Value>> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let (target, path) = (self.target.clone(), format!("/api/v1/query?query={encoded}"));
        let ask = async move { HttpClientConnection::request(&target, "GET", &path, "").await };
        let answer = env.netns().await?.run(ask).await?;
        ensure!(answer.status == 200, "{query}: {answer:?}");
        let mut answer: Value = serde_json::from_str(&answer.text)?;
        let Value::Array(series) = answer["data"]["result"].take() else { return Ok(Vec::new()) };
        Ok(series)
    }
}

/// Starts the program that `hack/prometheus` unpacks.
async fn spawn(env: &Env, folder: &Path) -> Result<Child> {
    let program = env.prepared("hack/prometheus", &[]).await?.join("prometheus");
    let room = tokio::fs::read_to_string(env.state().join("room")).await?;
    let pid = room.split_whitespace().next().context("the cluster has no network of its own")?;
    let log = std::fs::File::create(folder.join("log"))?;
    let mut command = Command::new("nsenter");
    command.args(["-t", pid, "-n", "--"]).arg(program);
    command.arg(format!("--config.file={}", folder.join("prometheus.yml").display()));
    command.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
    command.arg(format!("--web.listen-address={ADDRESS}"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true);
    command.spawn().context("start prometheus")
}

/// Returns the scrape job of a ServiceMonitor or PodMonitor, with the Pods that are there now. The Services that a ServiceMonitor selects
/// have the labels of their Pods, and the names of their ports.
async fn job(ns: &Namespace, monitor: &Value) -> Result<Value> {
    let (spec, name) = (&monitor["spec"], monitor["metadata"]["name"].as_str().context("a monitor without a name")?);
    let endpoint = [&spec["endpoints"][0], &spec["podMetricsEndpoints"][0]].into_iter().find(|found| found.is_object());
    let endpoint = endpoint.with_context(|| format!("{name} has no endpoint"))?;
    let labels: BTreeMap<String, String> = serde_json::from_value(spec["selector"]["matchLabels"].clone())?;
    let selector: Vec<_> = labels.iter().map(|(label, value)| format!("{label}={value}")).collect();
    let parameters = ListParams::default().labels(&selector.join(","));
    let pods = match spec["namespaceSelector"]["any"] == true {
        true => ns.env.within(&ns.name, POD),
        false => ns.env.within(monitor["metadata"]["namespace"].as_str().unwrap_or_default(), POD),
    };
    let pods = pods.list(&parameters).await.with_context(|| format!("list the Pods of {name}"))?;
    let targets: Vec<Value> = pods.items.iter().filter_map(|pod| scrape_target(pod, endpoint)).collect();
    ensure!(!targets.is_empty(), "{name} selects no Pod that runs");
    let relabelings = endpoint["relabelings"].as_array().into_iter().flatten().map(snake_case);
    Ok(json!({
        "job_name": name,
        "honor_labels": endpoint["honorLabels"] == true,
        "metrics_path": endpoint["path"].as_str().unwrap_or("/metrics"),
        "static_configs": targets,
        "relabel_configs": relabelings.collect::<Vec<_>>(),
    }))
}

/// Returns the address of the port that an endpoint names, with the labels that service discovery gives a Pod.
fn scrape_target(pod: &Object, endpoint: &Value) -> Option<Value> {
    let containers = ["/spec/containers", "/spec/initContainers"].map(|list| pod.at(list).as_array());
    let mut ports = containers.into_iter().flatten().flatten().filter_map(|found| found["ports"].as_array()).flatten();
    let port = ports.find(|port| port["name"] == endpoint["port"])?["containerPort"].as_u64()?;
    let ip = Some(pod.text("/status/podIP")).filter(|ip| !ip.is_empty())?;
    let mut labels = json!({ "namespace": pod.namespace()?, "pod": pod.name_any() });
    for (label, value) in pod.labels() {
        let label: String = label.chars().map(|letter| if letter.is_alphanumeric() { letter } else { '_' }).collect();
        labels[format!("__meta_kubernetes_pod_label_{label}")] = value.as_str().into();
    }
    Some(json!({ "targets": [format!("{ip}:{port}")], "labels": labels }))
}

/// Returns a relabeling with the names of Prometheus' own configuration.
fn snake_case(relabeling: &Value) -> Value {
    let names = [
        ("sourceLabels", "source_labels"),
        ("targetLabel", "target_label"),
        ("regex", "regex"),
        ("replacement", "replacement"),
    ];
    let fields = names.iter().filter(|(theirs, _)| !relabeling[*theirs].is_null());
    fields.map(|(theirs, ours)| ((*ours).to_owned(), relabeling[*theirs].clone())).collect()
}
