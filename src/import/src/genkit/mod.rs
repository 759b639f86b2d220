//! genkit-operator (`genkit.dev/v1alpha1`), whose kinds ours are close to.

mod flow;
mod tool;

use serde_json::{Map, Value, json};

use crate::{
    env::{set, set_list},
    fields::Fields,
    input::shown,
    source::Source,
    subject::Subject,
};

/// Returns the kinds that an object becomes under its own name.
pub(crate) fn targets(object: &Value) -> &'static [&'static str] {
    match object["kind"].as_str() {
        Some("PluginConfig") => &["PluginConfig"],
        Some("Model") => &["Model"],
        Some("Prompt") => &["Prompt"],
        Some("Tool") => &["Tool"],
        Some("Flow") => &["Flow"],
        Some("FlowSet") => &["FlowSet"],
        _ => &[],
    }
}

/// Turns an object into ours.
pub(crate) fn convert(subject: &Subject<'_>) {
    match subject.id.kind.as_str() {
        "PluginConfig" => plugin_config(subject),
        "Model" => {
            let spec = subject.spec();
            if let Some(ours) = model(subject, &spec) {
                subject.emit("Model", ours);
            }
        }
        "Prompt" => prompt(subject),
        "Tool" => tool::convert(subject),
        "Flow" => flow::convert(subject),
        "FlowSet" => flow::convert_set(subject),
        "Dataset" | "Eval" => subject.notes.loss("", "no evaluations yet"),
        kind => subject.notes.skip("", format!("genkit-operator has no kind {kind} that is known here")),
    }
}

fn refused(subject: &Subject<'_>, spec: &Fields<'_>, why: &str) {
    subject.notes.skip("", format!("genkit-operator refuses it too: {why}"));
    spec.ignore();
}

fn plugin_config(subject: &Subject<'_>) {
    let spec = subject.spec();
    let Some(type_) = spec.text("type") else {
        return refused(subject, &spec, "it has no type");
    };
    let mut ours = Map::new();
    let type_ = type_.to_lowercase();
    crate::env::tell_provider(subject, "spec.type", &type_);
    set(&mut ours, "type", Some(type_));
    let extra = spec.value("extraConfig").filter(|extra| extra.is_object());
    let from_extra = |key: &str| extra.and_then(|extra| extra.get(key)?.as_str()).filter(|text| !text.is_empty());
    let region = spec.text("region").or(from_extra("location")).or(from_extra("region"));
    set(&mut ours, "region", region);
    let secret = spec.part("credentialsRef");
    if let Some(name) = secret.text("name") {
        subject.needs(secret.own_path(), "Secret", name);
        ours.insert("credentialsRef".to_owned(), json!({ "name": name }));
    }
    let mut keys: Vec<Value> = Vec::new();
    for key in spec.texts("credentialKeys").into_iter().map(Value::from) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    set_list(&mut ours, "credentialKeys", keys);
    let extra = extra.cloned().map(|extra| without_other_region(subject, extra, region));
    set(&mut ours, "extraConfig", extra.filter(|extra| *extra != json!({})));
    subject.emit("PluginConfig", ours.into());
}

/// Returns `extraConfig` without a place that is another than the region, which goes first.
fn without_other_region(subject: &Subject<'_>, mut extra: Value, region: Option<&str>) -> Value {
    let Some(fields) = extra.as_object_mut() else { return extra };
    for key in ["location", "region"] {
        let is_other =
            fields.get(key).and_then(Value::as_str).is_some_and(|place| region.is_some_and(|it| it != place));
        if is_other {
            fields.remove(key);
            let text = format!("is left out: {:?} goes first", region.unwrap_or_default());
            subject.notes.change(&format!("spec.extraConfig.{key}"), text);
        }
    }
    extra
}

/// Returns the spec of a Model, of an object or of a flow's `modelSpec`.
fn model(subject: &Subject<'_>, spec: &Fields<'_>) -> Option<Value> {
    let plugin = spec.part("pluginConfigRef");
    let (provider, name, plugin_name) = (spec.text("provider"), spec.text("model"), plugin.text("name"));
    let (Some(provider), Some(name), Some(plugin_name)) = (provider, name, plugin_name) else {
        let field = if spec.own_path().starts_with("spec.flows") { spec.own_path() } else { "" };
        subject.notes.skip(field, "genkit-operator refuses it too: a model needs provider, model and pluginConfigRef");
        spec.ignore();
        return None;
    };
    let mut ours = json!({ "provider": provider, "model": name });
    ours["pluginConfigRef"] = json!({ "name": reference(subject, plugin.own_path(), "PluginConfig", plugin_name) });
    for key in ["info", "defaultConfig"] {
        if let Some(value) = spec.value(key).filter(|value| value.is_object()) {
            ours[key] = value.clone();
        }
    }
    if spec.has("defaultConfig") {
        subject.notes.change(&spec.path("defaultConfig"), "defaultConfig is applied here");
    }
    Some(ours)
}

fn prompt(subject: &Subject<'_>) {
    let spec = subject.spec();
    let Some(content) = spec.text("content").filter(|content| !content.trim().is_empty()) else {
        subject.notes.skip("", "genkit-operator refuses it too");
        spec.ignore();
        return;
    };
    let mut ours = Map::new();
    set(&mut ours, "content", Some(content));
    set(&mut ours, "description", spec.text("description"));
    subject.emit("Prompt", ours.into());
}

/// Returns the name that an object of the same namespace has among ours, and reports if it is not in the input.
fn reference(subject: &Subject<'_>, field: &str, kind: &'static str, name: &str) -> String {
    let here = subject.namespace();
    let ours = subject.world.name_of(Source::Genkit, kind, kind, here, name);
    if subject.world.find(Source::Genkit, kind, here, name).is_none() {
        subject.missing(field, kind, here, name);
    } else {
        subject.refers(field, shown(kind, here, name), (kind.to_owned(), here.to_owned(), ours.clone()));
    }
    ours
}
