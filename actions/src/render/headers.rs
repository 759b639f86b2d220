//! Headers of tools whose values are in Secrets: each value is a variable of the container, and the header refers to it.
//!
//! So a credential is in no rendered file: the variable is made by the kubelet, from the Secret.

use std::collections::BTreeMap;

use crds::ToolSpec;
use serde_json::{Value, json};

/// One header's value as a variable of the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderVariable {
    /// `TOOL_<TOOL>_<HEADER>` in upper case, every other character an underscore.
    pub name: String,
    /// The Secret that holds the value.
    pub secret: String,
    /// The key in it.
    pub key: String,
}

impl HeaderVariable {
    /// The variable as in a Pod.
    pub fn env(&self) -> Value {
        json!({ "name": self.name, "valueFrom": { "secretKeyRef": { "name": self.secret, "key": self.key } } })
    }
}

/// The variables of a tool, in the order of its headers.
pub fn header_variables(tool: &ToolSpec) -> Vec<HeaderVariable> {
    let variable = |source: &crds::tool::HeaderSource| HeaderVariable {
        name: variable_name(&tool.name, &source.name),
        secret: source.secret_key_ref.name.clone(),
        key: source.secret_key_ref.key.clone(),
    };
    tool.headers_from.iter().map(variable).collect()
}

/// All headers of a tool: those of the spec verbatim, those from Secrets as `$NAME`.
pub fn headers(tool: &ToolSpec) -> BTreeMap<&str, String> {
    let plain = tool.headers.iter().map(|(name, value)| (name.as_str(), value.clone()));
    let secret = tool.headers_from.iter().map(|source| {
        let variable = variable_name(&tool.name, &source.name);
        (source.name.as_str(), format!("${variable}"))
    });
    plain.chain(secret).collect()
}

fn variable_name(tool: &str, header: &str) -> String {
    let upper = |text: &str| -> String {
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
    };
    format!("TOOL_{}_{}", upper(tool), upper(header))
}
