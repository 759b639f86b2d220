//! `PluginConfig` kind: validation. The lifecycle is that of every reference (`crate::reference`): a PluginConfig is Available
//! when the Secret with the credentials exists and has every key.

use crds::{PluginConfig, PluginConfigSpec, ReferencePhase, reason};
use machine::{ActionError, Table, TableError};

use crate::{
    kind::{ControlledKind, Registry},
    reference::{self, ReferenceKind},
    references::{Evaluation, Query, Referable, used_digest},
    render::is_web_address,
};

impl ControlledKind for PluginConfig {
    const TABLE: Table<ReferencePhase> = Table { render_version: 1, ..reference::TABLE };

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
    fn validate(&self) -> Result<(), ActionError> {
        match problem(&self.spec) {
            Some(message) => Err(ActionError::terminal(reason::INVALID_SPEC, message)),
            None => Ok(()),
        }
    }
}

/// Keys of the provider's base URL in `extraConfig`.
const BASE_URL: [&str; 2] = ["baseUrl", "baseURL"];

/// Returns the reason why a PluginConfig cannot be used, independent of the content of its Secret.
fn problem(spec: &PluginConfigSpec) -> Option<String> {
    if spec.lacks_credentials() {
        return Some(format!("{} needs credentialsRef, or baseUrl, headersFrom or passthrough", spec.type_));
    }
    let region = spec.region.as_deref().unwrap_or_default();
    if !region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Some(format!("region {region:?} is not a region: use a word such as eu"));
    }
    let base_url = spec.extra_config.as_ref().and_then(|extra| BASE_URL.iter().find_map(|key| extra.get(key)));
    if base_url.is_some_and(|url| !url.as_str().is_some_and(|url| url.is_empty() || is_web_address(url))) {
        // The URL may hold a credential, so the message does not repeat it.
        return Some(
            "extraConfig.baseUrl must be a URL that begins with http:// or https:// and names a host".to_owned(),
        );
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

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
        ] {
            assert_eq!(keyed(more.clone()).as_deref(), expected, "{more}");
        }
    }
}
