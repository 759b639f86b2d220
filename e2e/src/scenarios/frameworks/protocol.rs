//! Protocols in which the samples are talked to.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// Protocol of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    /// `POST /chat`.
    Chat,
    /// Agent2Agent 1.0 over JSON-RPC.
    A2a,
    /// The variables of flow `say`.
    Flow,
}

impl Protocol {
    /// Returns the path that is posted to.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Chat => "/chat",
            Self::A2a => "/",
            Self::Flow => "/say",
        }
    }

    /// Returns the headers of a request.
    pub(super) fn headers(self, streams: bool) -> &'static str {
        match (self, streams) {
            (Self::A2a, _) => "A2A-Version: 1.0\r\n",
            (_, true) => "Accept: text/event-stream\r\n",
            (_, false) => "",
        }
    }

    /// Returns the body of a request.
    pub(super) fn body(self, message: &str, conversation: Option<&str>, streams: bool) -> String {
        let body = match self {
            Self::Chat => json!({"message": message, "conversation_id": conversation}),
            Self::Flow => json!({"text": message}),
            Self::A2a => {
                let id = message.len().to_string();
                let mut message = json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": message}]});
                if let Some(context) = conversation {
                    message["contextId"] = json!(context);
                }
                let method = if streams { "SendStreamingMessage" } else { "SendMessage" };
                json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}})
            }
        };
        body.to_string()
    }

    /// Returns the text of an answer, and the conversation that it is part of.
    pub(super) fn reply(self, body: &str) -> Result<(String, String)> {
        if self == Self::Flow {
            return Ok((body.to_owned(), String::new()));
        }
        let answer: Value = serde_json::from_str(body).with_context(|| body.to_owned())?;
        let word = |pointer: &str| answer.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        if self == Self::Chat {
            let reply = word("/reply").zip(word("/conversation_id"));
            return reply.with_context(|| format!("no reply in {answer}"));
        }
        let artifacts = answer["result"]["task"]["artifacts"].as_array().into_iter().flatten();
        let parts = artifacts.flat_map(|artifact| artifact["parts"].as_array().into_iter().flatten());
        let text: String = parts.filter_map(|part| part["text"].as_str()).collect();
        Ok((text, word("/result/task/contextId").with_context(|| format!("no task in {answer}"))?))
    }

    /// Returns what only the last event of a stream says.
    pub(super) fn end(self) -> &'static str {
        match self {
            Self::Chat | Self::Flow => "event: done",
            Self::A2a => "TASK_STATE_COMPLETED",
        }
    }
}
