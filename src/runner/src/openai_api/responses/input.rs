//! Converts the `input` of a response request to messages.

use std::{collections::HashMap, sync::Arc};

use dotprompt::Part;
use serde_json::Value;

use super::super::{
    error::ApiError,
    request::{only_text, tool_call},
};
use crate::models::Message;

/// Converts `input`; an output takes its tool's name from the call with the same id.
pub(super) fn messages(input: Value) -> Result<Vec<Arc<Message>>, ApiError> {
    let items = match input {
        Value::String(text) => return Ok(vec![Arc::new(Message::user(text))]),
        Value::Array(items) => items,
        _ => return Err(ApiError::invalid(Some("input"), "`input` must be a string or a list of items")),
    };
    let mut calls = HashMap::new();
    let mut messages = Vec::with_capacity(items.len());
    for (place, item) in items.iter().enumerate() {
        let at = |field: &str| format!("input[{place}].{field}");
        let string = |field: &str| match item[field].as_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(ApiError::invalid(Some(&at(field)), format!("`{field}` must be a string"))),
        };
        match item["type"].as_str().unwrap_or("message") {
            "message" => messages.push(message(item, &at)?),
            "function_call" => {
                let (id, name) = (string("call_id")?, string("name")?);
                calls.insert(id.clone(), name.clone());
                messages.push(Message::Call(tool_call(id, name, &string("arguments")?, &at("arguments"))?));
            }
            "function_call_output" => {
                let id = string("call_id")?;
                let outcome = Ok(only_text(parts(&item["output"], &at("output"))?, &at("output"))?);
                let name = calls.get(&id).cloned().ok_or_else(|| {
                    ApiError::invalid(Some(&at("call_id")), format!("no item before this one has a call `{id}`"))
                })?;
                messages.push(Message::ToolResult { id, name, outcome });
            }
            "reasoning" | "mcp_call" | "mcp_list_tools" => {}
            other => {
                let text = format!(
                    "an item of type `{other}` is not supported: send messages, and function calls with their outputs"
                );
                return Err(ApiError::invalid(Some(&at("type")), text));
            }
        }
    }
    match messages.iter().any(|message| matches!(message, Message::User(_))) {
        true => Ok(messages.into_iter().map(Arc::new).collect()),
        false => Err(ApiError::invalid(Some("input"), "`input` has no user message")),
    }
}

fn message(item: &Value, at: &dyn Fn(&str) -> String) -> Result<Message, ApiError> {
    let param = at("content");
    let parts = parts(&item["content"], &param)?;
    Ok(match item["role"].as_str().unwrap_or_default() {
        "user" => Message::User(parts),
        "assistant" => Message::Assistant(only_text(parts, &param)?),
        "system" | "developer" => Message::System(only_text(parts, &param)?),
        other => {
            let text = format!("unknown role `{other}`: use user, assistant, system or developer");
            return Err(ApiError::invalid(Some(&at("role")), text));
        }
    })
}

/// Decodes content: a string, or a list of parts.
fn parts(content: &Value, param: &str) -> Result<Vec<Part>, ApiError> {
    match content {
        Value::String(text) => Ok(vec![Part::Text(text.clone())]),
        Value::Array(parts) => parts.iter().map(|one| part(one, param)).collect(),
        _ => Err(ApiError::invalid(Some(param), "content must be a string or a list of parts")),
    }
}

fn part(part: &Value, param: &str) -> Result<Part, ApiError> {
    let kind = part["type"].as_str().unwrap_or_default();
    let field = match kind {
        "input_text" | "output_text" | "text" => "text",
        "refusal" => "refusal",
        "input_image" => "image_url",
        other => {
            let text = format!("a part of type `{other}` is not supported: use `input_text` or `input_image`");
            return Err(ApiError::invalid(Some(param), text));
        }
    };
    let value = part[field]
        .as_str()
        .ok_or_else(|| ApiError::invalid(Some(param), format!("a part of type `{kind}` needs its `{field}`")))?;
    Ok(match kind {
        "input_image" => Part::Media { url: value.into(), content_type: None },
        _ => Part::Text(value.into()),
    })
}
