//! Makes Tools of a server's tools: owned by the server, made again when somebody deletes or changes them, and deleted when the
//! server has the tool no more, unless an agent still lists it: then the Tool stays, in Error, and says why.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::Duration,
};

use crds::{GROUP, MANAGED_BY, Tool, ToolSpec, digest};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use machine::{ActionError, ApiError};
use meta::{PhasedObject, condition, update_condition};
use serde_json::{Value, json};

use super::{Catalog, McpToolDefinition, ToolServer, persist::repair_backoff_message};
use crate::{
    kind::Context,
    ports::{ChildKind, ChildRef},
    render::{MANAGED_BY_LABEL, kind_label, tool_manifest},
    stale::{refuse_stale, refuse_stale_repair},
};

/// The condition that says whether all Tools that are to be published are.
pub const PUBLISHED: &str = "ToolsPublished";

/// The annotation of a Tool with the digest of the spec that was applied: a field that the server told and tells no more is ours to
/// take away, and one that was never told is somebody else's.
const APPLIED: &str = "recif.dev/applied";

/// When Tools that are to go are looked at again: nobody tells a server who uses its Tools.
const STILL_USED: Duration = Duration::from_secs(30);

/// What became of the Tools.
#[derive(Debug, Default)]
struct Published {
    count: Option<i32>,
    condition: Option<Condition>,
}

/// Publishes what the server told, and says so in the status. `before`: the digest of what it told the last time.
///
/// # Errors
/// Whatever the API server answered.
pub(super) async fn publish<K: ToolServer>(
    cx: &Context,
    cr: &mut K,
    told: &Catalog,
    before: Option<&String>,
) -> Result<(), ActionError> {
    let published = publish_tools(cx, cr, told, before == Some(&told.digest)).await?;
    cr.tools_status_mut().published_tools = published.count;
    let conditions = &mut cr.common_mut().conditions;
    match published.condition {
        Some(said) => update_condition(conditions, said),
        None => conditions.retain(|known| known.type_ != PUBLISHED),
    }
    Ok(())
}

/// A server that never published looks for nothing. That it begins to is in the status before the first Tool is there, or nobody
/// would look for those that a crash left behind. `known`: the server told the same the last time.
async fn publish_tools<K: ToolServer>(
    cx: &Context,
    cr: &K,
    told: &Catalog,
    known: bool,
) -> Result<Published, ActionError> {
    let wanted = cr.publish().cloned().unwrap_or_default();
    let before = cr.tools_status().and_then(|told| told.published_tools);
    if !wanted.enabled && before.is_none() {
        return Ok(Published::default());
    }
    if before.is_none() {
        cx.notes.requeue_after(Duration::ZERO);
        let said = condition(PUBLISHED, false, "Publishing", "the Tools are about to be made");
        return Ok(Published { count: Some(0), condition: Some(said) });
    }
    let key = cr.key();
    let (mut tools, mut refused) = (BTreeMap::new(), Vec::new());
    // Sorted, so that of names that are alike the same one wins in whatever order the server tells them.
    for tool in told.definitions.names().filter(|tool| wanted.enabled && wanted.selects(tool)) {
        match tools.entry(object_name(&wanted.prefix, tool)) {
            Entry::Vacant(place) if !place.key().is_empty() => {
                place.insert(tool);
            }
            _ => refused.push(format!("{tool:?} has a name like another tool's, or none that an object may have")),
        }
    }
    let (mut count, mut disputed) = (0, Vec::new());
    for (name, tool) in &tools {
        let Some(tool) = told.definitions.get(tool) else { continue };
        match ensure(cx, cr, name, &tool, known).await {
            Ok(PublishOutcome::Done) => count += 1,
            Ok(PublishOutcome::BackedOff(message)) => disputed.push(message),
            Ok(PublishOutcome::NotOwned) => {
                refused.push(format!("tool \"{name}\" exists and belongs to somebody else"))
            }
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
    let said = if !refused.is_empty() {
        condition(PUBLISHED, false, "NameConflict", first_few(&refused))
    } else if !disputed.is_empty() {
        condition(PUBLISHED, false, "Contested", first_few(&disputed))
    } else if !used.is_empty() {
        let message = format!("no longer published, and still used: {}", first_few(&used));
        condition(PUBLISHED, false, "StillUsed", message)
    } else {
        condition(PUBLISHED, true, "Published", "")
    };
    Ok(Published { count: Some(count), condition: Some(said) })
}

/// What became of a Tool.
enum PublishOutcome {
    /// It is as it should be.
    Done,
    /// It belongs to somebody else.
    NotOwned,
    /// Another writer keeps changing it, which the sentence says.
    BackedOff(String),
}

/// Brings a Tool to what the server told; what others have in it stays.
async fn ensure<K: ToolServer>(
    cx: &Context,
    cr: &K,
    name: &str,
    tool: &McpToolDefinition,
    known: bool,
) -> Result<PublishOutcome, ActionError> {
    let key = cr.key();
    let spec = spec(K::KIND, &key.name, name, tool);
    let seen = cx.cache.tool(&key.namespace, name);
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
        // Another one than the cache has: the watch will tell, and whose it is.
        Err(ApiError::WrongUid(_)) => return Ok(PublishOutcome::Done),
        Err(error) => return Err(error.into()),
        Ok(_) => cx.notes.fact("applied", manifest.child.to_string()),
    }
    if repair {
        cx.applied_records.repaired(cr.uid(), &manifest.child, cx.clock.elapsed());
    }
    Ok(PublishOutcome::Done)
}

/// Whether every field of ours is in a Tool as it was applied. A Tool of an older build does not say what was applied: it is as
/// it should be when nothing else is in it.
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

/// Whether an object has all that is wanted in it; lists are wanted whole.
fn contains_all(value: &Value, wanted: &Value) -> bool {
    match (value, wanted) {
        (Value::Object(value), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| value.get(key).is_some_and(|value| contains_all(value, wanted)))
        }
        (value, wanted) => value == wanted,
    }
}

/// The Tool of a tool. What the server says is in it, so that `kubectl get -o yaml` shows it.
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

/// A value as the API server gives it back: it knows one sort of numbers, so that `1.0` comes back as `1`.
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

/// The name that a model may call it by, if that is the tool's own.
fn model_name(tool: &str) -> Option<String> {
    let fits = (1..=64).contains(&tool.len());
    (fits && tool.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))).then(|| tool.to_owned())
}

/// The name of the object: the tool's in lower case, with a '-' for what no object's name may have.
fn object_name(prefix: &str, tool: &str) -> String {
    let letters = tool.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' });
    let mut name = prefix.to_owned();
    name.extend(letters);
    name.truncate(name.floor_char_boundary(63));
    name.trim_matches('-').to_owned()
}

/// Whether the Tool is this server's.
fn is_controlled<K: PhasedObject>(cr: &K, tool: &Tool) -> bool {
    let owners = tool.metadata.owner_references.iter().flatten();
    owners.filter(|owner| owner.controller == Some(true)).any(|owner| owner.uid == cr.uid())
}

/// Whether the Tool may be changed: it is this server's, a predecessor's of its name, or one that was left behind.
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

/// The first few of many.
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
