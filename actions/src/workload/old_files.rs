//! Files that old Pods still need.
//!
//! A projected volume names each of its files, so a Pod of an older template reads exactly its own, and one that the new
//! rendering no longer has would be missing to a container that starts again during the rollout. So in Rendering such files
//! stay, with the content they have, and `deploy` applies the rendering as it is when the rollout is done. Contents are in no
//! cache: they are read for the moment, and only when a file is to go. What an object cannot hold besides the new rendering
//! does not stay: the rollout is worth more than a restart in the middle of it.
//!
//! Variables are another matter: by `envFrom` a container has all that there are, so an old one would be in the new Pods.

use std::borrow::Cow;

use machine::ActionError;
use serde_json::Value;

use super::{WorkloadKind, children::is_owned};
use crate::{kind::Context, ports::ChildManifest, render::MAX_OBJECT};

/// The manifest, with the files of the live object that it would take away from Pods that run, as far as there is room.
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
