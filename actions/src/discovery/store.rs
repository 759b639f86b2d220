//! Stores discovered tools in their object: the status, the ConfigMap of the definitions, the Tools. What a person has to accept
//! first is only listed.

use std::{collections::BTreeMap, time::Duration};

use crds::ToolServerStatus;
use jiff::Timestamp;
use machine::ActionError;
use meta::{PhasedObject, condition, condition_type, update_condition};

use super::{
    Discovered,
    acceptance::Acceptance,
    held::{NamedServer, held_words},
    persist::{kept_definitions, persist},
    pins::{PinInputs, PinnedTools, pin},
    publish::publish,
    server::ToolServer,
};
use crate::kind::Context;

/// Shortest time between two changes in a row of the tools in use: each replaces the Pods of their users.
const MIN_BETWEEN_CHANGES: Duration = Duration::from_secs(60);

/// Writes the discovered tools into the status of `next` and publishes them as Tools, as [`store_tools`] does, and ends an acceptance
/// once the status says what became of it: a write that fails loses none. For a step that stays in its phase.
///
/// # Errors
/// Those of [`store_tools`].
pub async fn store_accepted_tools<K: ToolServer>(
    cx: &Context,
    next: &mut K,
    found: &Discovered,
) -> Result<bool, ActionError> {
    let Some(acceptance) = Acceptance::read(PhasedObject::meta(&*next)) else {
        return store_tools(cx, next, found).await;
    };
    let before = next.tools_status().cloned();
    let is_done = store_tools(cx, next, found).await?;
    match is_done && next.tools_status() == before.as_ref() {
        true => acceptance.finish(cx, next),
        false if is_done => cx.notes.requeue_after(Duration::ZERO),
        false => {}
    }
    Ok(is_done)
}

/// Writes the discovered tools into the status of `next` and publishes them as Tools. Returns `false` while the ConfigMap of the
/// definitions is being deleted, which is waited for.
///
/// # Errors
/// `Terminal` if the name of the ConfigMap is taken; any error of the API server.
pub async fn store_tools<K: ToolServer>(cx: &Context, next: &mut K, found: &Discovered) -> Result<bool, ActionError> {
    let before = next.tools_status().cloned().unwrap_or_default();
    let acceptance = Acceptance::read(PhasedObject::meta(&*next));
    let (kept, none) = (kept_definitions(cx, next), BTreeMap::new());
    let inputs = PinInputs {
        on_change: next.on_change(),
        before: &before,
        kept: kept.as_deref(),
        accepted: acceptance.as_ref().map_or(&none, |acceptance| &acceptance.digests),
        now: Timestamp::from_second(cx.clock.now().as_second()).unwrap_or_default(),
    };
    let pinned = pin(&found.catalog, inputs);
    if acceptance.is_none()
        && let Some(left) = rest_left(cx, &before, &pinned, found.changes)
    {
        cx.notes.requeue_after(left);
        return Ok(true);
    }
    let Some((server, condition)) = persist(cx, next, &before, found, &pinned).await? else { return Ok(false) };
    report_held(next, &server);
    *next.tools_status_mut() = server;
    update_condition(&mut next.common_mut().conditions, condition);
    publish(cx, next, &pinned.catalog, before.tools_digest.as_ref()).await?;
    Ok(true)
}

/// Reports whether a person accepted definitions of the server, which is to be looked at without delay.
pub fn is_accepting<K: ToolServer>(server: &K) -> bool {
    Acceptance::read(PhasedObject::meta(server)).is_some()
}

/// Returns how long to leave the tools in use as they are, for a server that has made this number of changes in a row.
fn rest_left(cx: &Context, before: &ToolServerStatus, pinned: &PinnedTools, changes: u32) -> Option<Duration> {
    if changes < 2 || before.tools_digest.as_ref() == Some(&pinned.catalog.digest) {
        return None;
    }
    let changed_at = before.tools_changed_at.as_ref()?.0;
    let left = cx.time_left("tools in use", changed_at, MIN_BETWEEN_CHANGES);
    (!left.is_zero()).then_some(left)
}

/// Sets the condition on the definitions that wait, or removes it if none does.
fn report_held<K: ToolServer>(next: &mut K, server: &ToolServerStatus) {
    let key = next.key();
    let name = NamedServer { kind: K::KIND, namespace: None, name: &key.name };
    let words = held_words(name, &server.discovered_tools);
    let conditions = &mut next.common_mut().conditions;
    match words {
        Some((reason, words)) => {
            let message = format!("{} {words}", name.subject());
            update_condition(conditions, condition(condition_type::DEFINITION_CURRENT, false, reason, message));
        }
        None => conditions.retain(|known| known.type_ != condition_type::DEFINITION_CURRENT),
    }
}
