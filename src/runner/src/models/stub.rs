//! Stub model: deterministic, immediate, without any network access.
//!
//! It makes an agent usable before a provider is configured, and tests control it through the message:
//!
//! | message | answer |
//! |---|---|
//! | `/prompt` | the system prompt |
//! | `/tools` | one line `name: description` per tool |
//! | `/tool <name> {json}` | calls that tool, then returns its result |
//! | anything else | `echo: <message>` |

use std::sync::Arc;

use async_trait::async_trait;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use serde_json::Value;

use super::{Chunk, Message, Model, ModelError, ModelRequest, ToolCall, text_of, title};
use crate::{caller::CallerKey, usage::UsageAccount};

/// Longest text that is streamed word by word, in bytes; a longer one is streamed in pieces of this size.
const PIECE: usize = 4096;

/// Stub model.
pub(super) struct Stub;

#[async_trait]
impl Model for Stub {
    fn respond(&self, request: ModelRequest) -> BoxStream<'static, Result<Chunk, ModelError>> {
        stream::iter(decide(&request).into_iter().map(Ok)).boxed()
    }

    async fn title(&self, first: &str, _: Option<CallerKey>, _: UsageAccount) -> String {
        title::cut(first)
    }
}

/// Returns the whole answer to `request`.
fn decide(request: &ModelRequest) -> Vec<Chunk> {
    let input = match request.messages.last().map(Arc::as_ref) {
        Some(Message::User(parts)) => text_of(parts),
        Some(Message::ToolResult { outcome: Ok(text), .. }) => return tokens(text),
        Some(Message::ToolResult { name, outcome: Err(text), .. }) => {
            return tokens(&format!("tool {name} failed: {text}"));
        }
        _ => return Vec::new(),
    };
    let (command, rest) = input.trim().split_once(char::is_whitespace).unwrap_or((input.trim(), ""));
    match command {
        "/prompt" => tokens(request.system.as_deref().unwrap_or("there is no system prompt")),
        "/tools" => {
            let lines = request.tools.iter().map(|tool| format!("{}: {}", tool.name, tool.description));
            tokens(&lines.collect::<Vec<_>>().join("\n"))
        }
        "/tool" => call(rest.trim(), request.messages.len()),
        _ => tokens(&format!("echo: {input}")),
    }
}

fn call(rest: &str, place: usize) -> Vec<Chunk> {
    let (name, json) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    match if json.trim().is_empty() { Ok(Value::Null) } else { serde_json::from_str(json) } {
        Ok(arguments) if !name.is_empty() => {
            let id = format!("call_{place}");
            vec![Chunk::Call(ToolCall { id, name: name.into(), arguments, thought: None })]
        }
        _ => tokens("write `/tool <name> {json}`"),
    }
}

fn tokens(text: &str) -> Vec<Chunk> {
    if text.len() <= PIECE {
        return text.split_inclusive(' ').map(|word| Chunk::Token(word.into())).collect();
    }
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(PIECE));
        pieces.push(Chunk::Token(piece.into()));
        rest = after;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(message: Message) -> Vec<Chunk> {
        decide(&ModelRequest {
            system: Some("be brief".into()),
            messages: vec![Arc::new(message)],
            ..ModelRequest::default()
        })
    }

    fn text(chunks: Vec<Chunk>) -> String {
        chunks.into_iter().map(|chunk| if let Chunk::Token(token) = chunk { token } else { "<call>".into() }).collect()
    }

    #[test]
    fn what_the_stub_answers() {
        for (input, answer) in [
            ("hello there", "echo: hello there"),
            (" /prompt ", "be brief"),
            ("/prompts", "echo: /prompts"),
            ("/tool", "write `/tool <name> {json}`"),
            ("/tool x {", "write `/tool <name> {json}`"),
            ("/tool x {}", "<call>"),
        ] {
            assert_eq!(text(say(Message::user(input))), answer, "{input}");
        }
        let failed = Message::ToolResult { id: "call_1".into(), name: "x".into(), outcome: Err("no".into()) };
        assert_eq!(text(say(failed)), "tool x failed: no");
    }

    #[test]
    fn a_long_text_keeps_every_character() {
        let long = "é".repeat(PIECE);
        let chunks = tokens(&long);
        assert!(chunks.len() < 5);
        assert_eq!(text(chunks), long);
    }
}
