//! MCP server for the tools of `CORAIL_TOOLS` over standard input and output: `recif-runner mcp`.
//!
//! One JSON-RPC message per line, as in the stdio transport of the [Model Context
//! Protocol](https://modelcontextprotocol.io) (revisions up to 2025-11-25); the bridge of an MCPServer exposes it as
//! Streamable HTTP. So a tool that is defined once, for example an HTTP endpoint with its credentials, is available to
//! every client of the server. Calls run concurrently and are answered as they finish.

use std::{
    io::{self, BufRead, BufReader, Write},
    sync::Arc,
};

use serde_json::{Value, json};
use tokio::{sync::mpsc, task::JoinSet};

use super::{
    config::RunnerConfig,
    metrics::RunnerMetrics,
    models::ToolSpec,
    serve::environment,
    tools::{Toolbox, error::ToolError},
};

/// Supported revisions of the protocol, the newest first.
const REVISIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// Capacity of the queue of lines that were read and not yet parsed.
const READ_AHEAD: usize = 16;
/// Maximum number of concurrent calls; further lines wait (backpressure).
const MAX_CONCURRENT_CALLS: usize = 64;

// JSON-RPC 2.0, section 5.1.
const PARSE_ERROR: i32 = -32700;
const METHOD_NOT_FOUND: i32 = -32601;
const INVALID_PARAMS: i32 = -32602;

/// Serves the tools of `config` until standard input ends.
///
/// # Errors
/// A pipe failed.
pub async fn serve_tools(config: RunnerConfig) -> io::Result<()> {
    let tools = Toolbox::new(config.tools, Arc::new(environment), RunnerMetrics::default());
    serve(tools, BufReader::new(io::stdin()), io::stdout()).await
}

async fn serve(tools: Toolbox, input: impl BufRead + Send + 'static, mut output: impl Write) -> io::Result<()> {
    let (sender, mut read) = mpsc::channel(READ_AHEAD);
    // Reading a pipe blocks and cannot be cancelled: the thread ends with the process.
    std::thread::spawn(move || {
        for line in input.lines() {
            if sender.blocking_send(line).is_err() {
                break;
            }
        }
    });
    let mut calls = JoinSet::new();
    let mut more = true;
    while more || !calls.is_empty() {
        tokio::select! {
            line = read.recv(), if more && calls.len() < MAX_CONCURRENT_CALLS => match line.transpose()? {
                Some(line) => {
                    let tools = tools.clone();
                    calls.spawn(async move { respond(&tools, &line).await });
                }
                None => more = false,
            },
            Some(answered) = calls.join_next() => {
                if let Some(message) = answered.map_err(io::Error::other)? {
                    writeln!(output, "{message}")?;
                    output.flush()?;
                }
            }
        }
    }
    Ok(())
}

/// Responds to a message; `None` for a notification or a response.
async fn respond(tools: &Toolbox, line: &str) -> Option<Value> {
    let asked: Value = match serde_json::from_str(line) {
        Ok(asked) => asked,
        Err(error) => return Some(error_response(&Value::Null, PARSE_ERROR, &format!("a line is not JSON: {error}"))),
    };
    let (id, method) = (asked.get("id").filter(|id| !id.is_null())?, asked["method"].as_str()?);
    let params = &asked["params"];
    let result = match method {
        "initialize" => {
            let wanted = REVISIONS.iter().find(|known| params["protocolVersion"] == **known);
            json!({
                "protocolVersion": wanted.unwrap_or(&REVISIONS[0]),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "recif-runner", "version": env!("CARGO_PKG_VERSION")},
            })
        }
        "ping" => json!({}),
        "tools/list" => {
            let tool = |spec: &ToolSpec| json!({"name": spec.name, "description": spec.description, "inputSchema": spec.input_schema});
            json!({"tools": tools.specs().iter().map(tool).collect::<Vec<_>>()})
        }
        "tools/call" => {
            let name = params["name"].as_str().unwrap_or_default();
            match tools.call(name, &params["arguments"]).await {
                Err(error @ ToolError::Unknown(..)) => {
                    return Some(error_response(id, INVALID_PARAMS, &error.to_string()));
                }
                Err(error) => call_result(&error.to_string(), true),
                Ok(text) => call_result(&text, false),
            }
        }
        _ => return Some(error_response(id, METHOD_NOT_FOUND, &format!("unknown method {method:?}"))),
    };
    Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

/// Encodes the result of a call. A failed tool is a result for the model, not an error of the protocol.
fn call_result(text: &str, failed: bool) -> Value {
    json!({"content": [{"type": "text", "text": text}], "isError": failed})
}

fn error_response(id: &Value, code: i32, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}

#[cfg(test)]
mod tests {
    use super::super::tools::CallableTool;
    use super::*;

    /// Returns the responses to these lines, ordered by id, because they are written as they are ready.
    async fn exchange(lines: &[Value]) -> Vec<Value> {
        let tools = r#"[{"name": "calculator", "type": "builtin"}, {"name": "datetime", "type": "builtin"}]"#;
        let toolbox =
            Toolbox::new(CallableTool::read_all(tools).unwrap(), Arc::new(|_: &str| None), RunnerMetrics::default());
        let input: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let mut output = Vec::new();
        serve(toolbox, io::Cursor::new(input), &mut output).await.unwrap();
        let mut answers: Vec<Value> =
            String::from_utf8(output).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        answers.sort_by_key(|answer| answer["id"].as_i64());
        answers
    }

    fn rpc_request(id: i64, method: &str, params: Value) -> Value {
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    }

    #[tokio::test]
    async fn a_client_shakes_hands_and_learns_of_the_tools() {
        let answers = exchange(&[
            rpc_request(1, "initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {}})),
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
            rpc_request(2, "tools/list", Value::Null),
            rpc_request(3, "initialize", json!({"protocolVersion": "1999-01-01"})),
        ])
        .await;
        assert_eq!(answers.len(), 3, "{answers:?}");
        assert_eq!(answers[0]["result"]["protocolVersion"], "2025-06-18");
        let tools = answers[1]["result"]["tools"].as_array().unwrap();
        assert_eq!((&tools[0]["name"], &tools[1]["name"]), (&json!("calculator"), &json!("datetime")));
        assert_eq!(tools[0]["inputSchema"]["required"], json!(["expression"]));
        assert_eq!(answers[2]["result"]["protocolVersion"], REVISIONS[0], "it offers its own");
    }

    #[tokio::test]
    async fn a_tool_is_called_and_its_failure_is_told_to_the_model() {
        let call = |id, name: &str, expression: &str| {
            rpc_request(id, "tools/call", json!({"name": name, "arguments": {"expression": expression}}))
        };
        let answers =
            exchange(&[call(1, "calculator", "6*7"), call(2, "calculator", "6*"), call(3, "shell", "ls")]).await;
        assert_eq!(answers[0]["result"], json!({"content": [{"type": "text", "text": "42"}], "isError": false}));
        assert_eq!(answers[1]["result"]["isError"], true, "{answers:?}");
        assert_eq!(answers[2]["error"]["code"], INVALID_PARAMS);
    }

    #[tokio::test]
    async fn what_it_does_not_know_is_refused_and_it_goes_on() {
        let toolbox = Toolbox::new(Vec::new(), Arc::new(|_: &str| None), RunnerMetrics::default());
        let refused = respond(&toolbox, "{").await.unwrap();
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&Value::Null, &json!(PARSE_ERROR)));
        let answers = exchange(&[
            json!({"jsonrpc": "2.0", "id": 7, "result": {}}),
            rpc_request(8, "resources/list", Value::Null),
            rpc_request(9, "ping", Value::Null),
        ])
        .await;
        assert_eq!(answers[0]["error"]["code"], METHOD_NOT_FOUND);
        assert_eq!(answers[1], json!({"jsonrpc": "2.0", "id": 9, "result": {}}));
    }

    #[tokio::test]
    async fn a_call_that_a_person_has_to_approve_is_refused() {
        let tools = r#"[{"name": "calculator", "type": "builtin", "approval": {"when": "Always"}}]"#;
        let toolbox =
            Toolbox::new(CallableTool::read_all(tools).unwrap(), Arc::new(|_: &str| None), RunnerMetrics::default());
        let call = rpc_request(1, "tools/call", json!({"name": "calculator", "arguments": {"expression": "6*7"}}));
        let answer = respond(&toolbox, &call.to_string()).await.unwrap();
        assert_eq!(answer["result"]["isError"], true);
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(text.starts_with("refused: a person has to approve"), "{text}");
    }
}
