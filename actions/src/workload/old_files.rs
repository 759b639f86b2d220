//! Keeps files that the Pods of an older template still need during a rollout.
//!
//! A projected volume names each of its files, so a Pod of an older template reads exactly its own files. If the new rendering
//! drops one of them, a container of such a Pod that restarts during the rollout would miss it. So in Rendering these files stay
//! with their content, and `deploy` applies the rendering as it is when the rollout is complete. No cache holds contents: they
//! are read for the moment, and only if a file is to be removed. Files for which the object has no room besides the new rendering
//! are removed: the rollout matters more than a restart in the middle of it.
//!
//! Environment variables are different: with `envFrom` a container gets all keys, so an old one would be set in the new Pods too.

use std::borrow::Cow;

use machine::ActionError;
use serde_json::Value;

use super::{children::is_owned, kind::WorkloadKind};
use crate::{kind::Context, ports::ChildManifest, render::MAX_OBJECT};

/// Returns the manifest with those files of the live object that it would remove from running Pods, as far as there is room.
pub(super) async fn keep_old_files<'a, K: WorkloadKind>(
    cx: &Context,
    cr: &K,
    manifest: &'a ChildManifest,
) -> Result<Cow<'a, ChildManifest>, ActionError> {
    if !K::READS_FILES {
        return Ok(Cow::Borrowed(manifest));
    }
    let Some(new) = manifest.body.get("data").and_then(Value::as_object) else { return Ok(Cow::Borrowed(manifest)) };
    let Some(live) = cx.cache.child(&manifest.child).filter(|live| is_owned(cr, live)) else {
        return Ok(Cow::Borrowed(manifest));
    };
    let old: Vec<_> = live.data.keys().filter(|key| !new.contains_key(*key)).collect();
    let key = cr.key();
    if old.is_empty() || cx.cache.pods(K::KIND, &key.namespace, &key.name).is_empty() {
        return Ok(Cow::Borrowed(manifest));
    }
    let mut values = cx.client.get_data(&manifest.child).await?;
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
