//! Tool that searches a knowledge base.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    bounded_buffer::truncate_to_cap,
    definition::{CallableTool, ToolKind},
    error::ToolError,
    input::Input,
    parameters::{Parameter, ParameterType},
};
use crate::{knowledge::KnowledgeBase, usage::UsageAccount};

impl CallableTool {
    /// Creates the tool for `base`.
    pub(crate) fn of_knowledge(base: KnowledgeBase) -> Self {
        let description = "What to look for: a question or keywords.".into();
        let query = Parameter { description, ..Parameter::required("query", ParameterType::String) };
        let (name, description) = (base.tool().to_owned(), base.description().to_owned());
        Self::of_kind(name, description, Input::Parameters(vec![query]), ToolKind::Knowledge(base))
    }
}

/// Searches the knowledge base. `account` counts the embedding.
///
/// # Errors
/// The failure, as text for the model.
pub(super) async fn call(
    base: &KnowledgeBase,
    arguments: &BTreeMap<String, Value>,
    account: UsageAccount,
) -> Result<String, ToolError> {
    let query = arguments.get("query").and_then(Value::as_str).unwrap_or_default().trim();
    if query.is_empty() {
        return Err(ToolError::Arguments("`query` is empty".into()));
    }
    base.search(query, account).await.map(|text| truncate_to_cap(&text)).map_err(ToolError::Failed)
}
