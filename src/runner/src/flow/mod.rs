//! Flows: prompts served over HTTP, each with a model and tools.
//!
//! The operator mounts their files ([`contract`], [`manifest`]). All of them are read and validated before the first
//! connection is accepted: templates and schemas are compiled, models opened, credentials looked up. Every problem is
//! logged with its file and line. A flow with a problem is not served: alone it makes the process not ready; in a set
//! it responds with the problem while the others serve.

mod chat;
mod compile;
mod contract;
mod endpoint;
mod folder;
mod loader;
mod manifest;
mod output;
mod problem;
mod routes;
mod table;

use std::{net::SocketAddr, sync::Arc};

use chat::FlowModels;
use contract::FlowSources;
use endpoint::Flow;
use loader::FlowLoader;
use problem::{FlowProblem, join_problems};
use serde_json::{Map, Value, json};
use table::RouteTable;
use telemetry::TelemetryConfig;
use tokio_util::task::TaskTracker;

use super::{
    Lookup,
    common_routes::{CommonRoutes, RunnerService},
    metrics::RunnerMetrics,
    openai_api,
    process_attributes::process_attributes,
    variables::LogFormat,
};

pub(super) use folder::Folder;
pub(super) use manifest::MANIFEST;

/// Version of the contract that this runtime reads.
const CONTRACT_VERSION: &str = "1";

/// Settings of the modes that serve flows.
#[derive(Debug)]
pub struct FlowSettings {
    /// Folder of the contract.
    pub(super) folder: Folder,
    /// Set when the folder holds a set of flows.
    pub(super) is_set: bool,
    /// Version of the contract, as set by the operator.
    pub(super) version: String,
    /// Name of a flow served alone.
    pub(super) name: Option<String>,
    /// Namespace of the object.
    pub(super) namespace: String,
    /// Configuration of traces.
    pub(super) telemetry: TelemetryConfig,
    /// Address to listen on.
    pub(super) address: SocketAddr,
    /// Format of log lines.
    pub(super) log: LogFormat,
}

/// Builds the service of all flows. `environment` looks up credentials and the variables that headers of tools refer
/// to. Flows that cannot be served are logged here, once.
pub(super) fn service(settings: &FlowSettings, environment: Arc<Lookup>) -> RunnerService {
    let kind = if settings.is_set { "FlowSet" } else { "Flow" };
    let name = settings.name.as_deref().unwrap_or("flow");
    let own = process_attributes(&settings.telemetry, kind, name, &settings.namespace);
    let metrics = RunnerMetrics::with_tracing(&settings.telemetry, &own, &*environment);
    let flow_loader = FlowLoader::new(&settings.folder, environment, metrics.clone());
    let (table, readiness) = match unknown_version(settings) {
        Some(problem) => broken(settings.name.as_deref().unwrap_or("flow"), &[problem]),
        None if settings.is_set => load_set(settings, &flow_loader),
        None => load_single(settings, &flow_loader),
    };
    let shell = CommonRoutes {
        check: None,
        readiness: readiness.into(),
        metrics: metrics.clone(),
        requests: TaskTracker::new(),
    };
    let answers = FlowModels::from_table(&table);
    shell.wrap(routes::router(table, metrics).merge(openai_api::routes(answers)))
}

/// Body of `/readyz`: of a 200, or of a 503 that will never change, because the files are read only once.
type ReadyzBody = Result<Value, Value>;

fn load_single(settings: &FlowSettings, flow_loader: &FlowLoader) -> (RouteTable, ReadyzBody) {
    let name = settings.name.as_deref();
    let flow = FlowSources::read(&settings.folder, "").and_then(|files| flow_loader.load_single(&files, name));
    log(name, &flow);
    let readiness = match &flow {
        Ok(_) => Ok(json!({ "status": "ok" })),
        Err(problems) => Err(json!({ "error": join_problems(problems) })),
    };
    (RouteTable::of_one(name, flow), readiness)
}

/// Checks the version: files of another version may have any meaning, so none of them is served.
fn unknown_version(settings: &FlowSettings) -> Option<FlowProblem> {
    let version = &settings.version;
    let text = format!(
        "the operator writes version {version} of the contract and this runtime reads {CONTRACT_VERSION}: use the image \
         of the operator's release"
    );
    (version != CONTRACT_VERSION).then(|| FlowProblem::new("RECIF_CONTRACT_VERSION", text))
}

/// Builds a table that serves nothing, because of `problems`.
fn broken(label: &str, problems: &[FlowProblem]) -> (RouteTable, ReadyzBody) {
    log(None, &Err(problems.to_vec()));
    (RouteTable::broken(label, problems), Err(json!({ "error": join_problems(problems) })))
}

fn load_set(settings: &FlowSettings, flow_loader: &FlowLoader) -> (RouteTable, ReadyzBody) {
    let entries = match manifest::read(&settings.folder) {
        Ok(entries) => entries,
        Err(problems) => return broken("set", &problems),
    };
    let mut flows = Vec::with_capacity(entries.len());
    for (name, place) in entries {
        let flow = place.and_then(|place| {
            FlowSources::read(&settings.folder, &place.folder)
                .and_then(|files| flow_loader.load_member(&files, place.entrypoint.as_deref()))
        });
        log(Some(&name), &flow);
        flows.push((name, flow));
    }
    let readiness = readiness(&flows);
    (RouteTable::of_set(flows), readiness)
}

/// Reports the readiness of a set, which is ready when one of its flows is; the body has the state of each.
fn readiness(flows: &[(String, Result<Flow, Vec<FlowProblem>>)]) -> ReadyzBody {
    let state = |flow: &Result<Flow, Vec<FlowProblem>>| match flow {
        Ok(_) => "ok".to_owned(),
        Err(problems) => join_problems(problems),
    };
    let states: Map<String, Value> = flows.iter().map(|(name, flow)| (name.clone(), state(flow).into())).collect();
    let good = flows.iter().filter(|(_, flow)| flow.is_ok()).count();
    if good == flows.len() {
        Ok(json!({ "status": "ok", "flows": states }))
    } else if good > 0 {
        Ok(json!({ "status": "degraded", "flows": states }))
    } else {
        Err(json!({ "error": "no flow of the set can be served", "flows": states }))
    }
}

fn log(name: Option<&str>, flow: &Result<Flow, Vec<FlowProblem>>) {
    match flow {
        Ok(flow) => tracing::info!(flow = name, prompts = flow.prompts.len(), "ready"),
        Err(problems) => {
            for FlowProblem { file, line, text } in problems {
                tracing::error!(flow = name, file, line, "not ready: {text}");
            }
        }
    }
}
