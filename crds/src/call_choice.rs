//! The setting `toolChoice` of a model: the tools that it may or must call. The runtime reads it; the operator detects by it which
//! value can never be read.

use serde_json::Value;

/// Message for a value of another form.
pub const CALL_CHOICE_FORM: &str = "`toolChoice` is auto, none, required, or {\"tool\": \"its name\"}";

/// Returns what is wrong with `toolChoice` in the settings of a model, if it is set. An object with `type` is of a provider's own form,
/// which the provider judges. `has_tool` reports whether the model has a tool of this name.
pub fn call_choice_problem(settings: Option<&Value>, has_tool: impl Fn(&str) -> bool) -> Option<String> {
    match settings?.get("toolChoice")? {
        Value::Null => None,
        Value::String(text) if matches!(text.as_str(), "auto" | "none" | "required") => None,
        other if other["type"].is_string() => None,
        other => match other["tool"].as_str() {
            None => Some(CALL_CHOICE_FORM.to_owned()),
            Some(name) if has_tool(name) => None,
            Some(name) => {
                Some(format!("`toolChoice` names the tool {name:?}, which is not there: add it, or name another"))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_choice_that_cannot_be_read_is_found() {
        for (choice, problem) in [
            (json!("auto"), None),
            (json!("none"), None),
            (json!("required"), None),
            (json!(null), None),
            (json!({"tool": "weather"}), None),
            (json!({"type": "any"}), None),
            (json!("any"), Some(CALL_CHOICE_FORM)),
            (json!(true), Some(CALL_CHOICE_FORM)),
            (json!(["weather"]), Some(CALL_CHOICE_FORM)),
            (json!({"tool": 1}), Some(CALL_CHOICE_FORM)),
            (
                json!({"tool": "wether"}),
                Some("`toolChoice` names the tool \"wether\", which is not there: add it, or name another"),
            ),
        ] {
            let settings = json!({"temperature": 1, "toolChoice": choice});
            let found = call_choice_problem(Some(&settings), |name| name == "weather");
            assert_eq!(found.as_deref(), problem, "{settings}");
        }
        for settings in [None, Some(json!({})), Some(json!([]))] {
            assert_eq!(call_choice_problem(settings.as_ref(), |_| false), None, "{settings:?}");
        }
    }
}
