//! Keeps what a server told: the definitions in a ConfigMap of the object's own, the rest in its status.

use crds::{ToolServerStatus, tool_server};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use machine::{ActionError, ApiError};
use meta::condition;

use super::{Catalog, Discovered, ToolServer};
use crate::{
    kind::Context,
    ports::{ChildKind, ChildRef},
    render::tools_manifest,
    stale::refuse_stale_repair,
    workload::check_owner,
};

/// The condition that says whether all of a server's tools are known.
pub const DISCOVERED: &str = "ToolsDiscovered";

/// What is said of a server whose tools do not come to rest.
const RESTLESS: &str = "the server's tools keep changing, so it is asked ever more rarely, at last every 5 minutes, and its \
                        users take changes over no sooner";

/// Writes the definitions where they are not there already, and says what the status is to hold. `None`: the ConfigMap is being
/// deleted, which is waited for.
///
/// # Errors
/// `Terminal` when the name of the ConfigMap is taken; whatever the API server answered.
pub(super) async fn persist<K: ToolServer>(
    cx: &Context,
    cr: &K,
    before: &ToolServerStatus,
    found: &Discovered,
) -> Result<Option<(ToolServerStatus, Condition)>, ActionError> {
    let catalogue = &found.catalog;
    let known = before.tools_digest.as_ref() == Some(&catalogue.digest);
    let said = match (write(cx, cr, catalogue, known).await?, &catalogue.problem) {
        (Written::Deleting, _) => return Ok(None),
        (Written::BackedOff(message), _) => condition(DISCOVERED, false, "Contested", message),
        (Written::Done, Some((reason, message))) => condition(DISCOVERED, false, reason, message.as_str()),
        (Written::Done, None) if found.restless => condition(DISCOVERED, true, "Restless", RESTLESS),
        (Written::Done, None) => condition(DISCOVERED, true, "Discovered", ""),
    };
    let now = Timestamp::from_second(cx.clock.now().as_second()).unwrap_or_default();
    let same = known && before.discovered_tools == catalogue.tools;
    let status = ToolServerStatus {
        tool_count: i32::try_from(catalogue.tools.len()).ok(),
        tools_changed_at: if same { before.tools_changed_at.clone() } else { Some(Time(now)) },
        discovered_tools: catalogue.tools.clone(),
        tools_digest: Some(catalogue.digest.clone()),
        published_tools: before.published_tools,
        server_info: Some(found.server.clone()),
        era: Some(found.era.clone()),
    };
    Ok(Some((status, said)))
}

/// Whether the definitions are where they belong now.
enum Written {
    Done,
    /// The ConfigMap is being deleted.
    Deleting,
    /// Another writer keeps changing it, which the sentence says.
    BackedOff(String),
}

/// `known`: the status says that these definitions were written, so what differs now was changed by another writer. Keys of
/// others stay.
async fn write<K: ToolServer>(cx: &Context, cr: &K, catalogue: &Catalog, known: bool) -> Result<Written, ActionError> {
    let key = cr.key();
    let name = tool_server::tools_config_map(K::KIND, &key.name);
    let child = ChildRef { kind: ChildKind::ConfigMap, namespace: key.namespace, name };
    let mut seen = cx.cache.child(&child);
    if let Some(seen) = &seen {
        let ours = seen.controller.as_ref().is_some_and(|controller| controller.uid == cr.uid());
        let same = seen.data.get(tool_server::TOOLS_KEY) == Some(&catalogue.digest);
        if ours && same && !seen.deleting {
            return Ok(Written::Done);
        }
    }
    let repair = known && seen.is_some();
    if repair && let Some(message) = repair_backoff_message(cx, cr.uid(), &child) {
        return Ok(Written::BackedOff(message));
    }
    refuse_stale_repair(cx, cr, repair).await?;
    let manifest = tools_manifest(cr, child.clone(), catalogue.definitions.text());
    for attempt in 0..2 {
        if let Some(seen) = &seen {
            check_owner(cr, seen)?;
            if seen.deleting {
                cx.notes.waiting("Deleting", format!("{child} is being deleted and will be made again"));
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

/// Says, while a truce with another writer of this object holds, that there is one; it is looked at again when the truce is over.
pub(super) fn repair_backoff_message(cx: &Context, owner: &str, child: &ChildRef) -> Option<String> {
    let left = cx.applied_records.repair_backoff(owner, child, cx.clock.elapsed());
    (!left.is_zero()).then(|| {
        cx.notes.requeue_after(left);
        format!("another writer keeps changing {child}; it is put back ever more rarely")
    })
}
