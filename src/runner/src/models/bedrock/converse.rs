//! Encodes requests to the Converse API.
//!
//! Source: <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html>.

use std::collections::BTreeSet;

use crds::tool_server_ref::short_digest;
use dotprompt::Part;
use serde_json::{Map, Value, json};

use crate::models::{
    Message, ModelRequest, Thought,
    calls::object_or_empty,
    choice::CallChoice,
    endpoint::ModelEndpoint,
    error::{ModelError, ModelErrorKind},
    transcript::{Media, TranscriptEntry, instructions, json_output, transcript_entries, unsupported_media},
};

/// Settings that are the same for every model.
const INFERENCE_SETTINGS: [(&str, &str); 4] = [
    ("maxOutputTokens", "maxTokens"),
    ("temperature", "temperature"),
    ("topP", "topP"),
    ("stopSequences", "stopSequences"),
];
/// Settings that are fields of the request. All others are the model's own.
const TOP_LEVEL_SETTINGS: [&str; 4] = ["guardrailConfig", "outputConfig", "performanceConfig", "requestMetadata"];
/// Field of the request with the settings that are the model's own. A config may write it out.
const OWN_SETTINGS: &str = "additionalModelRequestFields";
/// Maximum characters of the id of a call.
const MAX_ID: usize = 64;
/// Formats of images and documents, by their MIME types.
const FORMATS: [(&str, &str, &str); 13] = [
    ("image/png", "image", "png"),
    ("image/jpeg", "image", "jpeg"),
    ("image/gif", "image", "gif"),
    ("image/webp", "image", "webp"),
    ("application/pdf", "document", "pdf"),
    ("text/csv", "document", "csv"),
    ("text/html", "document", "html"),
    ("text/plain", "document", "txt"),
    ("text/markdown", "document", "md"),
    ("application/msword", "document", "doc"),
    ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", "document", "docx"),
    ("application/vnd.ms-excel", "document", "xls"),
    ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", "document", "xlsx"),
];

/// Encodes `request` for the model at `endpoint` and returns the model's id and the body.
pub(super) fn body(
    endpoint: &ModelEndpoint,
    request: &ModelRequest,
) -> Result<(String, Map<String, Value>), ModelError> {
    let mut generation = endpoint.generation(request);
    let choice = generation.take_call_choice(request)?;
    let cache = generation.take_cache()?;
    let point = cache.map(|life| json!({ "cachePoint": life.mark("default") }));
    let model = generation.model.clone();
    let mut body = Map::new();
    for name in TOP_LEVEL_SETTINGS {
        body.extend(generation.remove(name).map(|value| (name.to_owned(), value)));
    }
    let inference = INFERENCE_SETTINGS.iter().filter_map(|(ours, theirs)| {
        let value = generation.remove(ours)?;
        Some(((*theirs).to_owned(), value))
    });
    let inference: Map<String, Value> = inference.collect();
    if !inference.is_empty() {
        body.insert("inferenceConfig".into(), inference.into());
    }
    let written_out = generation.remove(OWN_SETTINGS);
    let mut others = generation.into_values(&[("topK", "top_k")], false);
    match written_out {
        None => {}
        Some(Value::Object(settings)) => others.extend(settings),
        Some(_) => return Err(ModelError::new(ModelErrorKind::BadRequest, format!("{OWN_SETTINGS} is no object"))),
    }
    if !others.is_empty() {
        body.insert(OWN_SETTINGS.into(), others.into());
    }
    let (schema, words) = json_output(request, endpoint.is_custom);
    if let Some(schema) = schema
        && let Some(config) = body.entry("outputConfig").or_insert_with(|| json!({})).as_object_mut()
    {
        let structure = json!({ "jsonSchema": { "name": "output", "schema": schema.to_string() } });
        config.insert("textFormat".into(), json!({ "type": "json_schema", "structure": structure }));
    }
    // The API has no setting for no call at all.
    let no_call = choice.words().filter(|_| choice == CallChoice::None);
    let words: Vec<_> = words.into_iter().chain(no_call).collect();
    if let Some(system) = instructions(request, (!words.is_empty()).then(|| words.join("\n\n"))) {
        let blocks: Vec<_> = [json!({ "text": system })].into_iter().chain(point.clone()).collect();
        body.insert("system".into(), blocks.into());
    }
    let mut messages = messages(request)?;
    if let Some(user) = messages.iter_mut().rev().find(|message| message["role"] == "user")
        && let Some(content) = user["content"].as_array_mut()
    {
        content.extend(point.clone());
    }
    body.insert("messages".into(), messages.into());
    let mut tools = tools(request);
    if !tools.is_empty() {
        tools.extend(point);
        let mut config = json!({ "tools": tools });
        match choice {
            CallChoice::Auto | CallChoice::None => {}
            CallChoice::Required => config["toolChoice"] = json!({ "any": {} }),
            CallChoice::Tool(name) => config["toolChoice"] = json!({ "tool": { "name": name } }),
        }
        body.insert("toolConfig".into(), config);
    }
    Ok((model, body))
}

/// Encodes the tools, and those that only the conversation names: without them the API refuses calls in it.
fn tools(request: &ModelRequest) -> Vec<Value> {
    let mut tools: Vec<_> = request
        .tools
        .iter()
        .map(|tool| {
            let mut spec = json!({ "name": tool.name, "inputSchema": { "json": tool.input_schema } });
            if !tool.description.is_empty() {
                spec["description"] = tool.description.as_str().into();
            }
            json!({ "toolSpec": spec })
        })
        .collect();
    let called: BTreeSet<_> = request
        .messages
        .iter()
        .filter_map(|message| match &**message {
            Message::Call(call) => Some(call.name.as_str()),
            _ => None,
        })
        .filter(|name| !request.tools.iter().any(|tool| tool.name == *name))
        .collect();
    let unknown = |name: &str| json!({ "toolSpec": { "name": name, "inputSchema": { "json": { "type": "object" } } } });
    tools.extend(called.into_iter().map(unknown));
    tools
}

/// Encodes the conversation. The API wants the sides to alternate, so that consecutive entries of one become one.
fn messages(request: &ModelRequest) -> Result<Vec<Value>, ModelError> {
    let mut messages: Vec<(&str, Vec<Value>)> = Vec::new();
    let mut documents = 0;
    for entry in transcript_entries(&request.messages) {
        let (role, blocks) = match entry {
            TranscriptEntry::System(_) => continue,
            TranscriptEntry::User(parts) => {
                let blocks =
                    parts.iter().filter_map(|part| block(part, &mut documents)).collect::<Result<Vec<_>, _>>()?;
                ("user", blocks)
            }
            TranscriptEntry::Assistant(text, calls) => {
                let thoughts = calls.iter().filter_map(|call| match &call.thought {
                    Some(Thought::Reasoning(blocks)) => Some(blocks.clone()),
                    _ => None,
                });
                let thoughts: Vec<_> = thoughts.flatten().collect();
                let text = (!text.is_empty()).then(|| json!({ "text": text }));
                let calls = calls.into_iter().map(|call| {
                    let input = object_or_empty(&call.arguments);
                    json!({ "toolUse": { "toolUseId": call_id(&call.id), "name": call.name, "input": input } })
                });
                ("assistant", thoughts.into_iter().chain(text).chain(calls).collect())
            }
            TranscriptEntry::Results(results) => {
                let results = results.into_iter().map(|result| {
                    let text = (!result.text.is_empty()).then(|| json!({ "text": result.text }));
                    let content: Vec<_> = text.into_iter().collect();
                    let status = if result.failed { "error" } else { "success" };
                    json!({ "toolResult": { "toolUseId": call_id(result.id), "content": content, "status": status } })
                });
                ("user", results.collect::<Vec<_>>())
            }
        };
        match messages.last_mut() {
            Some((last, known)) if *last == role => known.extend(blocks),
            _ if blocks.is_empty() => {}
            _ => messages.push((role, blocks)),
        }
    }
    Ok(messages.into_iter().map(|(role, content)| json!({ "role": role, "content": content })).collect())
}

/// Encodes a part of the user's message; `documents` counts those that were encoded, because each needs a name of its own.
fn block(part: &Part, documents: &mut usize) -> Option<Result<Value, ModelError>> {
    match part {
        Part::Text(text) if text.is_empty() => None,
        Part::Text(text) => Some(Ok(json!({ "text": text }))),
        Part::Media { url, content_type } => Some(Media::read(url, content_type.as_deref()).and_then(|media| {
            let Media::Inline { type_, data } = media else {
                return Err(unsupported_media("Bedrock fetches nothing: send it as a `data:` URL"));
            };
            let found = FORMATS.iter().find(|(known, ..)| *known == type_);
            let (_, kind, format) = found.ok_or_else(|| unsupported_media("Bedrock does not know its type"))?;
            let mut block = json!({ "format": format, "source": { "bytes": data } });
            if *kind == "document" {
                *documents += 1;
                block["name"] = format!("document-{documents}").into();
            }
            Ok(json!({ *kind: block }))
        })),
    }
}

/// Returns the id of a call in the form that the API takes. Ids of other providers may have other characters, or more.
fn call_id(id: &str) -> String {
    let is_taken = |c: char| c.is_ascii_alphanumeric() || "_.:-".contains(c);
    let text: String = id.chars().map(|c| if is_taken(c) { c } else { '_' }).collect();
    match text.len() > MAX_ID {
        true => format!("{}_{}", &text[..MAX_ID - 9], short_digest(id)),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_at_most_64_characters_that_are_taken() {
        assert_eq!(call_id("tooluse_a-B.9:x"), "tooluse_a-B.9:x");
        assert_eq!(call_id("a b/ü"), "a_b__");
        let (one, other) = (call_id(&"x".repeat(65)), call_id(&"x".repeat(66)));
        assert_eq!((one.len(), other.len()), (64, 64));
        assert_ne!(one, other);
    }
}
