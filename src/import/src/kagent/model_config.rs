//! ModelConfig and ModelProviderConfig: a PluginConfig, and a Model.

use serde_json::{Map, Number, Value, json};

use super::{is_first_api, split_reference, tls};
use crate::{
    env::{set, set_list},
    fields::Fields,
    headers::{self, Receiver},
    input::place,
    period,
    subject::Subject,
};

/// Provider of kagent: its name, the type of our PluginConfig, and the block with its settings.
type Provider = (&'static str, &'static str, &'static str);

const PROVIDERS: [Provider; 8] = [
    ("OpenAI", "openai", "openAI"),
    ("Anthropic", "anthropic", "anthropic"),
    ("Gemini", "gemini", "gemini"),
    ("Ollama", "ollama", "ollama"),
    ("AzureOpenAI", "azure-openai", "azureOpenAI"),
    ("Bedrock", "bedrock", "bedrock"),
    ("GeminiVertexAI", "gemini-vertex", "geminiVertexAI"),
    ("AnthropicVertexAI", "anthropic-vertex", "anthropicVertexAI"),
];

/// Specs of a PluginConfig and a Model; the Model has no reference to the PluginConfig yet.
pub(super) struct ModelSpecs {
    /// Secrets that they need, as `ns/name`.
    pub(super) secrets: Vec<String>,
    pub(super) plugin: Value,
    pub(super) model: Value,
}

impl ModelSpecs {
    /// Returns the spec of the Model, on a PluginConfig of this name.
    pub(super) fn model_on(&self, plugin: &str) -> Value {
        let mut model = self.model.clone();
        model["pluginConfigRef"] = json!({ "name": plugin });
        model
    }
}

/// Turns a ModelConfig into ours.
pub(super) fn convert(subject: &Subject<'_>) {
    if let Some(specs) = specs(subject) {
        subject.emit("PluginConfig", specs.plugin.clone());
        subject.emit("Model", specs.model_on(&subject.name));
    }
}

/// Turns a ModelProviderConfig into ours.
pub(super) fn convert_provider(subject: &Subject<'_>) {
    let spec = subject.spec();
    let Some((_, type_, _)) = provider(subject, "spec.type", spec.text("type").unwrap_or_default()) else {
        spec.ignore();
        return;
    };
    let mut plugin = Map::new();
    set(&mut plugin, "type", Some(type_));
    if let Some(endpoint) = spec.text("endpoint") {
        plugin.insert("extraConfig".to_owned(), json!({ "baseUrl": endpoint }));
    }
    let secret = spec.part("secretRef");
    if let Some(name) = secret.text("name") {
        subject.needs(secret.own_path(), "Secret", name);
        plugin.insert("credentialsRef".to_owned(), json!({ "name": name }));
    }
    if let Some(key) = secret.text("key") {
        plugin.insert("credentialKeys".to_owned(), json!([key]));
    }
    subject.emit("PluginConfig", plugin.into());
    subject.notes.loss("", "models are not discovered");
}

fn provider(subject: &Subject<'_>, field: &str, name: &str) -> Option<Provider> {
    let found = PROVIDERS.into_iter().find(|(known, ..)| *known == name);
    match found {
        None => subject.notes.skip("", format!("kagent has no provider {name:?}")),
        Some((_, type_, _)) => crate::env::tell_provider(subject, field, type_),
    }
    found
}

/// Returns the specs of what a ModelConfig becomes.
pub(super) fn specs(subject: &Subject<'_>) -> Option<ModelSpecs> {
    let spec = subject.spec();
    let name = spec.text("provider").unwrap_or("OpenAI");
    let Some(provider) = provider(subject, "spec.provider", name) else {
        spec.ignore();
        return None;
    };
    let Some(model) = spec.text("model") else {
        subject.notes.skip("", "kagent refuses it too: it has no model");
        spec.ignore();
        return None;
    };
    let mut settings = Settings { config: Map::new(), extra: Map::new(), plugin: Map::new(), headers: Vec::new() };
    let (_, type_, block) = provider;
    set(&mut settings.plugin, "type", Some(type_));
    let mut ours = json!({ "provider": type_, "model": model });

    for (header, value) in spec.entries("defaultHeaders") {
        let path = format!("spec.defaultHeaders[{header}]");
        settings.header(subject, &path, header, value.as_str().unwrap_or_default());
    }
    // kagent has some blocks of other providers, which it does not read.
    for (_, _, other) in PROVIDERS.iter().filter(|(_, _, other)| *other != block && spec.has(other)) {
        subject.notes.skip(&spec.path(other), format!("is not read with provider {name}"));
        spec.value(other);
    }
    let part = spec.part(block);
    if let Some(deployment) = settings.take(subject, type_, &part) {
        ours["model"] = deployment.into();
    }
    drop(part);

    if spec.flag("apiKeyPassthrough") {
        settings.plugin.insert("passthrough".to_owned(), true.into());
        subject.notes.change(
            "spec.apiKeyPassthrough",
            "callers sign in by X-Recif-Authorization, so that Authorization reaches the agent",
        );
    }
    set(&mut settings.plugin, "tls", tls::tls(subject, &spec));
    settings.credentials(subject, type_, &spec);
    if is_first_api(subject)
        && let Some(info) = spec.value("modelInfo").filter(|info| info.is_object())
    {
        ours["info"] = info.clone();
    }
    let here = subject.namespace();
    let home = spec.text(key_field(subject)).map_or(here, |named| split_reference(named, here).0);
    let key = settings.plugin.get("credentialsRef").and_then(|key| key["name"].as_str());
    let authority = settings.plugin.get("tls").and_then(|tls| tls["caSecretRef"]["name"].as_str());
    let secrets = [key.map(|name| place(home, name)), authority.map(|name| place(here, name))];
    let secrets = secrets.into_iter().flatten().collect();
    let Settings { config, extra, mut plugin, mut headers } = settings;
    headers::clip(subject, "spec.defaultHeaders", &mut headers, headers::MOST);
    set_list(&mut plugin, "headersFrom", headers);
    set(&mut plugin, "extraConfig", Some(extra).filter(|extra| !extra.is_empty()));
    if !config.is_empty() {
        ours["defaultConfig"] = config.into();
    }
    Some(ModelSpecs { secrets, plugin: plugin.into(), model: ours })
}

/// Returns the field that names the Secret with the key.
fn key_field(subject: &Subject<'_>) -> &'static str {
    if is_first_api(subject) { "apiKeySecretRef" } else { "apiKeySecret" }
}

/// Settings of a provider, sorted by where ours have them.
struct Settings {
    /// `defaultConfig` of the Model.
    config: Map<String, Value>,
    /// `extraConfig` of the PluginConfig.
    extra: Map<String, Value>,
    plugin: Map<String, Value>,
    headers: Vec<Value>,
}

impl Settings {
    fn header(&mut self, subject: &Subject<'_>, path: &str, name: &str, value: &str) {
        let same = |known: &Value| known["name"].as_str().is_some_and(|known| known.eq_ignore_ascii_case(name));
        if self.headers.iter().any(same) {
            return subject.notes.skip(path, "has the name of a header before it");
        }
        self.headers.extend(headers::text(subject, path, name, value, Receiver::Provider));
    }

    /// Reads the block of the provider. Returns the name of a deployment that stands for the model.
    fn take<'f>(&mut self, subject: &Subject<'_>, type_: &str, part: &Fields<'f>) -> Option<&'f str> {
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
                    self.extra.insert("baseUrl".to_owned(), super::remote_server::with_scheme(host).into());
                }
                self.ollama_options(part);
            }
            "bedrock" => set(&mut self.plugin, "region", part.text("region")),
            "gemini-vertex" | "anthropic-vertex" => {
                self.extra_text(part, "projectID", "projectId");
                set(&mut self.plugin, "region", part.text("location"));
            }
            _ => {}
        }
        None
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

    fn credentials(&mut self, subject: &Subject<'_>, type_: &str, spec: &Fields<'_>) {
        let field = key_field(subject);
        let path = spec.path(field);
        let (secret, key) = (spec.text(field), spec.text("apiKeySecretKey"));
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

/// Parses a number of JSON.
fn number(text: &str) -> Option<Number> {
    let text = text.trim();
    let whole = text.parse::<i64>().ok().map(Number::from);
    whole.or_else(|| Number::from_f64(text.parse().ok()?))
}
