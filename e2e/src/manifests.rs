//! Manifests as users write them.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::kinds::{AGENT, FLOW, FLOW_SET, KubeKind, MODEL, PLUGIN_CONFIG, PROMPT, SECRET, TOOL};

/// Image that exits at once with code 1.
pub(crate) const CRASH: &str = "recif.local/crash:dev";
/// Image of the runner whose `USER` is a name instead of a number.
pub(crate) const NAMED_USER: &str = "recif.local/named-user:dev";

/// Image of the test workload (`src/bin/workload`).
pub(crate) const WORKLOAD: &str = "recif.local/workload:dev";

/// Returns an agent with the test workload's image and additional fields in its spec.
pub(crate) fn workload(name: &str, fields: Value) -> Value {
    let mut all = json!({"image": WORKLOAD});
    merge(&mut all, fields);
    agent(name, all)
}

/// Returns the smallest agent that runs, with additional fields in its spec.
pub(crate) fn agent(name: &str, fields: Value) -> Value {
    let mut spec = json!({"name": name, "framework": "corail"});
    merge(&mut spec, fields);
    object(AGENT, name, spec)
}

/// Returns a builtin tool, which has no dependencies, with additional fields in its spec.
pub(crate) fn tool(name: &str, fields: Value) -> Value {
    let mut spec = json!({"name": name, "type": "builtin"});
    merge(&mut spec, fields);
    object(TOOL, name, spec)
}

/// Returns an HTTP tool whose header must be stored in a Secret.
pub(crate) fn http_tool(name: &str) -> Value {
    let fields = json!({
        "type": "http", "endpoint": "http://weather.example/now", "method": "GET",
        "headers": {"Authorization": "Bearer hunter2"},
    });
    tool(name, fields)
}

/// Returns a flow with these prompts and the model `echo`, with additional fields in its spec.
pub(crate) fn flow(name: &str, prompts: &[&str], fields: Value) -> Value {
    let mut spec = definition(prompts);
    merge(&mut spec, fields);
    object(FLOW, name, spec)
}

/// Returns a set of flows, each with a name and prompts, with the model `echo`.
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

/// Returns a Prompt with a Dotprompt text.
pub(crate) fn prompt(name: &str, content: &str) -> Value {
    object(PROMPT, name, json!({"content": content}))
}

/// Returns a model of the stub provider with this PluginConfig.
pub(crate) fn model(name: &str, plugin_config: &str) -> Value {
    let spec = json!({"provider": "stub", "model": name, "pluginConfigRef": {"name": plugin_config}});
    object(MODEL, name, spec)
}

/// Returns a PluginConfig of the stub provider, with additional fields in its spec.
pub(crate) fn plugin_config(name: &str, fields: Value) -> Value {
    let mut spec = json!({"type": "stub"});
    merge(&mut spec, fields);
    object(PLUGIN_CONFIG, name, spec)
}

/// Returns a Secret with these texts.
pub(crate) fn secret(name: &str, texts: Value) -> Value {
    json!({"apiVersion": "v1", "kind": SECRET.kind, "metadata": {"name": name}, "stringData": texts})
}

/// Returns a ResourceQuota with one limit.
pub(crate) fn quota(what: &str, limit: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "limit"}, "spec": {"hard": {what: limit}},
    })
}

/// Returns an object of a kind.
pub(crate) fn object(kind: KubeKind, name: &str, spec: Value) -> Value {
    json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": name}, "spec": spec})
}

fn merge(into: &mut Value, fields: Value) {
    if let (Value::Object(into), Value::Object(fields)) = (into, fields) {
        into.extend(fields);
    }
}

/// Returns the YAML files of a folder with their texts, sorted by path.
pub(crate) fn files(folder: &Path) -> Result<Vec<(PathBuf, String)>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    paths.sort();
    paths.into_iter().map(|path| Ok((path.clone(), text(&path)?))).collect()
}

/// Returns the text of a file.
pub(crate) fn text(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}

/// Returns the documents of a YAML text.
pub(crate) fn documents(text: &str) -> Result<Vec<Value>> {
    let documents = serde_yaml::Deserializer::from_str(text).map(Value::deserialize);
    let documents: Vec<Value> = documents.collect::<Result<_, _>>().context("read YAML")?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}
