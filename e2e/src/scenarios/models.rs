//! Tests models of providers: fallbacks answer for one that cannot, and mistakes in a PluginConfig are reported.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use super::{flows::provide_stub, gateway_auth::send_request};
use crate::{
    client::ClientTarget,
    env::run_to_exit,
    kinds::{AGENT, FLOW, MODEL, PLUGIN_CONFIG},
    manifests::{agent, model, object, plugin_config, secret, workload},
    namespace::{Namespace, REPORT_TIMEOUT},
    object::{Object, ObjectExt as _},
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    a_deployment_at_azure_answers,
    a_flow_says_what_its_models_lack,
    another_model_answers_where_the_first_cannot,
    a_plugin_config_says_what_it_lacks_and_what_nothing_reads,
);

/// Exit code of `recif why` for an object that is not ready.
const NOT_READY: i32 = 3;
/// Longest wait for the condition on a fallback: the minute that is counted, and a report of the gateway.
const FALLBACK_TIMEOUT: Duration = Duration::from_secs(90);

async fn a_deployment_at_azure_answers(ns: Namespace) -> Result<()> {
    ns.start(&workload("provider", json!({}))).await?;
    ns.apply(&secret("azure", json!({"AZURE_OPENAI_API_KEY": "hunter2"}))).await?;
    let endpoint = format!("http://provider.{}.svc.cluster.local:8000", ns.name);
    let extra = json!({"endpoint": endpoint, "apiVersion": "2024-10-21"});
    let azure = json!({"type": "azure-openai", "extraConfig": extra, "credentialsRef": {"name": "azure"}});
    ns.provide(&plugin_config("azure", azure)).await?;
    let spec = json!({"provider": "azure-openai", "model": "blue", "pluginConfigRef": {"name": "azure"}});
    ns.provide(&object(MODEL, "blue", spec)).await?;
    ns.apply(&agent("talks", json!({"modelRef": {"name": "blue"}}))).await?;
    ns.await_running(AGENT, "talks").await?;
    let mut command = ns.env.recif_command();
    command.args(["chat", "agent/talks", "hello", "-n", &ns.name]).env_remove("RECIF_GATEWAY");
    let said = run_to_exit(command, None).await?;
    ensure!(said.code == 0 && said.stdout == "blue 2024-10-21 hunter2\n", "{said:?}");
    Ok(())
}

async fn a_flow_says_what_its_models_lack(ns: Namespace) -> Result<()> {
    provide_stub(&ns).await?;
    ns.provide(&plugin_config("aws", json!({"type": "bedrock", "region": "eu-central-1"}))).await?;
    ns.provide(&model("nova", "aws")).await?;
    let mut first = model("first", "stub");
    first["spec"]["fallbackRefs"] = json!([{"name": "nova"}]);
    first["spec"]["defaultConfig"] = json!({"toolChoice": "any"});
    ns.provide(&first).await?;
    let flow = json!({"prompts": [{"prompt": {"name": "say", "content": "hi"}}], "modelRef": {"name": "first"}});
    ns.apply(&object(FLOW, "talks", flow)).await?;
    let words = "Model first: in defaultConfig, `toolChoice` is auto, none, required, or";
    ns.await_not_ready(FLOW, "talks", REPORT_TIMEOUT, "Resolving", &[words]).await?;
    let (code, why) = ns.env.recif(&["why", "flow/talks", "-n", &ns.name]).await?;
    ensure!(code == NOT_READY && why.contains(words), "exit code {code}: {why}");
    first["spec"]["defaultConfig"] = json!({"toolChoice": "auto"});
    ns.provide(&first).await?;

    // It runs without the fallback that has no credentials.
    let running = ns.await_running(FLOW, "talks").await?;
    let words = "PluginConfig aws names no Secret with AWS_BEARER_TOKEN_BEDROCK";
    let understood = running.condition("ConfigUnderstood");
    ensure!(understood.is_false() && understood.contains(words), "{}", running.describe());
    let (code, why) = ns.env.recif(&["why", "flow/talks", "-n", &ns.name]).await?;
    ensure!(code == 0 && why.contains(words), "exit code {code}: {why}");

    // The key of a gateway has a name of its own, which must be declared.
    ns.apply(&secret("gateway", json!({"token": "hunter2"}))).await?;
    let extra = json!({"baseUrl": "http://gateway.example"});
    let mut aws = json!({"type": "bedrock", "extraConfig": extra, "credentialsRef": {"name": "gateway"}});
    ns.apply(&plugin_config("aws", aws.clone())).await?;
    let words = "type bedrock reads no key of Secret gateway: name the one with the credential in credentialKeys";
    let says = |it: &Object| it.condition("ConfigUnderstood").contains(words);
    ns.until(PLUGIN_CONFIG, "aws", REPORT_TIMEOUT, words, says).await?;
    aws["credentialKeys"] = json!(["token"]);
    ns.provide(&plugin_config("aws", aws)).await?;
    let whole = ns.await_reconfigured(FLOW, &running).await?;
    ensure!(!whole.condition("ConfigUnderstood").is_false(), "{}", whole.describe());
    Ok(())
}

async fn another_model_answers_where_the_first_cannot(ns: Namespace) -> Result<()> {
    ns.start(&workload("provider", json!({}))).await?;
    let base = format!("http://provider.{}.svc.cluster.local:8000/unavailable", ns.name);
    let down = json!({"type": "openai", "extraConfig": {"endpoint": base}});
    ns.provide(&plugin_config("down", down)).await?;
    let spec = json!({
        "provider": "openai", "model": "gpt", "pluginConfigRef": {"name": "down"}, "fallbackRefs": [{"name": "echo"}],
    });
    ns.apply(&object(MODEL, "first", spec)).await?;
    ns.apply(&agent("talks", json!({"modelRef": {"name": "first"}}))).await?;
    ns.await_agent_not_ready("talks", REPORT_TIMEOUT, "Resolving", &["model \"echo\" not found", "model \"first\""])
        .await?;
    provide_stub(&ns).await?;
    let running = ns.await_running(AGENT, "talks").await?;
    ensure!(running.text("/status/model") == "openai/gpt", "{}", running.describe());

    let mut command = ns.env.recif_command();
    command.args(["chat", "agent/talks", "hello", "-n", &ns.name]).env_remove("RECIF_GATEWAY");
    let said = run_to_exit(command, None).await?;
    ensure!(said.code == 0 && said.stdout == "echo: hello\n", "{said:?}");
    ensure!(said.stderr.contains("answered by stub/echo"), "{said:?}");
    let service = ClientTarget::service(&ns, "talks").await?;
    let answer = send_request(&ns, &service, "POST", "/chat", r#"{"message": "hello"}"#).await?;
    ensure!(answer.status == 200 && answer.header("x-recif-model") == Some("stub/echo"), "{answer:?}");
    // The container runtime writes a line to the log's file a moment after the answer.
    poll(REPORT_TIMEOUT, "the fallback in the log", || async {
        let (code, log) = ns.env.recif(&["logs", "agent/talks", "-n", &ns.name]).await?;
        ensure!(code == 0 && log.contains("another model is asked") && log.contains("HTTP 503"), "{log}");
        ensure!(log.contains("a fallback answers") && log.contains("stub/echo"), "{log}");
        Ok(Some(()))
    })
    .await?;

    let gateway = ClientTarget::gateway(&ns, AGENT, "talks").await?;
    let answer = send_request(&ns, &gateway, "POST", "/chat", r#"{"message": "hello"}"#).await?;
    ensure!(answer.status == 200, "{answer:?}");
    let words = "stub/echo answers for openai/gpt since ";
    let falls_back =
        |it: &Object| it.condition("ModelFallback").is_true() && it.condition("ModelFallback").contains(words);
    ns.until(AGENT, "talks", FALLBACK_TIMEOUT, "says that another model answers", falls_back).await?;
    let (code, why) = ns.env.recif(&["why", "agent/talks", "-n", &ns.name]).await?;
    ensure!(code == 0 && why.contains(words) && why.contains("(HTTP 503)"), "{why}");

    // Two models may stand in for each other.
    let spec = json!({
        "provider": "stub", "model": "echo", "pluginConfigRef": {"name": "stub"}, "fallbackRefs": [{"name": "first"}],
    });
    ns.apply(&object(MODEL, "echo", spec)).await?;
    let settled = |it: &Object| it.phase() == "Available" && it.is_current();
    ns.until(MODEL, "echo", REPORT_TIMEOUT, "is Available", settled).await?;
    ns.until(MODEL, "first", REPORT_TIMEOUT, "is Available", settled).await?;
    Ok(())
}

async fn a_plugin_config_says_what_it_lacks_and_what_nothing_reads(ns: Namespace) -> Result<()> {
    let elsewhere = json!({"type": "vertexai", "region": "eu", "extraConfig": {"location": "us"}});
    ns.apply(&plugin_config("bare", json!({"type": "anthropic"}))).await?;
    let words = "anthropic needs credentialsRef, or baseUrl, headersFrom or passthrough";
    let says = |it: &Object| it.phase() == "Error" && it.condition("Ready").contains(words);
    ns.until(PLUGIN_CONFIG, "bare", REPORT_TIMEOUT, words, says).await?;
    for (name, spec, words) in [
        ("nowhere", json!({"type": "bedrock"}), "bedrock needs region, such as eu-central-1"),
        ("twice", elsewhere, "keep one of region, location"),
    ] {
        let config = ns.provide(&plugin_config(name, spec)).await?;
        let understood = config.condition("ConfigUnderstood");
        ensure!(understood.is_false() && understood.contains(words), "{}", config.describe());
    }
    let misspelt = json!({"type": "ollama", "extraConfig": {"baseUrl": "http://o", "baseUri": "http://o"}});
    let config = ns.provide(&plugin_config("misspelt", misspelt)).await?;
    let understood = config.condition("ConfigUnderstood");
    ensure!(understood.is_false() && understood.contains("baseUri"), "{}", config.describe());
    // A type of another image is no mistake, and our own runtime says that it cannot speak it.
    ns.provide(&plugin_config("foreign", json!({"type": "mistral", "extraConfig": {"projectId": "p"}}))).await?;
    let mut spec = model("large", "foreign");
    spec["spec"]["provider"] = json!("mistral");
    ns.provide(&spec).await?;
    let flow = json!({"prompts": [{"prompt": {"name": "say", "content": "hi"}}], "modelRef": {"name": "large"}});
    ns.apply(&object(FLOW, "talks", flow)).await?;
    let words = "unknown model provider `mistral`";
    let says = |it: &Object| it.phase() == "Resolving" && it.condition("Ready").contains(words);
    ns.until(FLOW, "talks", REPORT_TIMEOUT, words, says).await?;
    Ok(())
}
