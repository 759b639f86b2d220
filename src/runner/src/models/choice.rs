//! Settings that mean the same for every provider and are no numbers: `toolChoice`, the tools that the model may or must call, and
//! `cache`, how long the provider keeps what it has read.

use crds::model::{CACHE_FORM, TOOL_CHOICE_FORM};
use serde_json::{Value, json};

use super::{
    Message, ModelRequest,
    error::{ModelError, ModelErrorKind},
};

/// Choice of the tools that the model may or must call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CallChoice {
    /// The model decides.
    Auto,
    /// It calls none.
    None,
    /// It calls at least one.
    Required,
    /// It calls this one.
    Tool(String),
}

/// Time for which a provider keeps what it has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CacheLife {
    /// Five minutes, what providers do by default.
    Minutes,
    /// An hour.
    Hour,
}

impl CallChoice {
    /// Reads the setting for `request`. A call is forced only where no result of one is there yet: else the model could never answer.
    ///
    /// # Errors
    /// It has another form, or names a tool that the request does not have.
    pub(super) fn read(setting: Option<Value>, request: &ModelRequest) -> Result<Self, ModelError> {
        let choice = match setting {
            None => return Ok(Self::Auto),
            Some(Value::String(text)) if text == "auto" => Self::Auto,
            Some(Value::String(text)) if text == "none" => Self::None,
            Some(Value::String(text)) if text == "required" => Self::Required,
            Some(other) => match other["tool"].as_str() {
                Some(name) => Self::Tool(name.to_owned()),
                None => return Err(refused(TOOL_CHOICE_FORM)),
            },
        };
        if request.tools.is_empty() {
            return Ok(Self::Auto);
        }
        if let Self::Tool(name) = &choice
            && !request.tools.iter().any(|tool| tool.name == *name)
        {
            return Err(refused("`toolChoice` names a tool that the model does not have"));
        }
        let has_result = matches!(request.messages.last().map(|last| &**last), Some(Message::ToolResult { .. }));
        Ok(if has_result && choice != Self::None { Self::Auto } else { choice })
    }

    /// Returns the choice in words, for providers without a setting for it.
    pub(super) fn words(&self) -> Option<String> {
        match self {
            Self::Auto => None,
            Self::None => Some("Do not call a tool.".to_owned()),
            Self::Required => Some("Call a tool before you answer.".to_owned()),
            Self::Tool(name) => Some(format!("Call the tool `{name}` before you answer.")),
        }
    }
}

impl CacheLife {
    /// Reads the setting; `None` without one.
    ///
    /// # Errors
    /// It has another form.
    pub(super) fn read(setting: Option<Value>) -> Result<Option<Self>, ModelError> {
        match setting.as_ref().map(Value::as_str) {
            None | Some(Some("off")) => Ok(None),
            Some(Some("5m")) => Ok(Some(Self::Minutes)),
            Some(Some("1h")) => Ok(Some(Self::Hour)),
            Some(_) => Err(refused(CACHE_FORM)),
        }
    }

    /// Returns `mark`, with the field `ttl` for a time that is not the provider's own.
    pub(super) fn mark(self, mark: &str) -> Value {
        match self {
            Self::Minutes => json!({ "type": mark }),
            Self::Hour => json!({ "type": mark, "ttl": "1h" }),
        }
    }
}

fn refused(text: &str) -> ModelError {
    ModelError::new(ModelErrorKind::BadRequest, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::ToolSpec;

    fn request(messages: Vec<Message>) -> ModelRequest {
        let tool = ToolSpec { name: "t".into(), description: String::new(), input_schema: json!({}) };
        let messages = messages.into_iter().map(Into::into).collect();
        ModelRequest { messages, tools: [tool].into(), ..ModelRequest::default() }
    }

    #[test]
    fn a_call_is_forced_until_there_is_a_result() {
        let result = Message::ToolResult { id: "1".into(), name: "t".into(), outcome: Ok("x".into()) };
        let (first, then) = (request(vec![Message::user("x")]), request(vec![Message::user("x"), result]));
        let tool = || CallChoice::Tool("t".into());
        for (setting, at_first, later) in [
            (json!("auto"), CallChoice::Auto, CallChoice::Auto),
            (json!("none"), CallChoice::None, CallChoice::None),
            (json!("required"), CallChoice::Required, CallChoice::Auto),
            (json!({"tool": "t"}), tool(), CallChoice::Auto),
        ] {
            assert_eq!(CallChoice::read(Some(setting.clone()), &first), Ok(at_first), "{setting}");
            assert_eq!(CallChoice::read(Some(setting.clone()), &then), Ok(later), "{setting}");
            let bare = ModelRequest::default();
            assert_eq!(CallChoice::read(Some(setting.clone()), &bare), Ok(CallChoice::Auto), "{setting}: no tools");
        }
    }

    #[test]
    fn other_values_are_refused() {
        for setting in [json!("any"), json!(true), json!({"tool": 1}), json!({"tool": "other"}), json!(["t"])] {
            let error = CallChoice::read(Some(setting.clone()), &request(Vec::new())).unwrap_err();
            assert!(
                error.kind == ModelErrorKind::BadRequest && error.to_string().contains("`toolChoice`"),
                "{setting}"
            );
        }
        for (setting, expected) in [(None, None), (Some("off"), None), (Some("1h"), Some(CacheLife::Hour))] {
            assert_eq!(CacheLife::read(setting.map(Value::from)), Ok(expected));
        }
        for setting in [json!("2h"), json!(true), json!(300)] {
            assert!(CacheLife::read(Some(setting)).unwrap_err().to_string().contains("`cache` is 5m, 1h or off"));
        }
    }
}
