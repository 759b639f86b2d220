//! ModelConfig and ModelProviderConfig: a PluginConfig, and a Model.

use serde_json::{Map, Value, json};

use super::{
    is_first_api,
    provider_settings::{FOUNDRY, ProviderSettings, key_field},
    split_reference, tls,
};
use crate::{
    env::{set, set_list},
    headers,
    input::place,
    subject::Subject,
};

/// Provider of kagent: its name, the type of our PluginConfig, and the block with its settings.
type Provider = (&'static str, &'static str, &'static str);

const PROVIDERS: [Provider; 9] = [
    ("OpenAI", "openai", "openAI"),
    ("Anthropic", "anthropic", "anthropic"),
    ("Gemini", "gemini", "gemini"),
    ("Ollama", "ollama", "ollama"),
    ("AzureOpenAI", "azure-openai", "azureOpenAI"),
    ("Foundry", "azure-openai", FOUNDRY),
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
        None if name == "SAPAICore" => {
            subject.notes.loss("", "left out: Récif's runtime does not speak the protocol of SAP AI Core");
        }
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
    let mut settings = ProviderSettings::default();
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
    let ProviderSettings { config, extra, mut plugin, mut headers, .. } = settings;
    headers::clip(subject, "spec.defaultHeaders", &mut headers, headers::MOST);
    set_list(&mut plugin, "headersFrom", headers);
    set(&mut plugin, "extraConfig", Some(extra).filter(|extra| !extra.is_empty()));
    if !config.is_empty() {
        ours["defaultConfig"] = config.into();
    }
    Some(ModelSpecs { secrets, plugin: plugin.into(), model: ours })
}
