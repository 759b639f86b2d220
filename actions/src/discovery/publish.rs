//! Publishes a server's tools as Tools. They have an owner reference to the server and are applied again when another client
//! deletes or changes them. They are deleted when the server no longer has the tool, unless an Agent, Flow or FlowSet still lists
//! it: then the Tool stays, in Error with the reason.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::Duration,
};

use crds::{GROUP, MANAGED_BY, Tool, ToolSpec, digest, reason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use machine::{ActionError, ApiError};
use meta::{PhasedObject, condition, condition_type, update_condition};
use serde_json::{Value, json};

use super::{Catalog, McpToolDefinition, ToolServer, persist::repair_backoff_message};
use crate::{
    kind::Context,
    ports::{ChildKind, ChildRef},
    render::{MANAGED_BY_LABEL, kind_label, tool_manifest},
    stale::{refuse_stale, refuse_stale_repair},
};

/// Annotation of a Tool with the digest of the spec that was applied. It separates the fields of ours from those of other
/// clients: a field that the server listed once and no longer lists is removed, and one that it never listed is another client's.
const APPLIED: &str = "recif.dev/applied";

/// Delay after which Tools that are to be deleted are checked again: a server gets no event when its Tools are no longer used.
const STILL_USED: Duration = Duration::from_secs(30);

/// Result of publishing the Tools.
#[derive(Debug, Default)]
struct Published {
    count: Option<i32>,
    condition: Option<Condition>,
}

/// Publishes the discovered tools and writes the result into the status. `before`: digest of the previous discovery.
///
/// # Errors
/// Any error of the API server.
pub(super) async fn publish<K: ToolServer>(
    cx: &Context,
    cr: &mut K,
    catalog: &Catalog,
    before: Option<&String>,
) -> Result<(), ActionError> {
    let published = publish_tools(cx, cr, catalog, before == Some(&catalog.digest)).await?;
    cr.tools_status_mut().published_tools = published.count;
    let conditions = &mut cr.common_mut().conditions;
    match published.condition {
        Some(condition) => update_condition(conditions, condition),
        None => conditions.retain(|known| known.type_ != condition_type::TOOLS_PUBLISHED),
    }
    Ok(())
}

/// Applies the wanted Tools and deletes the others. A server that never published looks for no Tools to delete. The start of
/// publishing is in the status before the first Tool exists; otherwise Tools that a crash left behind would never be found.
/// `known`: the previous discovery had the same digest.
async fn publish_tools<K: ToolServer>(
    cx: &Context,
    cr: &K,
    catalog: &Catalog,
    known: bool,
) -> Result<Published, ActionError> {
    let wanted = cr.publish().cloned().unwrap_or_default();
    let before = cr.tools_status().and_then(|status| status.published_tools);
    if !wanted.enabled && before.is_none() {
        return Ok(Published::default());
    }
    if before.is_none() {
        cx.notes.requeue_after(Duration::ZERO);
        let condition =
            condition(condition_type::TOOLS_PUBLISHED, false, "Publishing", "the Tools are about to be made");
        return Ok(Published { count: Some(0), condition: Some(condition) });
    }
    let key = cr.key();
    let (mut tools, mut refused) = (BTreeMap::new(), Vec::new());
    // Sorted, so that of tools whose names give the same object name the same one wins in whatever order the server lists them.
    for tool in catalog.definitions.names().filter(|tool| wanted.enabled && wanted.selects(tool)) {
        match tools.entry(object_name(&wanted.prefix, tool)) {
            Entry::Vacant(place) if !place.key().is_empty() => {
                place.insert(tool);
            }
            _ => refused.push(format!("{tool:?} has a name like another tool's, or none that an object may have")),
        }
    }
    let (mut count, mut disputed) = (0, Vec::new());
    for (name, tool) in &tools {
        let Some(tool) = catalog.definitions.get(tool) else { continue };
        match ensure(cx, cr, name, &tool, known).await {
            Ok(PublishOutcome::Done) => count += 1,
            Ok(PublishOutcome::BackedOff(message)) => disputed.push(message),
            Ok(PublishOutcome::NotOwned) => refused.push(format!("tool \"{name}\" exists and has another owner")),
            Err(ActionError::Api(ApiError::Invalid(message) | ApiError::Refused(message))) => {
                refused.push(format!("tool \"{name}\": {message}"));
            }
            Err(error) => return Err(error),
        }
    }
    let mut used = Vec::new();
    for tool in cx.cache.published_tools(K::KIND, &key.namespace, &key.name) {
        let name = tool.metadata.name.clone().unwrap_or_default();
        if tools.contains_key(&name) || !is_controlled(cr, &tool) || tool.metadata.deletion_timestamp.is_some() {
            continue;
        }
        if cx.cache.is_tool_used(&key.namespace, &name) {
            used.push(name);
            continue;
        }
        refuse_stale(cx, cr).await?;
        let child = ChildRef { kind: ChildKind::Tool, namespace: key.namespace.clone(), name };
        cx.client.delete(&child, tool.metadata.uid.as_deref().unwrap_or_default()).await?;
        cx.notes.fact("removed", child.to_string());
    }
    if !used.is_empty() {
        cx.notes.requeue_after(STILL_USED);
    }
    if !wanted.enabled && used.is_empty() {
        return Ok(Published::default());
    }
    let condition = if !refused.is_empty() {
        condition(condition_type::TOOLS_PUBLISHED, false, reason::NAME_CONFLICT, first_few(&refused))
    } else if !disputed.is_empty() {
        condition(condition_type::TOOLS_PUBLISHED, false, reason::CONTESTED, first_few(&disputed))
    } else if !used.is_empty() {
        let message = format!("no longer published, and still used: {}", first_few(&used));
        condition(condition_type::TOOLS_PUBLISHED, false, "StillUsed", message)
    } else {
        condition(condition_type::TOOLS_PUBLISHED, true, "Published", "")
    };
    Ok(Published { count: Some(count), condition: Some(condition) })
}

/// Result of publishing one Tool.
enum PublishOutcome {
    /// Nothing is left to do for it.
    Done,
    /// It belongs to another client.
    NotOwned,
    /// Another client keeps changing it, as the sentence says.
    BackedOff(String),
}

/// Applies a Tool as the server defines it, by server-side apply; fields of other clients stay.
async fn ensure<K: ToolServer>(
    cx: &Context,
    cr: &K,
    name: &str,
    tool: &McpToolDefinition,
    known: bool,
) -> Result<PublishOutcome, ActionError> {
    let key = cr.key();
    let spec = spec(K::KIND, &key.name, name, tool);
    let seen = cx.cache.get::<Tool>(&key.namespace, name);
    if let Some(seen) = &seen {
        if !is_owned(cr, seen) {
            return Ok(PublishOutcome::NotOwned);
        }
        if seen.metadata.deletion_timestamp.is_some() || is_controlled(cr, seen) && is_as_applied(&spec, seen) {
            return Ok(PublishOutcome::Done);
        }
    }
    let manifest = tool_manifest(cr, name.to_owned(), &spec, (APPLIED, &digest::digest(&spec)));
    let repair = known && seen.is_some();
    if repair && let Some(message) = repair_backoff_message(cx, cr.uid(), &manifest.child) {
        return Ok(PublishOutcome::BackedOff(message));
    }
    refuse_stale_repair(cx, cr, repair).await?;
    let uid = seen.as_ref().and_then(|seen| seen.metadata.uid.as_deref());
    match cx.client.apply(&manifest, uid).await {
        // The object is not the one in the cache: the watch will deliver it, and with it its owner.
        Err(ApiError::WrongUid(_)) => return Ok(PublishOutcome::Done),
        Err(error) => return Err(error.into()),
        Ok(_) => cx.notes.fact("applied", manifest.child.to_string()),
    }
    if repair {
        cx.applied_records.repaired(cr.uid(), &manifest.child, cx.clock.elapsed());
    }
    Ok(PublishOutcome::Done)
}

/// Reports whether every field of ours is in a Tool as it was applied. A Tool of an older build does not have the digest of what
/// was applied: it is up to date if nothing else is in it.
fn is_as_applied(spec: &Value, seen: &Tool) -> bool {
    let applied = seen.metadata.annotations.as_ref().and_then(|annotations| annotations.get(APPLIED));
    let typed = |spec: &Value| serde_json::from_value::<ToolSpec>(spec.clone());
    match applied {
        Some(applied) => {
            *applied == digest::digest(spec) && serde_json::to_value(&seen.spec).is_ok_and(|it| contains_all(&it, spec))
        }
        None => typed(spec).is_ok_and(|spec| spec == seen.spec),
    }
}

/// Reports whether a value contains everything wanted: objects by field, lists as a whole.
fn contains_all(value: &Value, wanted: &Value) -> bool {
    match (value, wanted) {
        (Value::Object(value), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| value.get(key).is_some_and(|value| contains_all(value, wanted)))
        }
        (value, wanted) => value == wanted,
    }
}

/// Returns the spec of the Tool for a tool. The server's description and schemas are in it, so that `kubectl get -o yaml` shows
/// them.
fn spec(kind: &str, server: &str, name: &str, tool: &McpToolDefinition) -> Value {
    let mut spec = json!({
        "name": model_name(&tool.name).unwrap_or_else(|| name.to_owned()),
        "type": "mcp",
        "mcpServerRef": { "kind": kind, "name": server, "toolName": tool.name },
        "inputSchema": if tool.input_schema.is_object() { normalized(&tool.input_schema) } else { json!({ "type": "object" }) },
    });
    if !tool.description.is_empty() {
        spec["description"] = json!(tool.description);
    }
    if let Some(schema) = tool.output_schema.as_ref().filter(|schema| schema.is_object()) {
        spec["outputSchema"] = normalized(schema);
    }
    spec
}

/// Returns a value as the API server returns it: it has one type of numbers, so `1.0` comes back as `1`.
fn normalized(value: &Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 9e15 => json!(float as i64),
            _ => value.clone(),
        },
        Value::Array(all) => all.iter().map(normalized).collect(),
        Value::Object(all) => all.iter().map(|(key, value)| (key.clone(), normalized(value))).collect(),
        other => other.clone(),
    }
}

/// Returns the tool's own name if a model may call it by that name: 1 to 64 ASCII letters, digits, `_` and `-`.
fn model_name(tool: &str) -> Option<String> {
    let fits = (1..=64).contains(&tool.len());
    (fits && tool.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))).then(|| tool.to_owned())
}

/// Returns the name of the object: the prefix and the tool's name in lower case, with a '-' for each character that no object's
/// name may have, at most 63 bytes.
fn object_name(prefix: &str, tool: &str) -> String {
    let letters = tool.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' });
    let mut name = prefix.to_owned();
    name.extend(letters);
    name.truncate(name.floor_char_boundary(63));
    name.trim_matches('-').to_owned()
}

/// Reports whether this server is the controller of the Tool.
fn is_controlled<K: PhasedObject>(cr: &K, tool: &Tool) -> bool {
    let owners = tool.metadata.owner_references.iter().flatten();
    owners.filter(|owner| owner.controller == Some(true)).any(|owner| owner.uid == cr.uid())
}

/// Reports whether the Tool may be changed: it is controlled by this server or by a predecessor of the same name, or it has no
/// controller and carries this server's labels.
fn is_owned<K: PhasedObject>(cr: &K, tool: &Tool) -> bool {
    let name = cr.key().name;
    let owner = tool.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
    match owner {
        Some(owner) => {
            let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
            owner.uid == cr.uid() || group == GROUP && owner.kind == K::KIND && owner.name == name
        }
        None => {
            let label =
                |key: &str| tool.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str);
            label(MANAGED_BY_LABEL) == Some(MANAGED_BY) && label(&kind_label(K::KIND)) == Some(name.as_str())
        }
    }
}

/// Joins the first few of many sentences.
fn first_few(all: &[String]) -> String {
    const FEW: usize = 5;
    let rest = all.len().saturating_sub(FEW);
    let more = if rest > 0 { format!("; and {rest} more") } else { String::new() };
    all.iter().take(FEW).map(String::as_str).collect::<Vec<_>>().join("; ") + &more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_they_come_back() {
        let schema = json!({"default": 1.0, "all": [1.5, -2.0, 3]});
        assert_eq!(normalized(&schema), json!({"default": 1, "all": [1.5, -2, 3]}));
    }

    #[test]
    fn a_tool_gets_a_name_that_an_object_may_have() {
        for (prefix, tool, name) in [
            ("", "get_weather", "get-weather"),
            ("docs-", "Search.All", "docs-search-all"),
            ("", "_x_", "x"),
            ("", "é", ""),
        ] {
            assert_eq!(object_name(prefix, tool), name);
        }
        assert_eq!(object_name("p-", &"n".repeat(100)).len(), 63);
    }
}
