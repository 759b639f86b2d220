//! Compares the API server in memory (`src/apiserver`) with the real one: both are played the same script of requests.

use anyhow::{Result, anyhow, ensure};
use apiserver::{
    ApiServer,
    comparison::{RecordedResponse, differences, play},
};
use jiff::Timestamp;
use kube::{Client, client::Body};
use serde_json::json;

use crate::{
    namespace::Namespace,
    scenario::{Scenario, scenarios},
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    the_api_server_in_memory_answers_as_the_real_one,
);

async fn the_api_server_in_memory_answers_as_the_real_one(ns: Namespace) -> Result<()> {
    let in_memory = Client::new(ApiServer::new(Timestamp::now, |_| None), "default");
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ns.name}});
    let request = http::Request::post("/api/v1/namespaces").header("content-type", "application/json");
    let created = in_memory.send(request.body(Body::from(body.to_string().into_bytes()))?).await?;
    ensure!(created.status() == http::StatusCode::CREATED, "the namespace: {}", created.status());

    let real = answers(&ns.env.client_without_retry, &ns.name).await?;
    let ours = answers(&in_memory, &ns.name).await?;
    let differences = differences(&real, &ours);
    ensure!(differences.is_empty(), "{}", differences.join("\n  "));
    Ok(())
}

async fn answers(client: &Client, namespace: &str) -> Result<Vec<(String, RecordedResponse)>> {
    let send = |request| {
        let client = client.clone();
        async move { client.send(request).await }
    };
    play(tower::service_fn(send), namespace).await.map_err(|error| anyhow!(error))
}
