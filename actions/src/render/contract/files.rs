//! Renders `config.json` and `manifest.json`. The order of their keys is that of the structs.

use serde::Serialize;

use super::parts::{FlowModel, FlowPlacement};
use crate::render::provider::{DefaultModel, Fallback, Plugin};

/// Returns the folder of a flow of a set, below `/genkit`.
pub(super) fn folder(flow: &str) -> String {
    format!("flows/{flow}")
}

/// Returns the folder with the credentials of a fallback's PluginConfig, below `/genkit`.
pub(super) fn fallback_folder(flow: &str, plugin: &str) -> String {
    format!("{}/fallbacks/{plugin}", folder(flow))
}

/// Renders `config.json` of a flow.
pub(super) fn config(model: &FlowModel, entrypoint: &str, flow: &str, place: FlowPlacement) -> String {
    let first = model.plugin_name();
    let fallbacks = model.fallbacks.iter().map(|fallback| {
        let folder = (place == FlowPlacement::InSet).then(|| fallback_folder(flow, fallback.plugin_name()));
        Fallback::new(fallback, first, folder.map(|folder| format!("{MOUNT}/{folder}")))
    });
    let fallbacks = fallbacks.collect();
    let FlowModel { model, plugin, credentials, .. } = model;
    let files = credentials.as_ref().filter(|_| place == FlowPlacement::InSet);
    // As variables, only the declared keys: a Secret may have keys that are no valid names of variables.
    let declared = || plugin.credential_keys.iter().map(String::as_str).collect::<Vec<_>>();
    pretty(&FlowConfigFile {
        default_model: DefaultModel::new(model),
        plugin: Plugin::new(&model.plugin_config_ref.name, plugin),
        fallbacks,
        entrypoint,
        credentials_dir: files.map(|_| format!("{MOUNT}/{}/credentials", folder(flow))),
        credential_keys: match files {
            Some(found) => Some(found.values.keys().map(String::as_str).collect()),
            None => Some(declared()).filter(|keys| credentials.is_some() && !keys.is_empty()),
        },
    })
}

/// Mount path of the files.
pub(super) const MOUNT: &str = "/genkit";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FlowConfigFile<'a> {
    default_model: DefaultModel<'a>,
    plugin: Plugin<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fallbacks: Vec<Fallback<'a>>,
    entrypoint: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    credentials_dir: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    credential_keys: Option<Vec<&'a str>>,
}

/// Renders `manifest.json` of a set: the name, the entry prompt and the folder of each flow, which is below `root`.
pub(super) fn manifest<'a>(flows: impl Iterator<Item = (&'a str, &'a str)>, root: &str) -> String {
    #[derive(Serialize)]
    struct SetManifest<'a> {
        flows: Vec<SetEntry<'a>>,
    }
    #[derive(Serialize)]
    struct SetEntry<'a> {
        name: &'a str,
        entrypoint: &'a str,
        dir: String,
    }
    let entry = |(name, entrypoint)| SetEntry { name, entrypoint, dir: format!("{root}{}", folder(name)) };
    pretty(&SetManifest { flows: flows.map(entry).collect() })
}

/// Returns JSON, indented by two spaces.
pub(super) fn pretty(value: &impl Serialize) -> String {
    // Strings, numbers and JSON values under string keys: this cannot fail.
    serde_json::to_string_pretty(value).unwrap_or_default()
}
