//! Keys that old Pods still need.
//!
//! A container that restarts during a rollout reads the new ConfigMap and Secret with the old Pod template: a key that the
//! new rendering no longer has would be missing. So in Rendering such keys stay, with the values they have, and `deploy`
//! applies the rendering as it is when the rollout is done. Values are in no cache: they are read for the moment, and only
//! when a key is to go. What an object cannot hold besides the new rendering does not stay: the rollout is worth more than
//! a restart in the middle of it.

use std::borrow::Cow;

use serde_json::Value;

use super::{Workload, children::is_ours};
use crate::{
    machine::{ActionError, Context},
    ports::Manifest,
    render::MAX_OBJECT,
};

/// The manifest, with the keys of the live object that it would take away from Pods that run, as far as there is room.
pub(super) async fn keep_old_keys<'a, K: Workload>(
    cx: &Context<K>,
    cr: &K,
    manifest: &'a Manifest,
) -> Result<Cow<'a, Manifest>, ActionError> {
    let Some(new) = manifest.body.get("data").and_then(Value::as_object) else { return Ok(Cow::Borrowed(manifest)) };
    let Some(live) = cx.views.child(&manifest.child).filter(|live| is_ours(cr, live)) else {
        return Ok(Cow::Borrowed(manifest));
    };
    let old: Vec<_> = live.data.keys().filter(|key| !new.contains_key(*key)).collect();
    let key = cr.key();
    if old.is_empty() || cx.views.pods(K::KIND, &key.namespace, &key.name).is_empty() {
        return Ok(Cow::Borrowed(manifest));
    }
    let mut values = cx.cluster.data(&manifest.child).await?;
    let mut kept = manifest.clone();
    let size = |(key, value): (&String, &Value)| key.len() + value.as_str().map_or(0, str::len);
    let mut room = MAX_OBJECT.saturating_sub(new.iter().map(size).sum());
    if let Some(data) = kept.body.get_mut("data").and_then(Value::as_object_mut) {
        for key in old {
            let Some(value) = values.remove(key) else { continue };
            let Some(left) = room.checked_sub(key.len() + value.len()) else { continue };
            room = left;
            data.insert(key.clone(), Value::String(value));
        }
    }
    Ok(Cow::Owned(kept))
}
