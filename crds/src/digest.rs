//! Digests that say whether two values are the same, whoever wrote them and in whatever order.
//!
//! A digest is SHA-256 over canonical JSON: object keys sorted by their bytes, no white space, everything else as
//! `serde_json` writes it. The sorting is done here and not left to the map type, which a dependency's feature may change.

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    AgentSpec, FlowSetSpec, FlowSpec, MCPServerSpec, ModelSpec, PluginConfigSpec, PromptSpec, RemoteMCPServerSpec,
    ToolSpec,
};

/// The value as canonical JSON.
pub fn canonical_json(value: &Value) -> String {
    let mut out = Vec::new();
    write_canonical(value, &mut out);
    // serde_json writes UTF-8.
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
    // Neither a text, number, boolean or null nor a write to memory can fail.
    let _ = serde_json::to_writer(out, scalar);
}

/// SHA-256 of the bytes, as 64 lower-case hexadecimal digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    let digits = Sha256::digest(bytes).into_iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

/// SHA-256 (hex) of the value as canonical JSON.
pub fn digest(value: &Value) -> String {
    let mut canonical = Vec::new();
    write_canonical(value, &mut canonical);
    sha256_hex(&canonical)
}

/// The digest of each spec: it moves when something other than the fields named here was changed, or what only the scaler
/// reads.
macro_rules! digests {
    ($($spec:ident without $fields:expr;)+) => {$(
        impl $spec {
            /// Digest of the spec, without what only moves the number of Pods.
            pub fn digest(&self) -> String {
                spec_digest(self, &$fields)
            }
        }
    )+};
}

digests! {
    AgentSpec without ["replicas"];
    FlowSpec without ["replicas"];
    FlowSetSpec without ["replicas"];
    ToolSpec without [];
    ModelSpec without [];
    PluginConfigSpec without [];
    PromptSpec without [];
    RemoteMCPServerSpec without [];
}

impl MCPServerSpec {
    /// Digest of the spec, without what only moves the number of Pods.
    pub fn digest(&self) -> String {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        if let Some(deployment) = value.get_mut("deployment").and_then(Value::as_object_mut) {
            deployment.remove("replicas");
        }
        digest(&value)
    }
}

fn spec_digest(spec: &impl Serialize, without: &[&str]) -> String {
    // Specs are made of strings, numbers, lists and maps with string keys, which JSON always has room for.
    let mut value = serde_json::to_value(spec).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        for name in without {
            fields.remove(*name);
        }
        // Only this one is in the Pods; the others are the scaler's.
        if let Some(scaling) = fields.get_mut("scaling").and_then(Value::as_object_mut) {
            scaling.retain(|name, _| name == "concurrency");
        }
    }
    digest(&value)
}
