//! How a manifest names another object: by name, in its own namespace.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Names an object in the same namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ObjectRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}
