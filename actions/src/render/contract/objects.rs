//! Renders the objects that store the files, and the projected volume that mounts them.

use std::collections::BTreeMap;

use kube::Resource;
use serde_json::{Value, json};

use super::{
    FlowContract, FlowFiles, FlowPlacement,
    files::{MOUNT, fallback_folder, folder},
};
use crate::{
    ports::{ChildKind, ChildManifest},
    render::{labels::child, workload::base64},
};

impl FlowContract {
    /// Returns the ConfigMaps and Secrets, in the order of the flows.
    pub(in crate::render) fn children<K: Resource<DynamicType = ()>>(
        &self,
        owner: &K,
        label: &str,
    ) -> Vec<ChildManifest> {
        let config_map = |name: String, files: &BTreeMap<String, String>| {
            child(owner, label, ChildKind::ConfigMap, name, json!({ "data": files }))
        };
        let mut children = Vec::new();
        if let Some(manifest) = self.manifest() {
            let files = BTreeMap::from([("manifest.json".to_owned(), manifest)]);
            children.push(config_map(format!("{}-manifest", self.name), &files));
        }
        for flow in &self.flows {
            let prefix = self.prefix(flow);
            let config = flow.config.iter().map(|config| ("config.json".to_owned(), config.clone())).collect();
            children.push(config_map(format!("{prefix}-prompts"), &flow.prompts));
            children.push(config_map(format!("{prefix}-tools"), &flow.plain_tools));
            children.push(config_map(format!("{prefix}-config"), &config));
            if !flow.secret_tools.is_empty() {
                let data = json!({ "data": base64(&flow.secret_tools) });
                children.push(child(owner, label, ChildKind::Secret, format!("{prefix}-tools"), data));
            }
        }
        children
    }

    /// Returns the projected volume with all files, and its mount path.
    pub(in crate::render) fn volume(&self) -> (Value, &'static str) {
        let mut sources = Vec::new();
        if self.placement == FlowPlacement::InSet {
            sources.push(source("configMap", &format!("{}-manifest", self.name), &[file("", "manifest.json")]));
        }
        let mut credentials: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for flow in &self.flows {
            let prefix = self.prefix(flow);
            let base = if self.placement == FlowPlacement::InSet { folder(&flow.name) + "/" } else { String::new() };
            let config = flow.config.iter().map(|_| file(&base, "config.json")).collect::<Vec<_>>();
            let files = |below: &str, files: &BTreeMap<String, String>| -> Vec<Value> {
                files.keys().map(|name| file(&format!("{base}{below}/"), name)).collect()
            };
            for (kind, suffix, items) in [
                ("configMap", "prompts", files("prompts", &flow.prompts)),
                ("configMap", "tools", files("tools", &flow.plain_tools)),
                ("secret", "tools", files("tools", &flow.secret_tools)),
                ("configMap", "config", config),
            ] {
                // A source without items would project every key of the object.
                if !items.is_empty() {
                    sources.push(source(kind, &format!("{prefix}-{suffix}"), &items));
                }
            }
            if let Some(found) = flow.credentials.as_ref().filter(|_| self.placement == FlowPlacement::InSet) {
                let items = credentials.entry(&found.secret).or_default();
                items.extend(found.values.keys().map(|key| file(&format!("{base}credentials/"), key)));
            }
            for (plugin, found) in &flow.fallback_credentials {
                let items = credentials.entry(&found.secret).or_default();
                let folder = fallback_folder(&flow.name, plugin) + "/";
                items.extend(found.values.keys().map(|key| file(&folder, key)));
            }
        }
        let secrets = credentials.iter().filter(|(_, items)| !items.is_empty());
        sources.extend(secrets.map(|(secret, items)| source("secret", secret, items)));
        (json!({ "name": "contract", "projected": { "sources": sources } }), MOUNT)
    }

    /// Returns the prefix of the names of a flow's objects.
    fn prefix(&self, flow: &FlowFiles) -> String {
        match self.placement {
            FlowPlacement::Alone => self.name.clone(),
            FlowPlacement::InSet => format!("{}-{}", self.name, flow.name),
        }
    }
}

fn source(kind: &str, name: &str, items: &[Value]) -> Value {
    json!({ kind: { "name": name, "items": items } })
}

/// Returns the projection of a key to a file below `folder`.
fn file(folder: &str, key: &str) -> Value {
    json!({ "key": key, "path": format!("{folder}{key}") })
}
