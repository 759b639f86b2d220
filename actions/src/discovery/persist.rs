//! Stores discovered tools: the definitions in a ConfigMap that the object owns, the rest in its status.

use std::sync::Arc;

use crds::{
    ToolServerStatus, digest, reason,
    tool_pins::HELD_KEY,
    tool_server::{self, DiscoveredTool},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use machine::{ActionError, ApiError};
use meta::{condition, condition_type};

use super::{Definitions, Discovered, ToolServer, pins::PinnedTools};
use crate::{
    kind::Context,
    ports::{ChildKind, ChildRef},
    render::tools_manifest,
    stale::refuse_stale_repair,
    workload::check_owner,
};

/// Condition message of a server whose tools keep changing.
const RESTLESS: &str = "the server's tools keep changing, so they are listed less and less often, finally every 5 \
                        minutes, and its users get changes no sooner";

/// Applies the ConfigMap of the definitions if it differs, and returns the new status and condition. `None`: the ConfigMap is
/// being deleted, which is waited for.
///
/// # Errors
/// `Terminal` if the name of the ConfigMap is taken; any error of the API server.
pub(super) async fn persist<K: ToolServer>(
    cx: &Context,
    cr: &K,
    before: &ToolServerStatus,
    found: &Discovered,
    pinned: &PinnedTools,
) -> Result<Option<(ToolServerStatus, Condition)>, ActionError> {
    let catalogue = &pinned.catalog;
    let held_digest = pinned.held.as_ref().map(|held| digest::sha256_hex(held.as_bytes()));
    let same_definitions = before.tools_digest.as_ref() == Some(&catalogue.digest);
    let known = same_definitions && before.held_tools_digest == held_digest;
    let condition = match (write(cx, cr, pinned, held_digest.as_ref(), known).await?, &catalogue.problem) {
        (Written::Deleting, _) => return Ok(None),
        (Written::BackedOff(message), _) => {
            condition(condition_type::TOOLS_DISCOVERED, false, reason::CONTESTED, message)
        }
        (Written::Done, Some((reason, message))) => {
            condition(condition_type::TOOLS_DISCOVERED, false, reason, message.as_str())
        }
        (Written::Done, None) if found.is_restless() => {
            condition(condition_type::TOOLS_DISCOVERED, true, "Restless", RESTLESS)
        }
        (Written::Done, None) => condition(condition_type::TOOLS_DISCOVERED, true, "Discovered", ""),
    };
    let now = Timestamp::from_second(cx.clock.now().as_second()).unwrap_or_default();
    let mut status = ToolServerStatus {
        discovered_tools: catalogue.tools.clone(),
        tools_digest: Some(catalogue.digest.clone()),
        held_tools_digest: held_digest,
        gone_tools: pinned.gone.clone(),
        published_tools: before.published_tools,
        tools_changed_at: before.tools_changed_at.clone(),
        server_info: Some(found.server.clone()),
        era: Some(found.era.clone()),
        tool_count: None,
        held_count: None,
    };
    status.tool_count = i32::try_from(status.in_use().count()).ok();
    status.held_count = i32::try_from(status.held().count()).ok().filter(|count| *count > 0);
    let used = |tool: &DiscoveredTool| (tool.name.clone(), tool.description.clone(), tool.digest.clone());
    if !(same_definitions && before.in_use().map(used).eq(status.in_use().map(used))) {
        status.tools_changed_at = Some(Time(now));
    }
    Ok(Some((status, condition)))
}

/// Returns the ConfigMap of the definitions.
fn config_map<K: ToolServer>(cr: &K) -> ChildRef {
    let key = cr.key();
    let name = tool_server::tools_config_map(K::KIND, &key.name);
    ChildRef { kind: ChildKind::ConfigMap, namespace: key.namespace, name }
}

/// Returns the definitions in the ConfigMap, if it belongs to the object.
pub(super) fn kept_definitions<K: ToolServer>(cx: &Context, cr: &K) -> Option<Arc<Definitions>> {
    let seen = cx.cache.child(&config_map(cr))?;
    let is_ours = seen.controller.as_ref().is_some_and(|controller| controller.uid == cr.uid());
    seen.definitions.clone().filter(|_| is_ours)
}

/// Result of writing the definitions.
enum Written {
    Done,
    /// The ConfigMap is being deleted.
    Deleting,
    /// Another client keeps changing it, as the sentence says.
    BackedOff(String),
}

/// Applies the ConfigMap of the definitions by [server-side
/// apply](https://kubernetes.io/docs/reference/using-api/server-side-apply/). `known`: the status says that these definitions
/// were written, so a difference is drift caused by another client. Keys of other clients stay.
async fn write<K: ToolServer>(
    cx: &Context,
    cr: &K,
    pinned: &PinnedTools,
    held_digest: Option<&String>,
    known: bool,
) -> Result<Written, ActionError> {
    let child = config_map(cr);
    let mut seen = cx.cache.child(&child);
    if let Some(seen) = &seen {
        let ours = seen.controller.as_ref().is_some_and(|controller| controller.uid == cr.uid());
        let same = seen.data.get(tool_server::TOOLS_KEY) == Some(&pinned.catalog.digest)
            && seen.data.get(HELD_KEY) == held_digest;
        if ours && same && !seen.deleting {
            return Ok(Written::Done);
        }
    }
    let repair = known && seen.is_some();
    if repair && let Some(message) = repair_backoff_message(cx, cr.uid(), &child) {
        return Ok(Written::BackedOff(message));
    }
    refuse_stale_repair(cx, cr, repair).await?;
    let manifest = tools_manifest(cr, child.clone(), pinned.catalog.definitions.text(), pinned.held.as_deref());
    for attempt in 0..2 {
        if let Some(seen) = &seen {
            check_owner(cr, seen)?;
            if seen.deleting {
                cx.notes.waiting(reason::DELETING, format!("{child} is being deleted and will be created again"));
                return Ok(Written::Deleting);
            }
        }
        match cx.client.apply(&manifest, seen.as_ref().map(|seen| seen.uid.as_str())).await {
            Err(ApiError::WrongUid(_)) if attempt == 0 => seen = cx.client.get(&child).await?,
            Err(error) => return Err(error.into()),
            Ok(_) => break,
        }
    }
    if repair {
        cx.applied_records.repaired(cr.uid(), &child, cx.clock.elapsed());
    }
    cx.notes.fact("applied", child.to_string());
    Ok(Written::Done)
}

/// Returns a sentence while repairs of this object are in back-off because another client keeps changing it, and requeues for the
/// end of the back-off.
pub(super) fn repair_backoff_message(cx: &Context, owner: &str, child: &ChildRef) -> Option<String> {
    let left = cx.applied_records.repair_backoff(owner, child, cx.clock.elapsed());
    (!left.is_zero()).then(|| {
        cx.notes.requeue_after(left);
        format!("another client keeps changing {child}; repairs back off")
    })
}
