//! Flow and FlowSet of genkit-operator.

use serde_json::{Map, Value, json};

use super::{model, reference, refused};
use crate::{
    env::{self, set, set_list},
    fields::Fields,
    names, needs,
    overlay::{self, Overlay},
    subject::Subject,
};

/// Text on a flow that nothing could answer.
const NO_PROMPTS: &str = "a flow without prompts has no route";

/// Most flows of a FlowSet, and most prompts and tools of a flow.
const MOST: usize = 64;

/// Turns a Flow into ours.
pub(super) fn convert(subject: &Subject<'_>) {
    let spec = subject.spec();
    let mut ours = Map::new();
    if !definition(subject, &spec, &mut ours) {
        spec.ignore();
        return;
    }
    runtime(subject, &spec, "Flow", &mut ours);
    subject.emit("Flow", ours.into());
}

/// Turns a FlowSet into ours.
pub(super) fn convert_set(subject: &Subject<'_>) {
    let spec = subject.spec();
    let mut flows: Vec<Value> = Vec::new();
    for entry in spec.parts("flows") {
        let Some(given) = entry.text("name") else {
            subject.notes.skip(entry.own_path(), "has no name");
            entry.ignore();
            continue;
        };
        let fixed = names::label(given, 40, true);
        let mut flow = Map::new();
        if !definition(subject, &entry, &mut flow) {
            entry.ignore();
            continue;
        }
        let is_free = |name: &String| !flows.iter().any(|known| known["name"] == *name);
        let mut numbered = (1..100).map(|number| match number {
            1 => fixed.clone(),
            number => format!("{}-{number}", names::label(&fixed, 37, true)),
        });
        let Some(name) = numbered.find(is_free) else { continue };
        if name != given {
            subject.notes.change(&entry.path("name"), format!("its route is now /{name}"));
        }
        set(&mut flow, "name", Some(name));
        flows.push(flow.into());
    }
    if flows.is_empty() {
        return refused(subject, &spec, "it has no flow that answers");
    }
    if flows.len() > MOST {
        subject.notes.loss("spec.flows", format!("at most {MOST} flows; the others are left out"));
        flows.truncate(MOST);
    }
    let mut ours = Map::new();
    set_list(&mut ours, "flows", flows);
    runtime(subject, &spec, "FlowSet", &mut ours);
    subject.emit("FlowSet", ours.into());
}

/// Reads prompts, tools and model of a flow; false if it is left out.
fn definition(subject: &Subject<'_>, spec: &Fields<'_>, ours: &mut Map<String, Value>) -> bool {
    let prompts = prompts(subject, spec);
    if prompts.is_empty() {
        let path = if spec.own_path() == "spec" { "" } else { spec.own_path() };
        subject.notes.loss(path, NO_PROMPTS);
        return false;
    }
    set_list(ours, "prompts", prompts);
    let mut tools: Vec<Value> = Vec::new();
    for tool in spec.parts("tools") {
        let Some(name) = tool.text("name") else { continue };
        let tool = json!({ "name": reference(subject, tool.own_path(), "Tool", name) });
        if !tools.contains(&tool) {
            tools.push(tool);
        }
    }
    if tools.len() > MOST {
        subject.notes.loss(&spec.path("tools"), format!("at most {MOST} tools; the others are left out"));
        tools.truncate(MOST);
    }
    set_list(ours, "tools", tools);
    let (by_reference, in_place) = (spec.part("modelRef"), spec.part("modelSpec"));
    let named = by_reference.text("name");
    if let Some(name) = named {
        if !in_place.is_empty() {
            subject.notes.change(in_place.own_path(), "modelRef goes first");
            in_place.ignore();
        }
        let name = reference(subject, by_reference.own_path(), "Model", name);
        ours.insert("modelRef".to_owned(), json!({ "name": name }));
    } else if in_place.is_empty() {
        let plugin = json!({ "type": "stub" });
        let name = subject.world.claim("PluginConfig", subject.namespace(), "stub", &plugin);
        subject.emit_more("PluginConfig", &name, json!({ "spec": plugin }));
        let stub = json!({ "provider": "stub", "model": "stub-echo", "pluginConfigRef": { "name": name } });
        ours.insert("modelSpec".to_owned(), stub);
        subject.notes.change(&spec.path("modelRef"), format!("no model is named: PluginConfig {name} answers"));
    } else {
        let Some(model) = model(subject, &in_place) else { return false };
        ours.insert("modelSpec".to_owned(), model);
    }
    true
}

fn prompts(subject: &Subject<'_>, spec: &Fields<'_>) -> Vec<Value> {
    let mut prompts: Vec<Value> = Vec::new();
    for source in spec.parts("prompts") {
        let (by_reference, in_place) = (source.part("promptRef"), source.part("prompt"));
        if let Some(name) = by_reference.text("name") {
            if !in_place.is_empty() {
                subject.notes.change(in_place.own_path(), "promptRef goes first");
                in_place.ignore();
            }
            let name = reference(subject, by_reference.own_path(), "Prompt", name);
            prompts.push(json!({ "promptRef": { "name": name } }));
            continue;
        }
        let (name, content) = (in_place.text("name"), in_place.text("content"));
        let content = content.filter(|content| !content.trim().is_empty());
        let (Some(name), Some(content)) = (name, content) else {
            subject.notes.skip(source.own_path(), "genkit-operator refuses it too: it has no name or no text");
            source.ignore();
            continue;
        };
        let fixed = inline_name(name);
        let is_free = |name: &String| !prompts.iter().any(|known| known["prompt"]["name"] == *name);
        let Some(fixed) = names::numbered(&fixed).find(is_free) else { continue };
        if fixed != name {
            subject.notes.change(&in_place.path("name"), format!("is now {fixed:?}"));
        }
        prompts.push(json!({ "prompt": { "name": fixed, "content": content } }));
    }
    if prompts.len() > MOST {
        subject.notes.loss(&spec.path("prompts"), format!("at most {MOST} prompts; the others are left out"));
        prompts.truncate(MOST);
    }
    prompts
}

/// Returns the name of a prompt as we take it: `_x`, which is a partial there, is one here without `_`.
fn inline_name(name: &str) -> String {
    let is_fine = |it: char| it.is_ascii_alphanumeric() || "-_.".contains(it);
    let text: String = name.chars().map(|it| if is_fine(it) { it } else { '-' }).take(253).collect();
    let text = text.trim_start_matches(['_', '-', '.']);
    if text.is_empty() { "prompt".to_owned() } else { text.to_owned() }
}

/// Reads how the Pods run.
fn runtime(subject: &Subject<'_>, spec: &Fields<'_>, kind: &str, ours: &mut Map<String, Value>) {
    let mut overlay = Overlay::of(kind);
    let image = spec.text("image");
    if let Some(image) = image {
        set(ours, "image", Some(image));
        subject.notes.change(
            &spec.path("image"),
            "the image stays; without it Récif's runner answers, which calls tools and streams",
        );
        overlay::tell_image(subject);
    }
    set(ours, "imagePullPolicy", env::pull_policy(subject, spec));
    env::set_replicas(subject, spec, ours);
    let port = env::port(subject, spec, "port");
    set(ours, "port", port);
    set_list(ours, "env", env::variables(subject, spec, "env", kind, Some(port.unwrap_or(8080)), &[]));
    set(ours, "resources", env::resources(spec));
    set(ours, "imagePullSecrets", env::pull_secrets(subject, spec));
    if let Some(account) = spec.text("serviceAccountName") {
        set(ours, "serviceAccountName", Some(account));
        needs::account(subject, &spec.path("serviceAccountName"), account);
        if image.is_some() {
            overlay.keep_token(subject, &spec.path("serviceAccountName"));
        }
    }
    if let Some(type_) = spec.text("serviceType") {
        if matches!(type_, "ClusterIP" | "NodePort" | "LoadBalancer") {
            set(ours, "serviceType", Some(type_));
        } else {
            subject.notes.skip(&spec.path("serviceType"), "is no type of a Service");
        }
    }
    set(ours, "podTemplate", overlay.finish());
}
