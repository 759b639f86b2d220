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
mod judge;
mod manifest;
mod output;
mod problem;
mod routes;
mod table;

use std::sync::Arc;

use chat::Chats;
use contract::Files;
use endpoint::Flow;
use judge::Judge;
use problem::{Problem, sentence};
use serde_json::{Map, Value, json};
use table::Table;
use tokio_util::task::TaskTracker;

use super::{
    Lookup,
    config::LogFormat,
    metrics::Metrics,
    openai_api,
    shell::{Service, Shell},
};

pub(super) use folder::Folder;
pub(super) use manifest::MANIFEST;

/// The version of the contract that is read here.
const CONTRACT_VERSION: &str = "1";

/// What is served, and how.
#[derive(Debug)]
pub struct Settings {
    /// The contract's files.
    pub(super) folder: Folder,
    /// Whether they are those of a set.
    pub(super) set: bool,
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
pub(super) fn service(settings: &Settings, environment: Arc<Lookup>) -> Service {
    let metrics = Metrics::default();
    let judge = Judge::new(&settings.folder, environment, metrics.clone());
    let (table, readiness) = match unknown_version(settings) {
        Some(problem) => broken(settings.name.as_deref().unwrap_or("flow"), &[problem]),
        None if settings.set => set(settings, &judge),
        None => one(settings, &judge),
    };
    let shell =
        Shell { check: None, readiness: readiness.into(), metrics: metrics.clone(), requests: TaskTracker::new() };
    let answers = Chats::of(&table);
    shell.around(routes::router(table, metrics).merge(openai_api::routes(answers)))
}

/// The body of `/readyz`: of a 200, or of a 503 that will never be another: the files do not change while it runs.
type Readiness = Result<Value, Value>;

fn one(settings: &Settings, judge: &Judge) -> (Table, Readiness) {
    let name = settings.name.as_deref();
    let flow = Files::read(&settings.folder, "").and_then(|files| judge.one(&files, name));
    log(name, &flow);
    let readiness = match &flow {
        Ok(_) => Ok(json!({ "status": "ok" })),
        Err(problems) => Err(json!({ "error": sentence(problems) })),
    };
    (Table::of_one(name, flow), readiness)
}

/// Files of another version may mean anything, so none of them is served.
fn unknown_version(settings: &Settings) -> Option<Problem> {
    let version = &settings.version;
    let text = format!(
        "the operator writes version {version} of the contract and this runtime reads {CONTRACT_VERSION}: use the image \
         of the operator's release"
    );
    (version != CONTRACT_VERSION).then(|| Problem::new("RECIF_CONTRACT_VERSION", text))
}

/// Nothing can be served, because of `problems`.
fn broken(label: &str, problems: &[Problem]) -> (Table, Readiness) {
    log(None, &Err(problems.to_vec()));
    (Table::broken(label, problems), Err(json!({ "error": sentence(problems) })))
}

fn set(settings: &Settings, judge: &Judge) -> (Table, Readiness) {
    let places = match manifest::read(&settings.folder) {
        Ok(places) => places,
        Err(problems) => return broken("set", &problems),
    };
    let mut flows = Vec::with_capacity(places.len());
    for (name, place) in places {
        let flow = place.and_then(|place| {
            Files::read(&settings.folder, &place.folder)
                .and_then(|files| judge.member(&files, place.entrypoint.as_deref()))
        });
        log(Some(&name), &flow);
        flows.push((name, flow));
    }
    let readiness = readiness(&flows);
    (Table::of_set(flows), readiness)
}

/// A set is ready when one of its flows is; the body says how each is.
fn readiness(flows: &[(String, Result<Flow, Vec<Problem>>)]) -> Readiness {
    let state = |flow: &Result<Flow, Vec<Problem>>| match flow {
        Ok(_) => "ok".to_owned(),
        Err(problems) => sentence(problems),
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

fn log(name: Option<&str>, flow: &Result<Flow, Vec<Problem>>) {
    match flow {
        Ok(flow) => tracing::info!(flow = name, prompts = flow.prompts.len(), "ready"),
        Err(problems) => {
            for Problem { file, line, text } in problems {
                tracing::error!(flow = name, file, line, "not ready: {text}");
            }
        }
    }
}
