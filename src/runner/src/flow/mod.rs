//! Flows: prompts that are served, each with a model and tools.
//!
//! The operator mounts their files ([`contract`], [`manifest`]). All of them are read and judged before the port is
//! bound: templates and schemas are compiled, models opened, credentials looked up. Every problem is logged with its file
//! and line. A flow with a problem is not served: alone it makes the process not ready, in a set it answers with the
//! problem and the others serve.

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

use std::sync::Arc;

use chat::FlowModels;
use contract::FlowSources;
use endpoint::Flow;
use loader::FlowLoader;
use problem::{FlowProblem, join_problems};
use serde_json::{Map, Value, json};
use table::RouteTable;
use tokio_util::task::TaskTracker;

use super::{
    Lookup,
    common_routes::{CommonRoutes, RunnerService},
    config::LogFormat,
    metrics::RunnerMetrics,
    openai_api,
};

pub(super) use folder::Folder;
pub(super) use manifest::MANIFEST;

/// The version of the contract that is read here.
const CONTRACT_VERSION: &str = "1";

/// What is served, and how.
#[derive(Debug)]
pub struct FlowSettings {
    /// The contract's files.
    pub(super) folder: Folder,
    /// Whether they are those of a set.
    pub(super) is_set: bool,
    /// The version of the contract, as the operator says.
    pub(super) version: String,
    /// The name of the flow, when it is one.
    pub(super) name: Option<String>,
    /// TCP port to listen on.
    pub(super) port: u16,
    /// How to write log lines.
    pub(super) log: LogFormat,
}

/// Everything behind the port. `environment` finds credentials, and what headers of tools refer to. What cannot be
/// served is logged here, once.
pub(super) fn service(settings: &FlowSettings, environment: Arc<Lookup>) -> RunnerService {
    let metrics = RunnerMetrics::default();
    let judge = FlowLoader::new(&settings.folder, environment, metrics.clone());
    let (table, readiness) = match unknown_version(settings) {
        Some(problem) => broken(settings.name.as_deref().unwrap_or("flow"), &[problem]),
        None if settings.is_set => load_set(settings, &judge),
        None => load_single(settings, &judge),
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

/// The body of `/readyz`: of a 200, or of a 503 that will never be another: the files do not change while it runs.
type ReadyzBody = Result<Value, Value>;

fn load_single(settings: &FlowSettings, judge: &FlowLoader) -> (RouteTable, ReadyzBody) {
    let name = settings.name.as_deref();
    let flow = FlowSources::read(&settings.folder, "").and_then(|files| judge.load_single(&files, name));
    log(name, &flow);
    let readiness = match &flow {
        Ok(_) => Ok(json!({ "status": "ok" })),
        Err(problems) => Err(json!({ "error": join_problems(problems) })),
    };
    (RouteTable::of_one(name, flow), readiness)
}

/// Files of another version may mean anything, so none of them is served.
fn unknown_version(settings: &FlowSettings) -> Option<FlowProblem> {
    let version = &settings.version;
    let text = format!(
        "the operator writes version {version} of the contract and this runtime reads {CONTRACT_VERSION}: use the image \
         of the operator's release"
    );
    (version != CONTRACT_VERSION).then(|| FlowProblem::new("RECIF_CONTRACT_VERSION", text))
}

/// Nothing can be served, because of `problems`.
fn broken(label: &str, problems: &[FlowProblem]) -> (RouteTable, ReadyzBody) {
    log(None, &Err(problems.to_vec()));
    (RouteTable::broken(label, problems), Err(json!({ "error": join_problems(problems) })))
}

fn load_set(settings: &FlowSettings, judge: &FlowLoader) -> (RouteTable, ReadyzBody) {
    let places = match manifest::read(&settings.folder) {
        Ok(places) => places,
        Err(problems) => return broken("set", &problems),
    };
    let mut flows = Vec::with_capacity(places.len());
    for (name, place) in places {
        let flow = place.and_then(|place| {
            FlowSources::read(&settings.folder, &place.folder)
                .and_then(|files| judge.load_member(&files, place.entrypoint.as_deref()))
        });
        log(Some(&name), &flow);
        flows.push((name, flow));
    }
    let readiness = readiness(&flows);
    (RouteTable::of_set(flows), readiness)
}

/// A set is ready when one of its flows is; the body says how each is.
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
