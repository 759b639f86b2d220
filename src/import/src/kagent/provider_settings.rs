//! Settings of a provider in a ModelConfig: generation, addresses, headers, credentials.

use serde_json::{Map, Number, Value, json};

use super::{is_first_api, split_reference};
use crate::{
    env::set,
    fields::Fields,
    headers::{self, Receiver},
    input::place,
    period,
    subject::Subject,
};

/// Block of a ModelConfig with the settings of Azure AI Foundry.
pub(super) const FOUNDRY: &str = "foundry";
/// Version of Foundry's API that kagent takes where none is given.
const FOUNDRY_VERSION: &str = "2024-10-21";

/// Settings of Bedrock that are a model's own.
const OWN_FIELDS: &str = "additionalModelRequestFields";

/// Returns the field that names the Secret with the key.
pub(super) fn key_field(subject: &Subject<'_>) -> &'static str {
    if is_first_api(subject) { "apiKeySecretRef" } else { "apiKeySecret" }
}

/// Settings of a provider, sorted by where ours have them.
#[derive(Default)]
pub(super) struct ProviderSettings {
    /// `defaultConfig` of the Model.
    pub(super) config: Map<String, Value>,
    /// `extraConfig` of the PluginConfig.
    pub(super) extra: Map<String, Value>,
    pub(super) plugin: Map<String, Value>,
    pub(super) headers: Vec<Value>,
    /// Set if the Secret holds no key, but what kagent exchanges for tokens.
    is_exchanged: bool,
}

impl ProviderSettings {
    /// Adds a header.
    pub(super) fn header(&mut self, subject: &Subject<'_>, path: &str, name: &str, value: &str) {
        let same = |known: &Value| known["name"].as_str().is_some_and(|known| known.eq_ignore_ascii_case(name));
        if self.headers.iter().any(same) {
            return subject.notes.skip(path, "has the name of a header before it");
        }
        self.headers.extend(headers::text(subject, path, name, value, Receiver::Provider));
    }

    /// Reads the block of the provider. Returns the name of a deployment that stands for the model.
    pub(super) fn take<'f>(&mut self, subject: &Subject<'_>, type_: &str, part: &Fields<'f>) -> Option<&'f str> {
        if part.own_path().ends_with(FOUNDRY) {
            return self.foundry(subject, part);
        }
        let generation: &[&str] = match type_ {
            "openai" => {
                &["temperature", "topP", "maxTokens", "frequencyPenalty", "presencePenalty", "seed", "reasoningEffort"]
            }
            "azure-openai" => &["temperature", "topP", "maxTokens"],
            "anthropic" | "bedrock" => &["temperature", "topP", "topK", "maxTokens", "stopSequences"],
            "gemini" | "gemini-vertex" => &[
                "temperature",
                "topP",
                "topK",
                "maxTokens",
                "maxOutputTokens",
                "stopSequences",
                "candidateCount",
                "responseMimeType",
            ],
            "anthropic-vertex" => &["temperature", "topP", "topK", "maxTokens", "stopSequences"],
            _ => &[],
        };
        for key in generation {
            self.generation(subject, part, key);
        }
        match type_ {
            "openai" => {
                self.extra_text(part, "baseUrl", "baseUrl");
                if let Some(organization) = part.text("organization") {
                    self.header(subject, &part.path("organization"), "OpenAI-Organization", organization);
                }
                if part.value("tokenExchange").is_some() {
                    // The Secret has the key of an account, which no server of models may get.
                    self.is_exchanged = true;
                    let text = "tokens are not fetched by exchange; put one into a Secret and credentialsRef";
                    subject.notes.loss(&part.path("tokenExchange"), text);
                }
                if part.int("n").is_some_and(|count| count > 1) {
                    subject.notes.loss(&part.path("n"), "one answer is read");
                }
                if let Some(seconds) = part.int("timeout").filter(|seconds| *seconds > 0) {
                    let text = format!("{seconds}s");
                    let fixed = period::fixed(&text, 1, 3600).unwrap_or_else(|| "1h".to_owned());
                    if fixed != text {
                        subject.notes.change(&part.path("timeout"), format!("is now {fixed:?}"));
                    }
                    self.plugin.insert("timeout".to_owned(), fixed.into());
                }
            }
            "anthropic" => self.extra_text(part, "baseUrl", "baseUrl"),
            "azure-openai" => {
                self.extra_text(part, "azureEndpoint", "baseUrl");
                self.extra_text(part, "apiVersion", "apiVersion");
                if part.text("azureAdToken").is_some() {
                    subject.notes.loss(&part.path("azureAdToken"), "a token in a manifest; put it into a Secret");
                }
                return part.text("azureDeployment");
            }
            "ollama" => {
                if let Some(host) = part.text("host") {
                    self.extra.insert("baseUrl".to_owned(), super::service_host::with_scheme(host).into());
                }
                self.ollama_options(part);
            }
            "bedrock" => {
                set(&mut self.plugin, "region", part.text("region"));
                let own = part.value(OWN_FIELDS);
                if own.is_some_and(|own| !own.is_object()) {
                    subject.notes.skip(&part.path(OWN_FIELDS), "is no object");
                }
                set(&mut self.config, OWN_FIELDS, own.filter(|own| own.is_object()).cloned());
                let life = part.text("cacheTTL").unwrap_or("5m");
                set(&mut self.config, "cache", part.flag("promptCaching").then_some(life));
            }
            "gemini-vertex" | "anthropic-vertex" => {
                self.extra_text(part, "projectID", "projectId");
                set(&mut self.plugin, "region", part.text("location"));
            }
            _ => {}
        }
        None
    }

    /// Reads the block of Foundry, and returns the name of the deployment.
    fn foundry<'f>(&mut self, subject: &Subject<'_>, part: &Fields<'f>) -> Option<&'f str> {
        let from = part.part("endpointFrom");
        from.value("optional");
        let named = from.text("name").zip(from.text("key"));
        let endpoint = match (part.text("endpoint"), named) {
            (Some(text), _) => Some(text.to_owned()),
            (None, Some((map, key))) => endpoint_in(subject, &from, map, key),
            (None, None) => None,
        };
        set(&mut self.extra, "baseUrl", endpoint);
        set(&mut self.extra, "apiVersion", Some(part.text("apiVersion").unwrap_or(FOUNDRY_VERSION)));
        part.text("deployment")
    }

    fn extra_text(&mut self, part: &Fields<'_>, key: &str, target: &str) {
        set(&mut self.extra, target, part.text(key));
    }

    /// Copies a setting of the generation; kagent writes most numbers as texts.
    fn generation(&mut self, subject: &Subject<'_>, part: &Fields<'_>, key: &str) {
        let target = if key == "maxTokens" { "maxOutputTokens" } else { key };
        let is_count = matches!(key, "maxTokens" | "maxOutputTokens" | "topK" | "candidateCount");
        // What kagent leaves out of a request.
        let is_unset = |value: &&Value| value.as_str() == Some("") || is_count && value.as_i64() == Some(0);
        let Some(value) = part.value(key).filter(|value| !is_unset(value)) else { return };
        let ours = match key {
            "reasoningEffort" | "responseMimeType" => value.as_str().map(|text| json!(text)),
            "stopSequences" => Some(json!(part.texts(key))),
            _ => match value {
                Value::Number(_) => Some(value.clone()),
                Value::String(text) => number(text).map(Value::Number),
                _ => None,
            },
        };
        match ours {
            Some(ours) => {
                self.config.insert(target.to_owned(), ours);
            }
            None => subject.notes.loss(&part.path(key), format!("{value} is no number")),
        }
    }

    fn ollama_options(&mut self, part: &Fields<'_>) {
        for (key, value) in part.entries("options") {
            let target = match key {
                "top_p" => "topP",
                "top_k" => "topK",
                "num_predict" => "maxOutputTokens",
                "stop" => "stopSequences",
                other => other,
            };
            let scalar = |text: &str| match text {
                "true" => json!(true),
                "false" => json!(false),
                text => number(text).map_or_else(|| json!(text), Value::Number),
            };
            let ours = match value {
                Value::String(text) if key == "stop" => json!([text]),
                Value::String(text) => scalar(text),
                other => other.clone(),
            };
            self.config.insert(target.to_owned(), ours);
        }
    }

    /// Reads the Secret with the key.
    pub(super) fn credentials(&mut self, subject: &Subject<'_>, type_: &str, spec: &Fields<'_>) {
        let field = key_field(subject);
        let path = spec.path(field);
        let (secret, key) = (spec.text(field).filter(|_| !self.is_exchanged), spec.text("apiKeySecretKey"));
        if let Some(secret) = secret {
            let (namespace, name) = split_reference(secret, subject.namespace());
            if namespace == subject.namespace() {
                subject.needs(&path, "Secret", name);
            } else {
                subject.notes.todo(&path, format!("copy Secret {namespace}/{name} to {}", subject.namespace()));
            }
            self.plugin.insert("credentialsRef".to_owned(), json!({ "name": name }));
            // Bedrock takes several keys of the Secret.
            if let Some(key) = key.filter(|_| type_ != "bedrock") {
                self.plugin.insert("credentialKeys".to_owned(), json!([key]));
            }
            return;
        }
        let needs_key = crds::provider::provider(type_).is_some_and(|provider| provider.needs_key);
        let has_other =
            self.extra.contains_key("baseUrl") || !self.headers.is_empty() || self.plugin.contains_key("passthrough");
        if needs_key && !has_other {
            let name = format!("{}-key", subject.name);
            subject.notes.todo(&path, format!("create Secret {name}"));
            self.plugin.insert("credentialsRef".to_owned(), json!({ "name": name }));
            if let Some(key) = key {
                self.plugin.insert("credentialKeys".to_owned(), json!([key]));
            }
        }
    }
}

/// Returns the address that a ConfigMap holds now.
fn endpoint_in(subject: &Subject<'_>, from: &Fields<'_>, map: &str, key: &str) -> Option<String> {
    let shown = format!("ConfigMap {}", place(subject.namespace(), map));
    let text = subject.world.config_text(subject.namespace(), map, key).map(|text| text.trim().to_owned());
    match text {
        Some(_) => {
            let text = format!("is fixed text now; edits of {shown} no longer reach it");
            subject.notes.change(from.own_path(), text);
        }
        None => {
            let text = format!("no key {key} of {shown} is in the input: set extraConfig.baseUrl");
            subject.notes.todo(from.own_path(), text);
        }
    }
    text
}

/// Parses a number of JSON.
fn number(text: &str) -> Option<Number> {
    let text = text.trim();
    let whole = text.parse::<i64>().ok().map(Number::from);
    whole.or_else(|| Number::from_f64(text.parse().ok()?))
}
