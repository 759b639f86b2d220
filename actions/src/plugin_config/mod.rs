//! `PluginConfig` kind: validation. The lifecycle is that of every reference (`crate::reference`): a PluginConfig is Available
//! when the Secret with the credentials exists and has every key.

use crds::{
    PluginConfig, PluginConfigSpec, ReferencePhase,
    plugin_config::BASE_URL_KEYS,
    provider::{ANTHROPIC_VERTEX, AZURE_OPENAI, BEDROCK, GEMINI_VERTEX, Provider, REGION_KEYS, provider},
    reason,
};
use machine::{ActionError, Table, TableError};
use meta::{PhasedObject as _, condition, condition_type, update_condition};
use serde_json::Value;

use crate::{
    deps::Deps,
    kind::{ControlledKind, Registry},
    ports::{ChildKind, ChildRef},
    reference::{self, ReferenceKind},
    references::{Evaluation, Query, Referable, used_digest},
    render::is_web_address,
};

/// Providers whose types were once words for images of users' own.
const CLOUDS: [Provider; 4] = [AZURE_OPENAI, GEMINI_VERTEX, ANTHROPIC_VERTEX, BEDROCK];

impl ControlledKind for PluginConfig {
    const TABLE: Table<ReferencePhase> = Table {
        render_version: 1,
        conditions: &[condition_type::AVAILABLE, condition_type::CONFIG_UNDERSTOOD],
        ..reference::TABLE
    };

    fn registry() -> Result<Registry<Self>, TableError> {
        reference::registry()
    }
}

impl Referable for PluginConfig {
    fn evaluate(query: &Query<'_>) -> Evaluation {
        query.evaluate_reference(query.object::<Self>(), |found| used_digest(&found.spec, &[]))
    }
}

impl ReferenceKind for PluginConfig {
    fn report_status(&mut self, deps: &Deps) {
        let wrong = cloud_problem(&self.spec).map(|message| (reason::INVALID_SPEC, message));
        let lost = || unread(&self.spec).or_else(|| unread_secret(&self.spec, deps, &self.key().namespace));
        let found = wrong.or_else(|| Some((reason::UNKNOWN_SETTING, lost()?)));
        let conditions = &mut self.common_mut().conditions;
        match found {
            Some((reason, message)) => {
                update_condition(conditions, condition(condition_type::CONFIG_UNDERSTOOD, false, reason, message));
            }
            None => conditions.retain(|known| known.type_ != condition_type::CONFIG_UNDERSTOOD),
        }
    }

    fn validate(&self) -> Result<(), ActionError> {
        match problem(&self.spec) {
            Some(message) => Err(ActionError::terminal(reason::INVALID_SPEC, message)),
            None => Ok(()),
        }
    }
}

/// Returns the sentence on the keys of `extraConfig` that nothing reads, if there are any.
fn unread(spec: &PluginConfigSpec) -> Option<String> {
    let keys = spec.unread_settings();
    (!keys.is_empty()).then(|| {
        let keys = keys.join(", ");
        format!("nothing reads {keys} of extraConfig with type {}: correct the name, or leave it out", spec.type_)
    })
}

/// Returns the sentence on the Secret of a PluginConfig of a cloud's type that names no keys, if the protocol reads none of those
/// that it has. What a workload lacks by that is not certain: it may have an identity of its own.
fn unread_secret(spec: &PluginConfigSpec, deps: &Deps, namespace: &str) -> Option<String> {
    let provider = provider(&spec.type_).filter(|provider| CLOUDS.contains(provider))?;
    let secret = &spec.credentials_ref.as_ref().filter(|_| spec.credential_keys.is_empty())?.name;
    let child = ChildRef { kind: ChildKind::Secret, namespace: namespace.to_owned(), name: secret.clone() };
    let data = deps.cache.child(&child)?;
    let is_lost = !data.data.is_empty() && !data.data.keys().any(|key| provider.reads(key));
    is_lost.then(|| {
        format!(
            "type {} reads no key of Secret {secret}: name the one with the credential in credentialKeys",
            spec.type_
        )
    })
}

/// Returns the reason why a PluginConfig cannot be used, independent of the content of its Secret.
fn problem(spec: &PluginConfigSpec) -> Option<String> {
    if spec.lacks_credentials() {
        return Some(format!("{} needs credentialsRef, or baseUrl, headersFrom or passthrough", spec.type_));
    }
    if let Some(problem) = region_problem(spec.region.as_deref()) {
        return Some(problem);
    }
    // What an image of the user's own makes of these keys is not known.
    let is_judged = provider(&spec.type_).is_some_and(|provider| !CLOUDS.contains(provider));
    is_judged.then(|| address_problem(spec)).flatten()
}

/// Returns the reason why Récif's runner cannot use a PluginConfig of a cloud's type. An image of the user's own may have known that
/// type before and read its keys in another way, so that this is no error.
fn cloud_problem(spec: &PluginConfigSpec) -> Option<String> {
    let provider = provider(&spec.type_).filter(|provider| CLOUDS.contains(provider))?;
    let region = spec.region.as_deref().unwrap_or_default();
    if *provider == BEDROCK && region.is_empty() && spec.base_url().is_none() {
        return Some("bedrock needs region, such as eu-central-1".to_owned());
    }
    if let Some(problem) = region_problem(spec.region()) {
        return Some(problem);
    }
    if let Some(problem) = provider.settings.iter().find_map(|names| setting_problem(spec, names)) {
        return Some(problem);
    }
    if let Some((name, _)) = region_setting(spec, provider).filter(|(_, value)| !region.is_empty() && *value != region)
    {
        return Some(format!("keep one of region, {name}"));
    }
    address_problem(spec)
}

/// Returns what is wrong with the base URL.
fn address_problem(spec: &PluginConfigSpec) -> Option<String> {
    let (first, url) = spec.setting(&BASE_URL_KEYS).next()?;
    if let Some(problem) = twice(spec, &BASE_URL_KEYS) {
        return Some(problem);
    }
    // The URL may hold a credential, so the message does not repeat it.
    let is_address = url.as_str().is_some_and(|url| url.is_empty() || is_web_address(url));
    (!is_address)
        .then(|| format!("extraConfig.{first} must be a URL that begins with http:// or https:// and names a host"))
}

fn region_problem(region: Option<&str>) -> Option<String> {
    let is_region = |text: &&str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let region = region.filter(|region| !is_region(region))?;
    Some(format!("region {region:?} is not a region: use a word such as eu"))
}

/// Returns the setting of `extraConfig` that stands for the region.
fn region_setting<'a>(spec: &'a PluginConfigSpec, provider: &Provider) -> Option<(&'static str, &'a Value)> {
    provider.settings.contains(&REGION_KEYS).then(|| spec.setting(REGION_KEYS).next()).flatten()
}

/// Returns what is wrong with a setting of `extraConfig` that has these names.
fn setting_problem(spec: &PluginConfigSpec, names: &[&'static str]) -> Option<String> {
    let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.trim().is_empty());
    match spec.setting(names).find(|(_, value)| !is_text(value)) {
        Some((name, _)) => Some(format!("extraConfig.{name} must be a text")),
        None => twice(spec, names),
    }
}

/// Returns the sentence on a setting that is there by two of its names, with values that differ.
fn twice(spec: &PluginConfigSpec, names: &[&'static str]) -> Option<String> {
    let (first, value) = spec.setting(names).next()?;
    let (other, _) = spec.setting(names).find(|(_, other)| *other != value)?;
    Some(format!("keep one of {first}, {other}"))
}

#[cfg(test)]
mod tests;
