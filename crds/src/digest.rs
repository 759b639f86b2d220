//! Computes digests by which two values are compared, independent of their writer and of the order of their keys.
//!
//! A digest is SHA-256 over canonical JSON: object keys sorted by their bytes, no white space, everything else as
//! `serde_json` writes it. The keys are sorted here and not by the map type of `serde_json`, whose order a feature of
//! any dependency may change.

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Returns the value as canonical JSON.
pub fn canonical_json(value: &Value) -> String {
    let mut out = Vec::new();
    write_canonical(value, &mut out);
    // Cannot fail: serde_json writes UTF-8.
    String::from_utf8(out).unwrap_or_default()
}

fn write_canonical(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Array(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_canonical(item, out);
            }
            out.push(b']');
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(key, _)| *key);
            out.push(b'{');
            for (index, (key, field)) in fields.into_iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_scalar(key, out);
                out.push(b':');
                write_canonical(field, out);
            }
            out.push(b'}');
        }
        scalar => write_scalar(scalar, out),
    }
}

fn write_scalar(scalar: &(impl Serialize + ?Sized), out: &mut Vec<u8>) {
    // Cannot fail: a string, number, boolean or null is written to memory.
    let _ = serde_json::to_writer(out, scalar);
}

/// Returns the SHA-256 of the bytes as 64 lower-case hexadecimal digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    let digits = Sha256::digest(bytes).into_iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

/// Returns the SHA-256 (hex) of the value as canonical JSON.
pub fn digest(value: &Value) -> String {
    let mut canonical = Vec::new();
    write_canonical(value, &mut canonical);
    sha256_hex(&canonical)
}

/// Returns the digest of a spec, without the fields that only change the number of Pods and those that only the scaler or the
/// gateway reads.
pub(crate) fn spec_digest(spec: &impl Serialize) -> String {
    // Cannot fail: specs consist of strings, numbers, lists and maps with string keys.
    let mut value = serde_json::to_value(spec).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        fields.remove("replicas");
        fields.remove("limits");
        if let Some(deployment) = fields.get_mut("deployment").and_then(Value::as_object_mut) {
            deployment.remove("replicas");
        }
        // Only the concurrency is rendered into the Pods; the scaler reads the other fields.
        if let Some(scaling) = fields.get_mut("scaling").and_then(Value::as_object_mut) {
            scaling.retain(|name, _| name == "concurrency");
        }
    }
    digest(&value)
}
