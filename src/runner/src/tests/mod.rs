//! Integration tests of the runtime: a real server on a free loopback port, used through HTTP.

mod a2a;
mod agent_tools;
mod approval;
mod approval_a2a;
mod approval_callers;
mod approval_edges;
mod approval_faults;
mod approval_hitl;
mod approval_report;
mod approval_rounds;
mod approver;
mod budgets;
mod chat;
mod config;
mod conversations;
mod draining;
mod egress;
mod flow;
mod forwarded;
mod knowledge;
pub(crate) mod log;
mod models;
mod openai_api;
mod responses;
mod sidecar;
mod tasks;
mod tools;
mod traces;
mod usage;
mod web_search;

use std::future::{Future, pending};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use super::agent::Agent;
use super::common_routes::RunnerService;
use super::config::RunnerConfig;
use super::conversations::Conversations;
use super::metrics::RunnerMetrics;
use super::models::Model;
use super::serve::{ServeError, build_app, environment, serve};
use super::server::AgentApp;
use super::tools::{CallableTool, Toolbox};

/// Running runtime with a client for it.
struct Runner {
    address: SocketAddr,
    client: reqwest::Client,
    serving: JoinHandle<Result<(), ServeError>>,
}

impl Runner {
    /// Starts a runtime with variables as the operator sets them.
    async fn with(variables: &[(&'static str, String)]) -> Self {
        Self::with_stop(pending(), Duration::ZERO, variables).await
    }

    /// Starts the same, which drains at `stop` for at most `grace`.
    async fn with_stop(
        stop: impl Future<Output = ()> + Send + 'static,
        grace: Duration,
        variables: &[(&'static str, String)],
    ) -> Self {
        let variables: Vec<_> = variables.to_vec();
        let lookup = move |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, v)| v.clone());
        let config = RunnerConfig::read(&lookup).unwrap();
        // Headers of tools refer to variables of this process too.
        let environment = move |name: &str| lookup(name).or_else(|| environment(name));
        Self::start(build_app(config, Arc::new(environment)), stop, grace).await
    }

    /// Starts a runtime with these elements of `CORAIL_TOOLS`.
    async fn with_tools(tools: Value) -> Self {
        Self::with(&[("CORAIL_TOOLS", tools.to_string()), ("CORAIL_SYSTEM_PROMPT", "be brief".into())]).await
    }

    /// Starts a runtime with a model other than the stub, and the builtin tools `datetime` and `calculator`.
    async fn with_model(model: impl Model + 'static) -> Self {
        Self::with_model_and(model, Conversations::memory(), pending()).await
    }

    /// Starts the same with these conversations; it drains at `stop`.
    async fn with_model_and(
        model: impl Model + 'static,
        conversations: Conversations,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let tools = json!([{"name": "datetime", "type": "builtin"}, {"name": "calculator", "type": "builtin"}]);
        let metrics = RunnerMetrics::default();
        let tools = CallableTool::read_all(&tools.to_string()).unwrap();
        let tools = Toolbox::new(tools, Arc::new(|_: &str| None), metrics.clone());
        let model: Arc<dyn Model> = Arc::new(model);
        let agent = Agent::with(model.clone(), model, None, tools).with_conversations(conversations);
        let app = AgentApp {
            name: "tester".into(),
            namespace: "shop".into(),
            card: Arc::default(),
            agent: Ok(Arc::new(agent)),
            metrics,
            requests: TaskTracker::new(),
        };
        Self::start(app, stop, Duration::from_secs(60)).await
    }

    async fn start(app: AgentApp, stop: impl Future<Output = ()> + Send + 'static, grace: Duration) -> Self {
        Self::serve(app.service(), stop, grace).await
    }

    async fn serve(service: RunnerService, stop: impl Future<Output = ()> + Send + 'static, grace: Duration) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(serve(listener, service, stop, grace));
        Self { address, client: reqwest::Client::builder().no_proxy().build().unwrap(), serving }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    async fn get(&self, path: &str) -> (u16, String) {
        let response = self.client.get(self.url(path)).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    async fn chat(&self, body: Value) -> (u16, Value) {
        let response = self.client.post(self.url("/chat")).body(body.to_string()).send().await.unwrap();
        (response.status().as_u16(), serde_json::from_slice(&response.bytes().await.unwrap()).unwrap())
    }

    /// Returns the reply to the first message of a new conversation.
    async fn say(&self, message: impl Into<String>) -> String {
        let (status, answer) = self.chat(json!({ "message": message.into() })).await;
        assert_eq!(status, 200, "{answer}");
        answer["reply"].as_str().unwrap().to_owned()
    }

    /// Returns the events of one turn: name ("" for none) and data.
    async fn events(&self, message: &str) -> Vec<(String, Value)> {
        let request = self.client.post(self.url("/chat")).header("accept", "text/event-stream;q=1, */*");
        let response = request.body(json!({ "message": message }).to_string()).send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let text = response.text().await.unwrap();
        let field = |event: &str, name: &str| {
            let start = format!("{name}: ");
            event.lines().find_map(|line| line.strip_prefix(&start).map(str::to_owned)).unwrap_or_default()
        };
        let events = text.split("\n\n").filter(|event| !event.is_empty());
        events.map(|event| (field(event, "event"), serde_json::from_str(&field(event, "data")).unwrap())).collect()
    }
}
