//! Checks whether the variables of a container include the credentials that the provider of its model needs, or others.
//!
//! Only certain failures of Récif's own runtime are reported: a key that an overlay may set counts as present.

use std::collections::BTreeSet;

use crds::{Model, ModelSpec, PluginConfig, PluginConfigSpec, provider};
use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar};
use serde_json::Value;
use url::Url;

use crate::ports::{CacheReader, ChildKind, ChildRef};

/// Names of the variables and files that a container gets.
#[derive(Debug, Default)]
pub(crate) struct AvailableVariables {
    names: BTreeSet<String>,
    /// Overlay of the Pod template, which may set more.
    overlay: String,
    /// Set if the keys of a whole Secret count as declared.
    declares_all: bool,
}

impl AvailableVariables {
    /// Collects the variables of a workload itself: its `env`, all keys of the Secrets and ConfigMaps of its `envFrom`, and its
    /// overlay.
    pub(crate) fn of(
        cache: &dyn CacheReader,
        namespace: &str,
        env: &[EnvVar],
        env_from: &[EnvFromSource],
        overlay: Option<&Value>,
    ) -> Self {
        let set = env.iter().filter(|found| found.value_from.is_some() || found.value.as_deref() != Some(""));
        let mut given = Self {
            names: set.map(|found| found.name.clone()).collect(),
            overlay: overlay.map(Value::to_string).unwrap_or_default(),
            declares_all: false,
        };
        for source in env_from {
            let prefix = source.prefix.as_deref().unwrap_or_default();
            if let Some(secret) = &source.secret_ref {
                given.add_data(cache, namespace, ChildKind::Secret, &secret.name, prefix);
            }
            if let Some(config_map) = &source.config_map_ref {
                given.add_data(cache, namespace, ChildKind::ConfigMap, &config_map.name, prefix);
            }
        }
        given
    }

    /// Returns the same for flows of a set, to which every key of a Secret without `credentialKeys` counts as declared.
    pub(crate) fn of_set(self) -> Self {
        Self { declares_all: true, ..self }
    }

    fn add_data(&mut self, cache: &dyn CacheReader, namespace: &str, kind: ChildKind, name: &str, prefix: &str) {
        let keys = keys_of(cache, namespace, kind, name);
        self.names.extend(keys.iter().map(|key| format!("{prefix}{key}")));
    }

    /// Reports whether the container gets this variable, or may get it by its overlay.
    pub(crate) fn has(&self, name: &str) -> bool {
        !name.is_empty()
            && (self.names.contains(name) || self.overlay.contains(name) || self.overlay.contains("envFrom"))
    }

    /// Returns why a model of this provider can never be called with these variables, if so.
    pub(crate) fn provider_problem(&self, name: &str) -> Option<String> {
        let Some(provider) = provider::provider(name) else { return Some(provider::unknown(name)) };
        (provider.needs_key && !provider.keys.iter().chain([&provider.base]).any(|name| self.has(name))).then(|| {
            format!(
                "model provider `{name}` has no API key: set {} in spec.env, or use modelRef",
                provider.keys.join(" or ")
            )
        })
    }

    /// Returns why a model, or one of its fallbacks, can never be called with these variables, if so. A fallback gets the keys of
    /// its own Secret alone. One of a cloud without credentials is no problem: it is left out
    /// ([`UnservedFallbacks`](crate::unserved_fallbacks::UnservedFallbacks)).
    pub(crate) fn model_problem(
        mut self,
        cache: &dyn CacheReader,
        namespace: &str,
        model: &ModelSpec,
    ) -> Option<String> {
        let plugin = |model: &ModelSpec| cache.get::<PluginConfig>(namespace, &model.plugin_config_ref.name);
        let name = &model.plugin_config_ref.name;
        let first = plugin(model)?;
        let own = self.plugin_config_problem(cache, namespace, name, &first.spec);
        own.or_else(|| self.gateway_problem(cache, namespace, name, &first.spec)).or_else(|| {
            model.fallback_refs.iter().find_map(|fallback| {
                let fallback = cache.get::<Model>(namespace, &fallback.name)?;
                let config = &fallback.spec.plugin_config_ref.name;
                let mut spec = plugin(&fallback.spec)?.spec.clone();
                // Only the server of the first model gets the caller's key.
                spec.passthrough &= config == name;
                Self::default().plugin_config_problem(cache, namespace, config, &spec)
            })
        })
    }

    /// Returns the same as [`AvailableVariables::provider_problem`] for the provider of this PluginConfig, whose Secret is added
    /// to the variables.
    fn plugin_config_problem(
        &mut self,
        cache: &dyn CacheReader,
        namespace: &str,
        config: &str,
        spec: &PluginConfigSpec,
    ) -> Option<String> {
        let Some(provider) = provider::provider(&spec.type_) else { return Some(provider::unknown(&spec.type_)) };
        match &spec.credentials_ref {
            Some(secret) if spec.credential_keys.is_empty() => {
                self.add_data(cache, namespace, ChildKind::Secret, &secret.name, "");
            }
            _ => self.names.extend(spec.credential_keys.iter().cloned()),
        }
        let needs_no_key = spec.base_url().is_some() || !spec.headers_from.is_empty() || spec.passthrough;
        // A single declared key is used under any name, and its presence has been checked already.
        if !provider.needs_key || needs_no_key || spec.credential_keys.len() == 1 {
            return None;
        }
        let keys = provider.keys.join(" or ");
        let lacks = !provider.keys.iter().chain([&provider.base]).any(|name| self.has(name));
        lacks.then(|| match &spec.credentials_ref {
            Some(secret) => format!("Secret {} has no key {keys} (PluginConfig {config})", secret.name),
            None => format!("PluginConfig {config} names no Secret with {keys}"),
        })
    }

    /// Returns why credentials do not go to the configured base URL, if so: a server that is none of the provider's gets what
    /// `credentialKeys` declares alone, because all else may be the Pod's own.
    fn gateway_problem(
        &self,
        cache: &dyn CacheReader,
        namespace: &str,
        config: &str,
        spec: &PluginConfigSpec,
    ) -> Option<String> {
        let provider = provider::provider(&spec.type_).filter(|provider| !provider.domains.is_empty())?;
        let proof = provider.identities.first()?.last()?;
        let url = Url::parse(spec.base_url()?).ok()?;
        let has_own =
            spec.passthrough || !spec.headers_from.is_empty() || provider.keys.iter().any(|key| self.has(key));
        let declared = match &spec.credentials_ref {
            Some(secret) if self.declares_all && spec.credential_keys.is_empty() => {
                keys_of(cache, namespace, ChildKind::Secret, &secret.name)
            }
            _ => spec.credential_keys.clone(),
        };
        let is_declared = provider.declared(&declared).is_some() || declared.iter().any(|key| key == proof);
        let goes = has_own || is_declared || provider.owns(&url) || provider::is_loopback(&url);
        (!goes).then(|| {
            format!(
                "PluginConfig {config}: only declared credentials go to a base URL that is none of {type_}: name {proof} of its \
                 Secret in credentialKeys, or set headersFrom or passthrough",
                type_ = spec.type_
            )
        })
    }
}

/// Returns the keys of a Secret or ConfigMap.
fn keys_of(cache: &dyn CacheReader, namespace: &str, kind: ChildKind, name: &str) -> Vec<String> {
    let child = ChildRef { kind, namespace: namespace.to_owned(), name: name.to_owned() };
    cache.child(&child).map(|data| data.data.keys().cloned().collect()).unwrap_or_default()
}
