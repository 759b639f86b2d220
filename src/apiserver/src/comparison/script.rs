//! The script: requests as data, in the order in which they are sent.

use serde::Deserialize;
use serde_json::Value;

/// One request of the script.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptStep {
    /// Name, which says what it shows.
    pub name: String,
    /// Method and target, such as `GET /api/v1/namespaces/{ns}/configmaps`.
    pub request: String,
    /// Media type of the body; `application/json` if it is left out.
    #[serde(rename = "type")]
    pub media_type: Option<String>,
    /// Media type that the answer shall have; `application/json` if it is left out.
    pub accept: Option<String>,
    /// Body.
    #[serde(default)]
    pub body: Value,
    /// Code of the response.
    pub code: u16,
    /// Text that the message of the response contains.
    pub message: Option<String>,
    /// Name under which later steps use the object.
    pub save: Option<String>,
}

/// Returns the script, in order. It needs a namespace that is there and empty.
///
/// # Errors
/// A script that cannot be read: a defect of this crate, which its tests would show.
pub fn script() -> Result<Vec<ScriptStep>, serde_json::Error> {
    serde_json::from_str(include_str!("script.json"))
}
