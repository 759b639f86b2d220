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
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::fake::{Operator, Sim, id, object, secret};

    #[tokio::test(start_paused = true)]
    async fn every_condition_has_a_time() {
        let sim = Sim::new();
        let spec = json!({"type": "stub", "extraConfig": {"baseUrl": "http://h"}});
        sim.store().create(&id("PluginConfig", "p"), object("PluginConfig", spec));
        let mut operator = Operator::start(&sim);
        operator.run(Duration::from_secs(60)).await;
        let conditions = sim.store().at(&id("PluginConfig", "p"), "/status/conditions");
        let all = conditions.as_array().unwrap();
        assert!(all.iter().any(|found| found["type"] == "ConfigUnderstood"), "{all:?}");
        let undated = |found: &&Value| found["lastTransitionTime"] == json!(meta::UNSET_TIME.to_string());
        assert_eq!(all.iter().find(undated), None, "the schema's time is no time");
    }

    #[tokio::test(start_paused = true)]
    async fn a_whole_secret_of_which_a_cloud_reads_nothing_is_named() {
        let bedrock = json!({"type": "bedrock", "extraConfig": {"baseUrl": "https://gateway.example"}});
        let lost = "type bedrock reads no key of Secret keys: name the one with the credential in credentialKeys";
        for (more, data, expected) in [
            (json!({}), json!({"token": "aw=="}), Some(lost)),
            (json!({"credentialKeys": ["token"]}), json!({"token": "aw=="}), None),
            (json!({}), json!({"token": "aw==", "AWS_ACCESS_KEY_ID": "aw=="}), None),
            (json!({}), json!({}), None),
            (json!({"type": "ollama"}), json!({"token": "aw=="}), None),
        ] {
            let sim = Sim::new();
            let mut spec = bedrock.clone();
            spec["credentialsRef"] = json!({"name": "keys"});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            sim.store().create(&id("Secret", "keys"), secret(data));
            sim.store().create(&id("PluginConfig", "p"), object("PluginConfig", spec.clone()));
            Operator::start(&sim).run(Duration::from_secs(60)).await;
            let conditions = sim.store().at(&id("PluginConfig", "p"), "/status/conditions");
            let mut all = conditions.as_array().unwrap().iter();
            let found = all.find(|found| found["type"] == "ConfigUnderstood").map(|found| found["message"].clone());
            assert_eq!(found.as_ref().and_then(Value::as_str), expected, "{spec}");
        }
    }

    #[test]
    fn keys_that_nothing_reads_are_named() {
        for (type_, extra, expected) in [
            ("openai", json!({"baseURL": "http://h"}), None),
            ("ollama", json!({"serverAddress": "http://h"}), None),
            ("stub", json!({"baseUrl": "http://h"}), Some("nothing reads baseUrl of extraConfig with type stub: ")),
            (
                "openai",
                json!({"a": 1, "baseUrl": "http://h", "b": 2}),
                Some("nothing reads a, b of extraConfig with type openai: "),
            ),
            ("mistral", json!({"projectId": "p"}), None),
            ("azure-openai", json!({"endpoint": "http://h", "apiVersion": "2024-10-21"}), None),
            ("vertexai", json!({"project": "p", "location": "eu"}), None),
            ("openai", json!({"apiVersion": "1"}), Some("nothing reads apiVersion of extraConfig with type openai: ")),
        ] {
            let spec = serde_json::from_value(json!({"type": type_, "extraConfig": extra})).unwrap();
            let found = unread(&spec);
            assert_eq!(found.is_some(), expected.is_some(), "{type_}: {found:?}");
            assert!(found.unwrap_or_default().starts_with(expected.unwrap_or_default()), "{type_} {extra}");
        }
    }

    #[test]
    fn what_no_provider_could_be_reached_by_is_told() {
        let keyed = |more: Value| {
            let mut spec = json!({"type": "openai", "credentialsRef": {"name": "s"}});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            problem(&serde_json::from_value(spec).unwrap())
        };
        let bad_url = Some("extraConfig.baseUrl must be a URL that begins with http:// or https:// and names a host");
        for (more, expected) in [
            (json!({}), None),
            (
                json!({"credentialsRef": null}),
                Some("openai needs credentialsRef, or baseUrl, headersFrom or passthrough"),
            ),
            (json!({"type": "ollama", "credentialsRef": null}), None),
            (json!({"region": "us-east-1", "extraConfig": {"baseUrl": "https://h/v1", "x": 1}}), None),
            (
                json!({"region": "evil.example/"}),
                Some("region \"evil.example/\" is not a region: use a word such as eu"),
            ),
            (json!({"extraConfig": {"baseUrl": ""}}), None),
            (json!({"extraConfig": {"baseUrl": "HTTP://h"}}), None),
            (json!({"extraConfig": {"baseUrl": "h/v1"}}), bad_url),
            (json!({"extraConfig": {"baseUrl": "ftp://h"}}), bad_url),
            (json!({"extraConfig": {"baseUrl": "https:///v1"}}), bad_url),
            (json!({"extraConfig": {"baseUrl": 8080}}), bad_url),
            (json!({"credentialsRef": null, "passthrough": true}), None),
            (json!({"credentialsRef": null, "extraConfig": {"endpoint": "http://h"}}), None),
            (json!({"credentialsRef": null, "headersFrom": [{"name": "X-Key", "value": "k"}]}), None),
            (json!({"type": "mistral", "credentialsRef": null}), None),
            (
                json!({"type": "google-ai", "credentialsRef": null}),
                Some("google-ai needs credentialsRef, or baseUrl, headersFrom or passthrough"),
            ),
            (json!({"extraConfig": {"baseUrl": "http://h", "serverAddress": "http://h"}}), None),
            (
                json!({"extraConfig": {"baseUrl": "http://h", "serverAddress": "http://i"}}),
                Some("keep one of baseUrl, serverAddress"),
            ),
            (json!({"type": "azure", "extraConfig": {"endpoint": "h.example", "baseUrl": "unix:/run/llm"}}), None),
            // Types of clouds were once for images of users' own.
            (json!({"type": "bedrock", "credentialsRef": null}), None),
            (json!({"type": "vertexai", "region": "eu", "extraConfig": {"location": "us", "baseUrl": "h"}}), None),
        ] {
            assert_eq!(keyed(more.clone()).as_deref(), expected, "{more}");
        }
    }

    #[test]
    fn what_the_runner_could_not_reach_a_cloud_by_is_told() {
        for (spec, expected) in [
            (json!({"type": "openai", "extraConfig": {"baseUrl": "h"}}), None),
            (json!({"type": "azure-openai", "extraConfig": {"apiVersion": "v1"}}), None),
            (
                json!({"type": "azure-openai", "extraConfig": {"endpoint": "h.example"}}),
                Some("extraConfig.endpoint must be a URL that begins with http:// or https:// and names a host"),
            ),
            (
                json!({"type": "azureaifoundry", "extraConfig": {"apiVersion": 2}}),
                Some("extraConfig.apiVersion must be a text"),
            ),
            (json!({"type": "vertexai", "region": "eu", "extraConfig": {"location": "eu"}}), None),
            (
                json!({"type": "vertexai", "region": "eu", "extraConfig": {"location": "us"}}),
                Some("keep one of region, location"),
            ),
            (
                json!({"type": "anthropic-vertex", "extraConfig": {"region": "eu", "location": "us"}}),
                Some("keep one of location, region"),
            ),
            (
                json!({"type": "vertex-ai", "extraConfig": {"projectId": "p", "project": "q"}}),
                Some("keep one of projectId, project"),
            ),
            (
                json!({"type": "vertexai", "extraConfig": {"location": "evil.example/"}}),
                Some("region \"evil.example/\" is not a region: use a word such as eu"),
            ),
            (json!({"type": "bedrock"}), Some("bedrock needs region, such as eu-central-1")),
            (json!({"type": "bedrock", "region": "eu-central-1"}), None),
            (json!({"type": "bedrock", "extraConfig": {"baseUrl": "http://h"}}), None),
        ] {
            let found = cloud_problem(&serde_json::from_value(spec.clone()).unwrap());
            assert_eq!(found.as_deref(), expected, "{spec}");
        }
    }
}
