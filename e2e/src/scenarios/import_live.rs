//! Tests `recif import --live`: the objects of a cluster become what they become as files.
//!
//! The kinds of the sources are defined for the scenario, with as little of a schema as the API server takes.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::import::{fixture, import};
use crate::{
    manifests::documents,
    namespace::{Namespace, START_TIMEOUT},
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const ALONE: &[Scenario] = scenarios!(Serial:
    what_a_cluster_has_becomes_what_its_files_become,
);

/// Sources whose group is not ours.
const FIXTURES: [&str; 3] = ["kagent", "genkit", "krypton"];
/// Longest time in which all definitions are served, or gone.
const DEFINED: Duration = Duration::from_secs(120);

/// Group, kind, plural, and the versions, of which the first one is stored.
type DefinedKind = (&'static str, &'static str, &'static str, &'static [&'static str]);

/// Kinds of these sources.
const KINDS: [DefinedKind; 19] = [
    ("kagent.dev", "ModelConfig", "modelconfigs", &["v1alpha2", "v1alpha1"]),
    ("kagent.dev", "ModelProviderConfig", "modelproviderconfigs", &["v1alpha2"]),
    ("kagent.dev", "Agent", "agents", &["v1alpha2", "v1alpha1"]),
    ("kagent.dev", "SandboxAgent", "sandboxagents", &["v1alpha2"]),
    ("kagent.dev", "ScheduledRun", "scheduledruns", &["v1alpha2"]),
    ("kagent.dev", "RemoteMCPServer", "remotemcpservers", &["v1alpha2"]),
    ("kagent.dev", "MCPServer", "mcpservers", &["v1alpha1"]),
    ("kagent.dev", "ToolServer", "toolservers", &["v1alpha1"]),
    ("kagent.dev", "Memory", "memories", &["v1alpha1"]),
    ("genkit.dev", "PluginConfig", "pluginconfigs", &["v1alpha1"]),
    ("genkit.dev", "Model", "models", &["v1alpha1"]),
    ("genkit.dev", "Prompt", "prompts", &["v1alpha1"]),
    ("genkit.dev", "Tool", "tools", &["v1alpha1"]),
    ("genkit.dev", "Flow", "flows", &["v1alpha1"]),
    ("genkit.dev", "FlowSet", "flowsets", &["v1alpha1"]),
    ("genkit.dev", "Dataset", "datasets", &["v1alpha1"]),
    ("genkit.dev", "Eval", "evals", &["v1alpha1"]),
    ("krypton.ai", "Agent", "agents", &["v1alpha1"]),
    ("krypton.ai", "Model", "models", &["v1alpha1"]),
];

async fn what_a_cluster_has_becomes_what_its_files_become(ns: Namespace) -> Result<()> {
    let result = read_back(&ns).await;
    let deleted = on_definitions(&ns, &["delete", "--ignore-not-found"]).await;
    let folder = cache(&ns);
    if folder.exists() {
        fs::remove_dir_all(&folder).context("remove the cache of kubectl")?;
    }
    result.and(deleted)
}

async fn read_back(ns: &Namespace) -> Result<()> {
    let definitions = list(KINDS.iter().map(definition).collect());
    kubectl(ns, &["apply", "--server-side", "--filename", "-"], &definitions).await?;
    on_definitions(ns, &["wait", "--for=condition=Established"]).await?;
    let texts = FIXTURES.iter().map(|name| fixture(ns, name)).collect::<Result<Vec<_>>>()?;
    let mut objects = documents(&texts.join("\n---\n"))?;
    objects.retain(is_stored);
    let all = list(objects.clone());
    poll(START_TIMEOUT, "the objects of the sources", || async {
        kubectl(ns, &["apply", "--server-side", "--filename", "-"], &all).await.map(Some)
    })
    .await?;

    let live = import(ns, &["--live", "-n", &ns.name, "-o", "json"], String::new()).await?;
    ensure!(live.code == 0, "{live:?}");
    // No Secret is read of a cluster.
    objects.retain(|object| object["kind"] != "Secret");
    let files = import(ns, &["-o", "json"], serde_json::to_string_pretty(&list(objects))?).await?;
    ensure!(files.code == 0, "{files:?}");
    let (of_cluster, of_files) = (items(&live.stdout)?, items(&files.stdout)?);
    for (one, other) in of_cluster.iter().zip(&of_files) {
        ensure!(one == other, "of the cluster:\n{one:#}\nof the files:\n{other:#}");
    }
    let numbers = (of_cluster.len(), of_files.len());
    ensure!(numbers.0 == numbers.1 && numbers.0 > 20, "{numbers:?} objects of the cluster and of the files");
    ensure!(of_cluster.iter().all(|object| object["kind"] != "Secret"), "a Secret was read");
    let first = "its Deployment and Service of this name are there: delete kagent.dev's object first, or ours stays in";
    let first = format!("todo Agent {}/seller: {first} NameConflict", ns.name);
    ensure!(live.stderr.lines().any(|line| line == first), "{}", live.stderr);
    let printed: Value = serde_json::from_str(&live.stdout)?;
    kubectl(ns, &["apply", "--dry-run=server", "--filename", "-"], &printed).await?;

    let krypton = import(ns, &["--live", "-n", &ns.name, "--from", "krypton"], String::new()).await?;
    ensure!(krypton.code == 0 && krypton.stderr.contains("krypton: 4 objects in, "), "{krypton:?}");
    let strict = import(ns, &["--live", "-n", &ns.name, "--strict"], String::new()).await?;
    ensure!(strict.code == 8 && strict.stdout.is_empty(), "{strict:?}");
    Ok(())
}

/// Returns the definition of a kind that takes any fields.
fn definition((group, kind, plural, versions): &DefinedKind) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let versions = versions
        .iter()
        .enumerate()
        .map(|(place, version)| json!({"name": version, "served": true, "storage": place == 0, "schema": schema}));
    let names = json!({
        "kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase(),
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": names, "versions": versions.collect::<Vec<_>>(),
        },
    })
}

/// Tells whether an object is of a source or of the core API, and has a name that the API server takes.
fn is_stored(object: &Value) -> bool {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let group_of_object = version.split_once('/').map(|(group, _)| group);
    let is_of_source = KINDS.iter().any(|(group, ..)| group_of_object == Some(*group));
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    (is_of_source || version == "v1") && !name.contains('_')
}

fn list(items: Vec<Value>) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

/// Returns the objects that were printed, without ConfigMaps: those of files are printed as they are.
fn items(printed: &str) -> Result<Vec<Value>> {
    let printed: Value = serde_json::from_str(printed).context("read what was printed")?;
    let items = printed["items"].as_array().context("no items")?;
    Ok(items.iter().filter(|object| object["kind"] != "ConfigMap").cloned().collect())
}

/// Returns the folder in which kubectl remembers the kinds of the cluster. That of the other scenarios must not: it would
/// take `agents` for those of another group.
fn cache(ns: &Namespace) -> PathBuf {
    std::env::temp_dir().join(format!("{}-kubectl", ns.name))
}

async fn kubectl(ns: &Namespace, arguments: &[&str], input: &Value) -> Result<String> {
    let cache = format!("--cache-dir={}", cache(ns).display());
    let arguments = [arguments, &[cache.as_str()]].concat();
    ns.env.kubectl_with(&arguments, input.to_string()).await
}

/// Runs kubectl with these arguments on all definitions.
async fn on_definitions(ns: &Namespace, arguments: &[&str]) -> Result<()> {
    let cache = format!("--cache-dir={}", cache(ns).display());
    let names = KINDS.map(|(group, _, plural, _)| format!("customresourcedefinition/{plural}.{group}"));
    let more = ["--timeout=100s", cache.as_str()].into_iter().chain(names.iter().map(String::as_str));
    let arguments: Vec<&str> = arguments.iter().copied().chain(more).collect();
    ns.env.kubectl_within(DEFINED, &arguments).await.map(drop)
}
