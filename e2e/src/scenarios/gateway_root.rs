//! Tests what the gateway serves at its root: agents as models of OpenAI's API, and as tools of an MCP server.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::gateway_auth::{bind, token, with_token, without_token};
use crate::{
    client::{ClientTarget, HttpClientConnection, HttpClientResponse},
    kinds::ROLE,
    manifests::agent,
    namespace::Namespace,
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    an_agent_is_a_model_by_its_namespace_and_name,
    a_caller_finds_its_agents_as_models_and_tools_and_no_others,
);

/// Longest wait until a new permission is effective: a denial is cached for 5 s.
const GRANTED: Duration = Duration::from_secs(20);

/// Sends a request from inside the cluster and returns the response.
async fn send(
    ns: &Namespace,
    target: &ClientTarget,
    method: &'static str,
    path: &'static str,
    body: String,
) -> Result<HttpClientResponse> {
    let target = target.clone();
    let inside = ns.env.netns().await?;
    inside.run(async move { HttpClientConnection::request(&target, method, path, &body).await }).await
}

/// Returns the JSON of a response with this status.
fn json_of(answer: &HttpClientResponse, status: u16) -> Result<Value> {
    ensure!(answer.status == status, "{answer:?}");
    serde_json::from_str(&answer.text).with_context(|| format!("{answer:?}"))
}

async fn rpc(ns: &Namespace, target: &ClientTarget, method: &str, params: Value) -> Result<Value> {
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    json_of(&send(ns, target, "POST", "/mcp", message.to_string()).await?, 200)
}

async fn an_agent_is_a_model_by_its_namespace_and_name(ns: Namespace) -> Result<()> {
    ns.start(&agent("seller", json!({}))).await?;
    let gateway = ClientTarget::gateway_root(&ns.env).await?;
    let model = format!("{}/seller", ns.name);
    let ask = async |path: &'static str, body: Value| send(&ns, &gateway, "POST", path, body.to_string()).await;

    let body = json!({"input": "hi", "model": model});
    let first = poll(GRANTED, "an answer by the name of the model", || async {
        let answer = ask("/v1/responses", body.clone()).await?;
        Ok(Some(json_of(&answer, 200)?))
    })
    .await?;
    ensure!(first["output"][0]["content"][0]["text"] == "echo: hi" && first["model"] == model, "{first}");
    let next = json!({"model": model, "input": "on", "previous_response_id": first["id"]});
    let next = json_of(&ask("/v1/responses", next).await?, 200)?;
    ensure!(next["previous_response_id"] == first["id"], "{next}");
    let stream = ask("/v1/responses", json!({"model": model, "input": "hi", "stream": true})).await?;
    ensure!(stream.text.contains("event: response.output_text.delta\n"), "{stream:?}");
    ensure!(stream.text.contains("event: response.completed\n"), "{stream:?}");

    // The name may stand behind the whole conversation.
    let messages = json!([{"role": "user", "content": "x".repeat(200_000)}, {"role": "user", "content": "hello"}]);
    let completion = ask("/v1/chat/completions", json!({"messages": messages, "model": model})).await?;
    let completion = json_of(&completion, 200)?;
    ensure!(completion["choices"][0]["message"]["content"] == "echo: hello", "{completion}");

    let missing = ask("/v1/responses", json!({"model": format!("{}/nobody", ns.name), "input": "hi"})).await?;
    let missing = json_of(&missing, 404)?;
    ensure!(missing["error"]["code"] == "model_not_found", "{missing}");
    let unnamed = json_of(&ask("/v1/responses", json!({"input": "hi"})).await?, 400)?;
    ensure!(unnamed["error"]["message"].as_str().is_some_and(|text| text.contains("`namespace/name`")), "{unnamed}");
    Ok(())
}

async fn a_caller_finds_its_agents_as_models_and_tools_and_no_others(ns: Namespace) -> Result<()> {
    for name in ["mine", "other"] {
        ns.start(&agent(name, json!({}))).await?;
    }
    let role = json!({
        "apiVersion": ROLE.api_version(), "kind": ROLE.kind, "metadata": {"name": "calls-mine"},
        "rules": [{
            "apiGroups": [crds::GROUP], "resources": ["agents/invoke"], "resourceNames": ["mine"], "verbs": ["create"],
        }],
    });
    ns.create_object(&role).await?;
    let token = token(&ns, "bot").await?;
    bind(&ns, "bot", ROLE.kind, "calls-mine").await?;
    let gateway = ClientTarget::gateway_root(&ns.env).await?;
    let bot = with_token(&gateway, "Authorization", &token);

    let names = |list: &Value, key: &str| -> Vec<String> {
        let names = list.as_array().into_iter().flatten().filter_map(|one| one[key].as_str());
        names.filter(|name| name.starts_with(&ns.name)).map(ToOwned::to_owned).collect()
    };
    let mine = format!("{}/mine", ns.name);
    poll(GRANTED, "the caller's agent in the list of models", || async {
        let models = json_of(&send(&ns, &bot, "GET", "/v1/models", String::new()).await?, 200)?;
        ensure!(names(&models["data"], "id") == [mine.as_str()], "{models}");
        Ok(Some(()))
    })
    .await?;
    let tool = format!("{}_mine", ns.name);
    let tools = rpc(&ns, &bot, "tools/list", json!({})).await?;
    ensure!(names(&tools["result"]["tools"], "name") == [tool.as_str()], "{tools}");
    let call = |name: String| json!({"name": name, "arguments": {"message": "hi"}});
    let called = rpc(&ns, &bot, "tools/call", call(tool)).await?;
    ensure!(called["result"]["content"][0]["text"] == "echo: hi", "{called}");
    ensure!(called["result"]["isError"] == false, "{called}");
    let other = rpc(&ns, &bot, "tools/call", call(format!("{}_other", ns.name))).await?;
    ensure!(other["error"]["code"] == -32602, "{other}");
    let other = json!({"model": format!("{}/other", ns.name), "input": "hi"});
    json_of(&send(&ns, &bot, "POST", "/v1/responses", other.to_string()).await?, 403)?;

    let anonymous = without_token(&gateway);
    let refused =
        send(&ns, &anonymous, "POST", "/v1/responses", json!({"model": mine, "input": "hi"}).to_string()).await?;
    let refused = json_of(&refused, 401)?;
    ensure!(refused["error"]["message"].as_str().is_some_and(|text| text.contains("Authorization")), "{refused}");
    Ok(())
}
