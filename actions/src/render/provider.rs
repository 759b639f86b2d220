//! Renders how the provider of a model is reached: alike for agents (`CORAIL_MODEL_*`) and flows (`config.json`), for the first
//! model and its fallbacks.
//!
//! Values of Secrets become variables of the container, `MODEL_<PLUGINCONFIG>__<HEADER>`, and `…__TLS_CA` for CA certificates. The
//! credentials of a fallback are such variables too, `MODEL_<PLUGINCONFIG>__<KEY>`, because the first model has the usual names; in a
//! set they are files, as the first model's. A name in which the variable would not show every character, `a.b` or `a--b`, has a digest
//! after it, so that no two PluginConfigs share a variable.

use std::collections::BTreeMap;

use crds::{ModelSpec, PluginConfigSpec, provider::provider, tool_server_ref::short_digest};
use serde::Serialize;

use super::{
    CallTls, Credentials, FlowModel, HeaderFrom, HeaderVariable,
    headers::{AUTHORITIES, server_headers, server_variables, upper_snake},
    sorted::Sorted,
};

/// Model with its settings.
#[derive(Debug, Serialize)]
pub(super) struct DefaultModel<'a> {
    provider: &'a str,
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    info: Option<Sorted<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<Sorted<'a>>,
}

/// Provider with its settings.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Plugin<'a> {
    #[serde(rename = "type")]
    type_: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_config: Option<Sorted<'a>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) headers: BTreeMap<&'a str, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tls: Option<CallTls>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    passthrough: bool,
    /// In seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timeout: Option<u64>,
}

/// Model that answers where the first one cannot.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Fallback<'a> {
    model: DefaultModel<'a>,
    plugin: Plugin<'a>,
    /// Key to its variable, `$NAME`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    credentials: BTreeMap<&'a str, String>,
    /// Folder with one file per key.
    #[serde(skip_serializing_if = "Option::is_none")]
    credentials_dir: Option<String>,
    /// Names of those files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    credential_keys: Vec<&'a str>,
}

impl<'a> DefaultModel<'a> {
    pub(super) fn new(model: &'a ModelSpec) -> Self {
        Self {
            provider: &model.provider,
            model: &model.model,
            info: model.info.as_ref().map(Sorted),
            config: model.default_config.as_ref().map(Sorted),
        }
    }
}

impl<'a> Plugin<'a> {
    /// Renders the PluginConfig of this name.
    pub(super) fn new(name: &str, plugin: &'a PluginConfigSpec) -> Self {
        let prefix = prefix(name);
        Self {
            type_: &plugin.type_,
            region: plugin.region.as_deref(),
            extra_config: plugin.extra_config.as_ref().map(Sorted),
            headers: server_headers(|part| variable(&prefix, part), &plugin.headers_from).collect(),
            tls: plugin.tls.as_ref().and_then(|tls| CallTls::new(tls, &variable(&prefix, AUTHORITIES))),
            passthrough: plugin.passthrough,
            timeout: plugin
                .timeout()
                .map(|timeout| u64::try_from(timeout.as_millis().div_ceil(1000)).unwrap_or(u64::MAX)),
        }
    }
}

impl<'a> Fallback<'a> {
    /// Renders a fallback. `first` is the name of the first model's PluginConfig, whose server alone gets the caller's key; `folder`
    /// has the files of credentials, in a set.
    pub(super) fn new(fallback: &'a FlowModel, first: &str, folder: Option<String>) -> Self {
        let name = fallback.plugin_name();
        let mut plugin = Plugin::new(name, &fallback.plugin);
        plugin.passthrough &= name == first;
        let prefix = prefix(name);
        let keys = fallback.used_keys();
        let (variables, files) = if folder.is_none() { (keys, Vec::new()) } else { (Vec::new(), keys) };
        let credentials = variables.into_iter().map(|key| (key, format!("${}", variable(&prefix, key))));
        Self {
            model: DefaultModel::new(&fallback.model),
            plugin,
            credentials: credentials.collect(),
            credentials_dir: folder.filter(|_| !files.is_empty()),
            credential_keys: files,
        }
    }
}

impl FlowModel {
    /// Returns the name of its PluginConfig.
    pub(super) fn plugin_name(&self) -> &str {
        &self.model.plugin_config_ref.name
    }

    /// Returns the keys of its Secret that are used: those that are declared, else those that the protocol reads.
    pub(super) fn used_keys(&self) -> Vec<&str> {
        let keys = self.credentials.iter().flat_map(|credentials| credentials.values.keys()).map(String::as_str);
        let read = provider(&self.plugin.type_).filter(|_| self.plugin.credential_keys.is_empty());
        keys.filter(|key| read.is_none_or(|provider| provider.reads(key))).collect()
    }

    /// Returns its credentials, of the keys that are used.
    pub(super) fn used_credentials(&self) -> Option<Credentials> {
        let used = self.used_keys();
        let mut credentials = self.credentials.clone()?;
        credentials.values.retain(|key, _| used.contains(&key.as_str()));
        Some(credentials)
    }

    /// Returns the variables with the credentials of a fallback.
    pub(super) fn credential_variables(&self) -> Vec<HeaderVariable> {
        let Some(credentials) = &self.credentials else { return Vec::new() };
        let prefix = prefix(self.plugin_name());
        let variable = |key: &str| HeaderVariable {
            name: variable(&prefix, key),
            source: HeaderFrom::Secret(credentials.secret.clone(), key.to_owned()),
        };
        self.used_keys().into_iter().map(variable).collect()
    }
}

/// Returns the variables that the headers and the verification of a PluginConfig's server refer to.
pub fn plugin_variables(name: &str, plugin: &PluginConfigSpec) -> Vec<HeaderVariable> {
    let prefix = prefix(name);
    server_variables(|part| variable(&prefix, part), &plugin.headers_from, plugin.tls.as_ref())
}

fn prefix(plugin: &str) -> String {
    let is_word =
        |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let name = upper_snake(plugin);
    match plugin.split('-').all(is_word) {
        true => format!("MODEL_{name}"),
        false => format!("MODEL_{name}_{}", short_digest(plugin)),
    }
}

/// Returns the variable of a header, credential or certificate. The two underscores tell `a` with `B-C` from `a-b` with `C`.
fn variable(prefix: &str, part: &str) -> String {
    format!("{prefix}__{}", upper_snake(part))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_plugin_configs_share_a_variable() {
        let all = [("a-b", "C"), ("a", "B-C"), ("a.b", "C"), ("a--b", "C"), ("a.b-c", "D"), ("a-b-c", "D")];
        let named: Vec<_> = all.iter().map(|(plugin, part)| variable(&prefix(plugin), part)).collect();
        assert_eq!(named[..2], ["MODEL_A_B__C", "MODEL_A__B_C"]);
        assert_eq!(named[2], format!("MODEL_A_B_{}__C", short_digest("a.b")));
        assert_eq!(named.iter().collect::<BTreeSet<_>>().len(), all.len(), "{named:?}");
    }
}
