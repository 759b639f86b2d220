//! Fallbacks that an agent or flow goes without. A fallback does not get the Pod's own identity, so Récif's own runner cannot open
//! one of a cloud that has no credentials of its own. It is not rendered, and a condition names it: the first model does without.

use std::collections::BTreeSet;

use crds::{PluginConfigSpec, provider, reason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use meta::{condition, condition_type};
use serde_json::Value;

use crate::{render::FlowModel, server_tools::first_few};

/// Sentences on the fallbacks that are left out, each once.
#[derive(Debug, Default)]
pub(crate) struct UnservedFallbacks(BTreeSet<String>);

impl UnservedFallbacks {
    /// Removes the fallbacks that the runner cannot open. `config` and `first` are the name and the spec of the first model's
    /// PluginConfig.
    pub(crate) fn remove_from(&mut self, fallbacks: &mut Vec<FlowModel>, config: &str, first: &PluginConfigSpec) {
        fallbacks.retain(|fallback| match identity_problem(fallback, config, first) {
            None => true,
            Some(sentence) => {
                self.0.insert(sentence);
                false
            }
        });
    }

    /// Returns the condition that names them; `None` if there are none.
    pub(crate) fn condition(&self) -> Option<Condition> {
        (!self.0.is_empty()).then(|| {
            condition(condition_type::CONFIG_UNDERSTOOD, false, reason::MISSING_DEPENDENCY, first_few(&self.0))
        })
    }
}

/// Returns the sentence on a fallback that has no credentials of its own and does not get the Pod's own identity, if its provider
/// needs any.
fn identity_problem(fallback: &FlowModel, config: &str, first: &PluginConfigSpec) -> Option<String> {
    let FlowModel { model, plugin, credentials, .. } = fallback;
    let name = &model.plugin_config_ref.name;
    if name == config || has_address_of(plugin, first) || !plugin.headers_from.is_empty() {
        return None;
    }
    let provider = provider::provider(&plugin.type_)?;
    let set = provider.identities.first()?;
    let has = |key: &&str| credentials.as_ref().is_some_and(|found| found.values.contains_key(*key));
    let has_credentials = provider.declared(&plugin.credential_keys).is_some()
        || provider.keys.iter().any(has)
        || provider.identities.iter().any(|names| names.iter().all(has));
    if has_credentials {
        return None;
    }
    let keys = provider.keys.iter().map(|key| (*key).to_owned());
    let wanted: Vec<String> = keys.chain([set.join(" and ")]).collect();
    let wanted = wanted.join(", or ");
    let lacks = match credentials {
        Some(found) => format!("Secret {} has no key {wanted} (PluginConfig {name})", found.secret),
        None => format!("PluginConfig {name} names no Secret with {wanted}"),
    };
    let (type_, id) = (&plugin.type_, &model.model);
    Some(format!("fallback {type_}/{id} is left out, {lacks}: a fallback does not get the Pod's own identity"))
}

/// Reports whether two PluginConfigs have the same provider and address: then the runtime lets the one have the identity of the other.
fn has_address_of(one: &PluginConfigSpec, other: &PluginConfigSpec) -> bool {
    let settings = provider::provider(&one.type_).map(|known| known.settings).unwrap_or_default();
    one.type_ == other.type_
        && one.base_url() == other.base_url()
        && one.region() == other.region()
        && settings.iter().all(|names| first_setting(one, names) == first_setting(other, names))
}

fn first_setting<'a>(spec: &'a PluginConfigSpec, names: &'a [&'static str]) -> Option<&'a Value> {
    spec.setting(names).next().map(|(_, value)| value)
}
