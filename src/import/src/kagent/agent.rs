//! Agent of kagent: declarative ones run on our runtime, others bring an image.

use crds::{egress::EgressEntry, tool_server::AllowedNamespaces};
use serde_json::{Map, Value, json};

use super::{
    admitted::admit_users, card, deployment, is_first_api, model_config, prompt, prompt_template::Variables,
    split_reference, tools, tools::ParsedTools,
};
use crate::{
    env::{set, set_list},
    fields::Fields,
    overlay::{self, Overlay},
    source::Source,
    subject::Subject,
};

/// Text on the memory of the first API.
pub(super) const NO_MEMORY: &str = "no controller of kagent reads it";
/// ModelConfig that kagent takes where an agent names none.
const DEFAULT_MODEL: &str = "default-model-config";

/// Turns an Agent into ours.
pub(super) fn convert(subject: &Subject<'_>) {
    let spec = subject.spec();
    let mut ours = Map::new();
    let mut overlay = Overlay::of("Agent");
    ours.insert("name".to_owned(), subject.id.name.clone().into());
    if is_first_api(subject) {
        describe(subject, &spec, None, &mut ours);
        declarative(subject, &spec, &spec, &mut ours, &mut overlay);
        if spec.value("memory").is_some() {
            subject.notes.skip("spec.memory", NO_MEMORY);
        }
        admit_users(subject, "/agent/ref", &mut ours);
    } else {
        let type_ = spec.text("type");
        let (part, byo) = (spec.part("declarative"), spec.part("byo"));
        let is_byo = match (part.is_empty(), byo.is_empty()) {
            (true, true) => {
                subject.notes.skip("", "kagent refuses it too: it has neither declarative nor byo");
                spec.ignore();
                return;
            }
            // kagent goes by the type, and so by what is set where only one is.
            (false, false) => type_ == Some("BYO"),
            (no_part, _) => no_part,
        };
        let other = if is_byo { &part } else { &byo };
        if !other.is_empty() {
            subject.notes.skip(other.own_path(), format!("is not read with type {}", type_.unwrap_or("Declarative")));
            other.ignore();
        }
        match is_byo {
            false => {
                describe(subject, &spec, Some(&part), &mut ours);
                declarative(subject, &spec, &part, &mut ours, &mut overlay);
            }
            true => {
                describe(subject, &spec, None, &mut ours);
                if !own_image(subject, &byo, &mut ours, &mut overlay) {
                    spec.ignore();
                    return;
                }
            }
        }
        sandbox(subject, &spec, &mut ours);
        common_losses(subject, &spec);
        let allowed = spec.typed::<AllowedNamespaces>("allowedNamespaces", "choice of namespaces");
        set(&mut ours, "allowedNamespaces", allowed);
    }
    set(&mut ours, "podTemplate", overlay.finish());
    subject.emit("Agent", ours.into());
}

fn describe(subject: &Subject<'_>, spec: &Fields<'_>, inner: Option<&Fields<'_>>, ours: &mut Map<String, Value>) {
    let own = spec.text("description");
    // It is no field there, but common.
    let inner = inner.and_then(|inner| inner.text("description"));
    if own.is_none() && inner.is_some() {
        subject.notes.change("spec.declarative.description", "is the description now, which spec has not");
    } else if inner.is_some() {
        subject.notes.skip("spec.declarative.description", "spec.description goes first");
    }
    let Some(text) = own.or(inner) else { return };
    set(ours, "description", Some(card::cut(subject, "spec.description", text, 4096)));
}

/// Turns the domains that a sandbox may call into `egress`, which holds for the whole agent.
fn sandbox(subject: &Subject<'_>, spec: &Fields<'_>, ours: &mut Map<String, Value>) {
    let sandbox = spec.part("sandbox");
    if sandbox.is_empty() {
        return;
    }
    let network = sandbox.part("network");
    let mut entries: Vec<Value> = Vec::new();
    for domain in network.texts("allowedDomains") {
        let entry = Value::from(domain);
        if domain.parse::<EgressEntry>().is_err() {
            subject.notes.loss(&network.path("allowedDomains"), format!("{domain:?} is no host of egress"));
        } else if !entries.contains(&entry) {
            entries.push(entry);
        }
    }
    match entries.is_empty() {
        true => subject.notes.loss(&spec.path("sandbox"), "no network sandbox"),
        false => subject.notes.change(
            &network.path("allowedDomains"),
            "is egress now: for the whole agent, its model and tools added, at port 443 where none is given",
        ),
    }
    set_list(ours, "egress", entries);
}

/// Reports what ours have nothing for.
fn common_losses(subject: &Subject<'_>, spec: &Fields<'_>) {
    if spec.value("skills").is_some() {
        subject.notes.loss(&spec.path("skills"), "no skills from images or git");
    }
}

/// Reads what an agent on kagent's own runtime has; `part` holds it, which in the first API is the spec itself.
fn declarative(
    subject: &Subject<'_>,
    spec: &Fields<'_>,
    part: &Fields<'_>,
    ours: &mut Map<String, Value>,
    overlay: &mut Overlay,
) {
    set(ours, "framework", Some("corail"));
    for key in ["stream", "runtime"] {
        part.value(key);
    }
    let from_model = model(subject, part, ours);
    let variables = variables(subject, spec, part, ours);
    let texts = variables.0.iter().map(|(name, text)| (*name, text.as_str())).collect();
    prompt::take(subject, part, ours, &Variables { texts, lists: variables.1 });
    let tools = ParsedTools::read(subject, part);
    let asks = tools.ask();
    tools.set(subject, &part.path("tools"), ours);
    set(ours, "card", card::card(subject, part));
    if part.flag("executeCodeBlocks") {
        subject.notes.loss(&part.path("executeCodeBlocks"), "code in answers is not run");
    }
    let is_inner = part.own_path() != spec.own_path();
    for (key, text) in [("memory", "no long-term memory"), ("context", "no compaction; over 4 MiB the oldest turns go")]
    {
        if is_inner && part.value(key).is_some() {
            subject.notes.loss(&part.path(key), text);
        }
    }
    let deployment = part.part("deployment");
    deployment::take(subject, &deployment, ours, overlay, &from_model);
    let has_several = ours.contains_key("scaling")
        || ours.get("replicas").and_then(Value::as_i64).is_some_and(|replicas| replicas > 1);
    if asks && has_several {
        let text = "a tool asks a person, and several Pods wait for the answer in a database alone: set storage to \
                    postgresql, or replicas to 1";
        subject.notes.todo(&deployment.path("replicas"), text);
    }
}

type Texts = Vec<(&'static str, String)>;
type Lists = std::collections::BTreeMap<&'static str, Vec<String>>;

/// Returns the variables of a template of this agent.
fn variables(subject: &Subject<'_>, spec: &Fields<'_>, part: &Fields<'_>, ours: &Map<String, Value>) -> (Texts, Lists) {
    let description = ours.get("description").and_then(Value::as_str).unwrap_or_default();
    let texts = vec![
        ("AgentName", subject.id.name.clone()),
        ("AgentNamespace", subject.id.namespace.clone()),
        ("Description", description.to_owned()),
    ];
    let has_skills = part.own_path() != spec.own_path();
    let skills = has_skills.then(|| spec.value("skills")).flatten().map(card::skill_names).unwrap_or_default();
    (texts, [("ToolNames", tools::names(part)), ("SkillNames", skills)].into())
}

/// Sets the model, and returns the variables that the operator sets from its Secret.
fn model(subject: &Subject<'_>, part: &Fields<'_>, ours: &mut Map<String, Value>) -> Vec<String> {
    let here = subject.namespace();
    let field = part.path("modelConfig");
    let named = part.text("modelConfig");
    if named.is_none() {
        subject.notes.change(&field, format!("is ModelConfig {DEFAULT_MODEL}, which kagent takes where none is named"));
    }
    let (namespace, name) = split_reference(named.unwrap_or(DEFAULT_MODEL), here);
    let found = subject.world.find(Source::Kagent, "ModelConfig", namespace, name);
    let reference = match found {
        Some(object) if namespace != here => copied(subject, &field, &Subject::new(object, subject.world)),
        Some(_) => Some(subject.world.name_of(Source::Kagent, "ModelConfig", "Model", namespace, name)),
        None => {
            subject.missing(&field, "ModelConfig", namespace, name);
            Some(subject.world.name_of(Source::Kagent, "ModelConfig", "Model", here, name))
        }
    };
    if let Some(name) = reference {
        ours.insert("modelRef".to_owned(), json!({ "name": name }));
    }
    // Its lines are reported for the ModelConfig itself.
    let specs = found.and_then(|object| model_config::specs(&Subject::new(object, subject.world)));
    if found.is_some() && specs.is_none() {
        let shown = crate::input::shown("ModelConfig", namespace, name);
        subject.notes.todo(&field, format!("{shown} is left out: set modelRef to a Model that is there"));
    }
    let keys = specs.as_ref().and_then(|specs| specs.plugin["credentialKeys"].as_array());
    keys.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Copies a Model and its PluginConfig of another namespace, and returns the name of the copy.
fn copied(subject: &Subject<'_>, field: &str, from: &Subject<'_>) -> Option<String> {
    let here = subject.namespace();
    let specs = model_config::specs(from)?;
    let plugin = subject.world.claim("PluginConfig", here, &from.name, &specs.plugin);
    let model = specs.model_on(&plugin);
    let name = subject.world.claim("Model", here, &from.name, &model);
    subject.emit_more("PluginConfig", &plugin, json!({ "spec": specs.plugin }));
    subject.emit_more("Model", &name, json!({ "spec": model }));
    let home = format!("{here}/");
    let secrets: Vec<_> = specs.secrets.iter().filter(|secret| !secret.starts_with(&home)).collect();
    if secrets.is_empty() {
        subject.notes.change(field, format!("{} is copied here, with its provider", from.id.shown()));
    }
    for secret in secrets {
        subject.notes.todo(field, format!("copy Secret {secret} to {here}"));
    }
    Some(name)
}

/// Reads what an agent with an image of its own has; false if it has none.
fn own_image(subject: &Subject<'_>, byo: &Fields<'_>, ours: &mut Map<String, Value>, overlay: &mut Overlay) -> bool {
    let part = byo.part("deployment");
    set(ours, "framework", Some("custom"));
    let Some(image) = part.text("image") else {
        subject.notes.skip("", "kagent refuses it too: it has no image");
        part.ignore();
        return false;
    };
    set(ours, "image", Some(image));
    set(ours, "port", Some(8080));
    set(ours, "protocol", Some("a2a"));
    ours.insert("readiness".to_owned(), json!({ "path": "/.well-known/agent-card.json" }));
    overlay::tell_image(subject);
    subject.notes.todo(
        "spec.byo",
        "an image built with kagent's SDK wants KAGENT_URL, the kagent controller that keeps its sessions",
    );
    overlay.set_in_container("command", part.text("cmd").map(|cmd| json!([cmd])));
    let args = part.texts("args");
    overlay.set_in_container("args", Some(args).filter(|args| !args.is_empty()));
    overlay.set_in_container("workingDir", part.text("workingDir"));
    deployment::take(subject, &part, ours, overlay, &[]);
    if ours.contains_key("serviceAccountName") {
        let key = if part.has("serviceAccountName") { "serviceAccountName" } else { "serviceAccountConfig" };
        overlay.keep_token(subject, &part.path(key));
    }
    let mut variables = ours.remove("env").and_then(|env| env.as_array().cloned()).unwrap_or_default();
    let namespace = json!({ "fieldRef": { "fieldPath": "metadata.namespace" } });
    for variable in [
        json!({ "name": "KAGENT_NAME", "value": subject.name }),
        json!({ "name": "KAGENT_NAMESPACE", "valueFrom": namespace }),
    ] {
        if !variables.iter().any(|known| known["name"] == variable["name"]) {
            variables.push(variable);
        }
    }
    set_list(ours, "env", variables);
    true
}
