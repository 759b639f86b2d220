//! The content hash: one digest of everything the containers read from the ConfigMap, the Secret and what the spec names.
//!
//! It stands on the Pod template, so that Pods are replaced exactly when something they read has changed: environment
//! variables are read once, at the start of a container.

use std::collections::BTreeMap;

use crds::digest::{canonical_json, sha256_hex};
use serde_json::json;

/// SHA-256 (hex) of the rendered ConfigMap and Secret and of the digests of the data that the spec refers to.
pub(super) fn content_hash(
    plain: &BTreeMap<String, String>,
    secret: &BTreeMap<String, String>,
    data: &BTreeMap<String, String>,
) -> String {
    sha256_hex(canonical_json(&json!({ "plain": plain, "secret": secret, "data": data })).as_bytes())
}
