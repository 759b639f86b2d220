//! Stores discovered tools in their object: the status, the ConfigMap of the definitions, the Tools.

use machine::ActionError;
use meta::update_condition;

use super::{Discovered, persist::persist, publish::publish, server::ToolServer};
use crate::kind::Context;

/// Writes the discovered tools into the status of `next` and publishes them as Tools. Returns `false` while the ConfigMap of the
/// definitions is being deleted, which is waited for.
///
/// # Errors
/// `Terminal` if the name of the ConfigMap is taken; any error of the API server.
pub async fn store_tools<K: ToolServer>(cx: &Context, next: &mut K, found: &Discovered) -> Result<bool, ActionError> {
    let before = next.tools_status().cloned().unwrap_or_default();
    let Some((server, condition)) = persist(cx, next, &before, found).await? else { return Ok(false) };
    *next.tools_status_mut() = server;
    update_condition(&mut next.common_mut().conditions, condition);
    publish(cx, next, &found.catalog, before.tools_digest.as_ref()).await?;
    Ok(true)
}
