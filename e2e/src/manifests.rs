//! Manifests as users write them.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::kinds::{AGENT, FLOW, FLOW_SET, KubeKind, MODEL, PLUGIN_CONFIG, PROMPT, SECRET, TOOL};

/// An image that ends at once with exit code 1.
pub(crate) const CRASH: &str = "recif.local/crash:dev";
/// The runner in an image whose user is a name.
pub(crate) const NAMED_USER: &str = "recif.local/named-user:dev";

/// A workload that does what a test tells it to (`src/bin/workload`).
pub(crate) const WORKLOAD: &str = "recif.local/workload:dev";

/// An agent that is that workload, with further fields of its spec.
pub(crate) fn workload(name: &str, fields: Value) -> Value {
    let mut all = json!({"image": WORKLOAD});
    merge(&mut all, fields);
    agent(name, all)
}

/// The shortest agent that runs, with further fields of its spec.
pub(crate) fn agent(name: &str, fields: Value) -> Value {
    let mut spec = json!({"name": name, "framework": "corail"});
    merge(&mut spec, fields);
    object(AGENT, name, spec)
}

/// A builtin tool, which needs nothing, with further fields of its spec.
pub(crate) fn tool(name: &str, fields: Value) -> Value {
    let mut spec = json!({"name": name, "type": "builtin"});
    merge(&mut spec, fields);
    object(TOOL, name, spec)
}

/// An http tool; its header has to be kept in a Secret.
pub(crate) fn http_tool(name: &str) -> Value {
    let fields = json!({
        "type": "http", "endpoint": "http://weather.example/now", "method": "GET",
        "headers": {"Authorization": "Bearer hunter2"},
    });
    tool(name, fields)
}

/// A flow with the prompts of these names and the model `echo`, with further fields of its spec.
pub(crate) fn flow(name: &str, prompts: &[&str], fields: Value) -> Value {
    let mut spec = definition(prompts);
    merge(&mut spec, fields);
    object(FLOW, name, spec)
}

/// A set of flows, each its name and its prompts, with the model `echo`.
pub(crate) fn flow_set(name: &str, flows: &[(&str, &[&str])], fields: Value) -> Value {
    let entry = |(name, prompts): &(&str, &[&str])| {
        let mut entry = definition(prompts);
        entry["name"] = json!(name);
        entry
    };
    let mut spec = json!({"flows": flows.iter().map(entry).collect::<Vec<_>>()});
    merge(&mut spec, fields);
    object(FLOW_SET, name, spec)
}

fn definition(prompts: &[&str]) -> Value {
    let prompts: Vec<Value> = prompts.iter().map(|name| json!({"promptRef": {"name": name}})).collect();
    json!({"prompts": prompts, "modelRef": {"name": "echo"}})
}

/// A Dotprompt text.
pub(crate) fn prompt(name: &str, content: &str) -> Value {
    object(PROMPT, name, json!({"content": content}))
}

/// A model of the stub, which has this PluginConfig.
pub(crate) fn model(name: &str, plugin_config: &str) -> Value {
    let spec = json!({"provider": "stub", "model": name, "pluginConfigRef": {"name": plugin_config}});
    object(MODEL, name, spec)
}

/// The stub as a provider, with further fields of its spec.
pub(crate) fn plugin_config(name: &str, fields: Value) -> Value {
    let mut spec = json!({"type": "stub"});
    merge(&mut spec, fields);
    object(PLUGIN_CONFIG, name, spec)
}

/// A Secret with these texts.
pub(crate) fn secret(name: &str, texts: Value) -> Value {
    json!({"apiVersion": "v1", "kind": SECRET.kind, "metadata": {"name": name}, "stringData": texts})
}

/// A quota with one limit.
pub(crate) fn quota(what: &str, limit: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "limit"}, "spec": {"hard": {what: limit}},
    })
}

/// An object of a kind.
pub(crate) fn object(kind: KubeKind, name: &str, spec: Value) -> Value {
    json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": name}, "spec": spec})
}

fn merge(into: &mut Value, fields: Value) {
    if let (Value::Object(into), Value::Object(fields)) = (into, fields) {
        into.extend(fields);
    }
}

/// The YAML files of a folder, in the order of their names, each with its text.
pub(crate) fn files(folder: &Path) -> Result<Vec<(PathBuf, String)>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    paths.sort();
    paths.into_iter().map(|path| Ok((path.clone(), text(&path)?))).collect()
}

/// The text of a file.
pub(crate) fn text(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}

/// The documents of a YAML text.
pub(crate) fn documents(text: &str) -> Result<Vec<Value>> {
    let documents = serde_yaml::Deserializer::from_str(text).map(Value::deserialize);
    let documents: Vec<Value> = documents.collect::<Result<_, _>>().context("read YAML")?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}
