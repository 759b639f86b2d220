//! `deployment` of kagent's agents.

use serde_json::{Map, Value, json};

use crate::{
    env::{self, set, set_list},
    fields::Fields,
    needs,
    overlay::Overlay,
    subject::Subject,
};

/// Copies what both kinds of agents have. `from_model` are the variables that come from the Secret of the model.
pub(super) fn take(
    subject: &Subject<'_>,
    part: &Fields<'_>,
    ours: &mut Map<String, Value>,
    overlay: &mut Overlay,
    from_model: &[String],
) {
    let variables = env::variables(subject, part, "env", "Agent", None, from_model);
    env::set_replicas(subject, part, ours);
    set_list(ours, "env", variables);
    set(ours, "imagePullPolicy", env::pull_policy(subject, part));
    set(ours, "imagePullSecrets", env::pull_secrets(subject, part));
    set(ours, "resources", env::resources(part));
    set(ours, "serviceAccountName", account(subject, part, "serviceAccountConfig"));
    overlay.take(subject, part);
    overlay.take_containers(subject, part, "extraContainers");
    if part.value("imageRegistry").is_some() {
        subject.notes.skip(&part.path("imageRegistry"), "the image is the operator's");
    }
}

/// Returns the name of the ServiceAccount that a spec names, or of the one that it wants, which is added.
pub(super) fn account(subject: &Subject<'_>, part: &Fields<'_>, key: &str) -> Option<String> {
    let named = part.text("serviceAccountName");
    if let Some(name) = named {
        needs::account(subject, &part.path("serviceAccountName"), name);
    }
    let made = own_account(subject, part, key);
    named.map(str::to_owned).or(made)
}

/// Adds the ServiceAccount whose labels and annotations a spec sets, and returns its name.
fn own_account(subject: &Subject<'_>, part: &Fields<'_>, key: &str) -> Option<String> {
    let config = part.part(key);
    if config.is_empty() {
        return None;
    }
    let path = config.own_path().to_owned();
    let mut metadata = json!({});
    for field in ["labels", "annotations"] {
        let texts: Map<_, _> = config
            .entries(field)
            .into_iter()
            .filter(|(_, value)| value.is_string())
            .map(|(key, value)| (key.to_owned(), value.clone()))
            .collect();
        if !texts.is_empty() {
            metadata[field] = texts.into();
        }
    }
    if part.has("serviceAccountName") {
        subject.notes.skip(&path, "serviceAccountName goes first");
        return None;
    }
    let wanted = format!("{}-sa", subject.name);
    let name = subject.world.claim("ServiceAccount", subject.namespace(), &wanted, &metadata);
    metadata["name"] = name.clone().into();
    if !subject.namespace().is_empty() {
        metadata["namespace"] = subject.namespace().into();
    }
    subject.emit_more("ServiceAccount", &name, json!({ "metadata": metadata }));
    subject.notes.change(&path, format!("is ServiceAccount {name} now"));
    Some(name)
}
