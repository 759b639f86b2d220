//! Assembles the tool calls of an answer from streamed pieces.

use std::collections::VecDeque;

use serde_json::{Map, Value};

use super::{
    Chunk, Thought, ToolCall,
    error::{ModelError, ModelErrorKind},
};

/// Maximum bytes of all arguments of one answer.
const ARGUMENTS: usize = 1 << 20;
/// Maximum number of calls of one answer.
const CALLS: usize = 128;

/// Calls whose arguments still arrive. Invariant: `bytes` is the length of all arguments so far, at most [`ARGUMENTS`].
#[derive(Default)]
pub(super) struct Calls {
    pending: Vec<PendingCall>,
    bytes: usize,
}

struct PendingCall {
    index: u64,
    id: String,
    name: String,
    arguments: String,
}

impl Calls {
    /// Starts a call. `place` is the provider's index of it; later pieces go to the last call started with that index.
    ///
    /// # Errors
    /// There are too many.
    pub(super) fn begin(&mut self, place: u64, id: &str, name: &str) -> Result<(), ModelError> {
        if self.pending.len() == CALLS {
            return Err(ModelError::too_large("128 calls of tools"));
        }
        self.pending.push(PendingCall { index: place, id: id.into(), name: name.into(), arguments: String::new() });
        Ok(())
    }

    /// Returns the id of the call at `place`.
    pub(super) fn id(&self, place: u64) -> Option<&str> {
        self.pending.iter().rev().find(|open| open.index == place).map(|open| open.id.as_str())
    }

    /// Appends to the arguments of the call at `place`.
    ///
    /// # Errors
    /// No call was started there, or the arguments are too long.
    pub(super) fn push_arguments(&mut self, place: u64, arguments: &str) -> Result<(), ModelError> {
        self.bytes += arguments.len();
        if self.bytes > ARGUMENTS {
            return Err(ModelError::too_large("1 MiB of arguments of tools"));
        }
        let call = self.pending.iter_mut().rev().find(|open| open.index == place).ok_or_else(ModelError::malformed)?;
        call.arguments.push_str(arguments);
        Ok(())
    }

    /// Emits all calls. Arguments that are not JSON are passed as a string: the tool refuses them and the model gets
    /// that error.
    ///
    /// # Errors
    /// A call has no name.
    pub(super) fn finish(&mut self, chunks: &mut VecDeque<Chunk>) -> Result<(), ModelError> {
        for PendingCall { id, name, arguments, .. } in std::mem::take(&mut self.pending) {
            let arguments = match arguments.trim() {
                "" => Value::Object(Map::new()),
                text => serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned())),
            };
            chunks.push_back(tool_call_chunk(id, name, arguments, None)?);
        }
        Ok(())
    }
}

/// Creates the chunk of a complete call; one without an id gets a random id.
///
/// # Errors
/// It has no name.
pub(super) fn tool_call_chunk(
    id: String,
    name: String,
    arguments: Value,
    thought: Option<Thought>,
) -> Result<Chunk, ModelError> {
    if name.is_empty() {
        return Err(ModelError::malformed());
    }
    let id = if id.is_empty() { random_call_id()? } else { id };
    Ok(Chunk::Call(ToolCall { id, name, arguments, thought }))
}

/// Returns the arguments if they are an object, otherwise an empty object, for providers that accept only objects.
pub(super) fn object_or_empty(arguments: &Value) -> Value {
    if arguments.is_object() { arguments.clone() } else { Value::Object(Map::new()) }
}

/// Generates an id that is unique within the conversation.
fn random_call_id() -> Result<String, ModelError> {
    let number = getrandom::u64().map_err(|_| {
        ModelError::new(ModelErrorKind::Unavailable, "the system has no random numbers to name a call with")
    })?;
    Ok(format!("call_{number:016x}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn calls_are_put_together_and_all_have_ids() {
        let mut calls = Calls::default();
        calls.begin(0, "a", "one").unwrap();
        calls.begin(1, "", "two").unwrap();
        for (place, piece) in [(0, "{\"x\""), (1, "{"), (0, ":1}")] {
            calls.push_arguments(place, piece).unwrap();
        }
        calls.begin(2, "", "three").unwrap();
        assert_eq!(calls.id(0), Some("a"));
        assert_eq!(calls.push_arguments(9, ""), Err(ModelError::malformed()));
        let mut chunks = VecDeque::new();
        calls.finish(&mut chunks).unwrap();
        let found: Vec<_> =
            chunks.into_iter().map(|chunk| if let Chunk::Call(call) = chunk { call } else { panic!() }).collect();
        assert_eq!(
            found.iter().map(|call| &call.arguments).collect::<Vec<_>>(),
            [&json!({"x": 1}), &json!("{"), &json!({})]
        );
        assert_eq!(found[0].id, "a");
        assert!(found[1].id.starts_with("call_") && found[1].id.len() == 21 && found[1].id != found[2].id);
        assert_eq!(
            (object_or_empty(&found[0].arguments), object_or_empty(&found[1].arguments)),
            (json!({"x": 1}), json!({}))
        );
    }

    #[test]
    fn what_a_provider_sends_is_bounded() {
        let mut calls = Calls::default();
        calls.begin(0, "", "t").unwrap();
        calls.push_arguments(0, &"x".repeat(ARGUMENTS)).unwrap();
        assert!(calls.push_arguments(0, "x").unwrap_err().to_string().contains("1 MiB of arguments"));
        for place in 1..128 {
            calls.begin(place, "", "t").unwrap();
        }
        assert!(calls.begin(128, "", "t").unwrap_err().to_string().contains("128 calls"));
        assert_eq!(tool_call_chunk(String::new(), String::new(), json!({}), None), Err(ModelError::malformed()));
    }
}
