//! Reference from a manifest to another object: by name, in the same namespace.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Reference to an object in the same namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ObjectRef {
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}
