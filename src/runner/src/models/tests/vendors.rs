//! Compares the clients of the providers with those of the vendors, which `hack/peers` installs.
//!
//! Both send the same requests to one double of all providers, `tests/peers/providers`, which judges whether requests and answers
//! mean the same.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use testing::peers;

use super::{
    super::{Chunk, Http, Message, ModelError, ModelRef, ModelRequest, OutputFormat, ToolSpec, Usage, open},
    collect,
};

/// First line of the double.
#[derive(Deserialize)]
struct VendorCases {
    cases: Vec<VendorCase>,
}

/// Request to be sent, with the place.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VendorCase {
    /// Provider with one way of addresses and credentials.
    lane: String,
    case: String,
    provider: String,
    model: String,
    region: Option<String>,
    base_url: String,
    settings: Map<String, Value>,
    /// Credentials.
    variables: BTreeMap<String, String>,
    request: VendorRequest,
}

#[derive(Deserialize)]
struct VendorRequest {
    system: Option<String>,
    messages: Vec<Message>,
    tools: Vec<VendorTool>,
    config: Map<String, Value>,
    /// JSON Schema of the answer, which is empty for any JSON.
    output: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
struct VendorTool {
    name: String,
    description: String,
    input_schema: Value,
}

/// Last line of the double.
#[derive(Deserialize)]
struct VendorVerdict {
    /// Number of cases.
    compared: usize,
    differences: Vec<String>,
}

/// Process of the double and of the vendors' clients. It ends with its input.
struct VendorDouble {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl VendorDouble {
    fn start() -> Self {
        let mut script = peers::python("providers/main.py");
        let mut process = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, output }
    }

    /// Reads the next line.
    fn read<T: DeserializeOwned>(&mut self) -> T {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("the double ended, or said {line:?}: {error}"))
    }

    fn write(&mut self, value: &Value) {
        let mut input = self.process.stdin.take().unwrap();
        writeln!(input, "{value}").unwrap();
    }
}

impl Drop for VendorDouble {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl From<VendorRequest> for ModelRequest {
    fn from(request: VendorRequest) -> Self {
        let VendorRequest { system, messages, tools, config, output } = request;
        let tool = |VendorTool { name, description, input_schema }| ToolSpec { name, description, input_schema };
        let format =
            |schema: Map<String, Value>| OutputFormat { schema: (!schema.is_empty()).then_some(Value::from(schema)) };
        Self {
            system: system.map(Into::into),
            messages: messages.into_iter().map(Arc::new).collect(),
            tools: tools.into_iter().map(tool).collect(),
            config: Arc::new(config),
            output: output.map(format),
            ..Self::default()
        }
    }
}

impl VendorCase {
    /// Sends the request and returns what came of it.
    async fn send(self, http: &Http) -> Value {
        let Self { lane, case, provider, model, region, base_url, settings, variables, request } = self;
        let reference = ModelRef { base_url: Some(base_url), region, settings, ..ModelRef::new(provider, model) };
        let model = open(&reference, &|name: &str| variables.get(name).cloned(), http).unwrap();
        let answer = meaning(collect(model.respond(request.into())).await);
        json!({ "lane": lane, "case": case, "answer": answer })
    }
}

/// Returns an answer in the form in which the double has those of the vendors' clients.
fn meaning(answer: Result<Vec<Chunk>, ModelError>) -> Value {
    let chunks = match answer {
        Ok(chunks) => chunks,
        Err(error) => {
            let wait = error.retry_after.map(|wait| u64::try_from(wait.as_millis()).unwrap());
            return json!({ "error": format!("{:?}", error.kind), "waitMs": wait });
        }
    };
    let (mut text, mut calls, mut end) = (String::new(), Vec::new(), "stop");
    let (mut usage, mut thought) = (Value::Null, Value::Null);
    for chunk in chunks {
        match chunk {
            Chunk::Token(more) => text.push_str(&more),
            Chunk::Call(call) => {
                if let Some(found) = &call.thought {
                    thought = serde_json::to_value(found).unwrap();
                }
                calls.push(json!({ "id": call.id, "name": call.name, "arguments": call.arguments }));
            }
            Chunk::Truncated => end = "truncated",
            Chunk::Usage(Usage { input, cache_read, cache_write, output, reasoning }) => {
                usage = json!({
                    "input": input, "cacheRead": cache_read, "cacheWrite": cache_write,
                    "output": output, "reasoning": reasoning,
                });
            }
            Chunk::Answerer(_) => {}
        }
    }
    if end == "stop" && !calls.is_empty() {
        end = "calls";
    }
    json!({ "text": text, "calls": calls, "end": end, "usage": usage, "thought": thought })
}

#[tokio::test]
async fn requests_and_answers_mean_the_same_as_those_of_the_vendors_clients() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut double = VendorDouble::start();
    let VendorCases { cases } = double.read();
    let (count, http) = (cases.len(), Http::plain(|_| {}));
    let mut answers = Vec::with_capacity(count);
    for case in cases {
        answers.push(case.send(&http).await);
    }
    double.write(&answers.into());
    let VendorVerdict { compared, differences } = double.read();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(compared == count && count > 400, "{compared} of {count} cases were compared");
}
