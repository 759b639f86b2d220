//! Computes the content hash: one digest of everything the containers read from the ConfigMap, the Secret and the objects that
//! the spec names.
//!
//! It is an annotation of the Pod template, so that Pods are replaced exactly when something they read has changed: a container
//! reads its environment variables only once, at its start.

use std::collections::BTreeMap;

use crds::digest::{canonical_json, sha256_hex};
use serde_json::json;

/// Returns SHA-256 (hex) of the canonical JSON of the rendered ConfigMap and Secret and of the digests of the data that the spec
/// refers to.
pub(super) fn content_hash(
    plain: &BTreeMap<String, String>,
    secret: &BTreeMap<String, String>,
    data: &BTreeMap<String, String>,
) -> String {
    sha256_hex(canonical_json(&json!({ "plain": plain, "secret": secret, "data": data })).as_bytes())
}
