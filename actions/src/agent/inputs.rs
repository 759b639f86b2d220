//! What an Agent refers to: Tools, the Secrets and ConfigMaps of its environment, and the operator's settings.

use std::{collections::BTreeMap, sync::Arc};

use crds::{
    Agent, Phase, ReferencePhase, Tool, digest,
    references::{RefKind, agent_references},
};
use serde_json::json;

use super::settings_digest;
use crate::{
    machine::Machine,
    ports::{Child, ChildKind, ChildRef, World},
    render::is_builtin_tool,
    workload::{Found, Inputs},
};

/// Looks at everything the Agent refers to.
pub(super) fn look_up(agent: &Agent, world: &World) -> Inputs {
    let namespace = agent.metadata.namespace.as_deref().unwrap_or_default();
    let mut found = BTreeMap::from([("Settings".to_owned(), Found::Here(settings_digest(&world.settings)))]);
    for reference in agent_references(agent) {
        let state = match reference.kind {
            RefKind::Tool => tool(&reference.name, world.views.tool(namespace, &reference.name)),
            RefKind::Secret | RefKind::ConfigMap => {
                let data = world.views.child(&data_ref(reference.kind, namespace, &reference.name));
                match data {
                    None if reference.optional => Found::Here("absent".to_owned()),
                    None => Found::Missing(format!("{} \"{}\" not found", lower(reference.kind), reference.name)),
                    Some(data) => keys_of(agent, reference.kind, &data),
                }
            }
            _ => continue,
        };
        found.insert(reference.to_string(), state);
    }
    Inputs(found)
}

/// `Secret/name` or `ConfigMap/name` to a digest of its data, for those that are there.
pub(super) fn data_digests(agent: &Agent, world: &World) -> BTreeMap<String, String> {
    let namespace = agent.metadata.namespace.as_deref().unwrap_or_default();
    agent_references(agent)
        .into_iter()
        .filter(|reference| reference.kind != RefKind::Tool)
        .filter_map(|reference| {
            let data = world.views.child(&data_ref(reference.kind, namespace, &reference.name))?;
            Some((reference.to_string(), data_digest(&data)))
        })
        .collect()
}

/// Whether a Tool may be rendered: enabled or not, it was found good as it stands.
pub(super) fn is_usable(tool: &Tool) -> bool {
    is_current(tool) && tool.phase() == Some(ReferencePhase::Available)
}

fn tool(name: &str, tool: Option<Arc<Tool>>) -> Found {
    let Some(tool) = tool else {
        return match is_builtin_tool(name) {
            true => Found::Here("builtin".to_owned()),
            false => Found::Missing(format!("tool \"{name}\" not found")),
        };
    };
    if !tool.spec.enabled {
        return Found::Here("disabled".to_owned());
    }
    match tool.phase() {
        Some(ReferencePhase::Available) if is_current(&tool) => Found::Here(used(&tool)),
        Some(ReferencePhase::Error) if is_current(&tool) => {
            let conditions = tool.machine().map(|machine| machine.conditions.as_slice()).unwrap_or_default();
            let why = conditions.iter().find(|found| found.type_ == "Ready").map_or("", |ready| ready.message.as_str());
            Found::Missing(format!("tool \"{name}\" is in phase Error: {why}"))
        }
        phase => {
            let phase = phase.map_or("not yet seen by the operator", Phase::as_str);
            Found::NotYet(format!("tool \"{name}\" is {phase}"))
        }
    }
}

/// The digest of what is rendered of a Tool; what people sort by is left out, so that editing it rolls nobody.
fn used(tool: &Tool) -> String {
    let mut spec = serde_json::to_value(&tool.spec).unwrap_or_default();
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("category");
    }
    digest::digest(&spec)
}

fn is_current(tool: &Tool) -> bool {
    tool.machine().and_then(|machine| machine.observed_generation) == Some(tool.generation())
}

/// Whether every key that the environment names is there.
fn keys_of(agent: &Agent, kind: RefKind, data: &Child) -> Found {
    let name = &data.child.name;
    for variable in &agent.spec.env {
        let Some(source) = &variable.value_from else { continue };
        let named = match kind {
            RefKind::Secret => source.secret_key_ref.as_ref().map(|key| (&key.name, &key.key, key.optional)),
            RefKind::ConfigMap => source.config_map_key_ref.as_ref().map(|key| (&key.name, &key.key, key.optional)),
            _ => None,
        };
        if let Some((from, key, optional)) = named
            && from == name
            && optional != Some(true)
            && !data.data.contains_key(key)
        {
            return Found::Missing(format!("{} \"{name}\" has no key \"{key}\"", lower(kind)));
        }
    }
    Found::Here(data_digest(data))
}

fn data_digest(data: &Child) -> String {
    digest::digest(&json!(data.data))
}

fn data_ref(kind: RefKind, namespace: &str, name: &str) -> ChildRef {
    let kind = if kind == RefKind::Secret { ChildKind::Secret } else { ChildKind::ConfigMap };
    ChildRef { kind, namespace: namespace.to_owned(), name: name.to_owned() }
}

fn lower(kind: RefKind) -> String {
    kind.as_str().to_lowercase()
}
