//! One object and the data about it: status, history, Events, load and tools.

use crds::{ApiKind, MCPServerSpec, Role};
use futures::FutureExt as _;
use meta::Key;
use serde::Deserialize as _;
use serde_json::Value;
use store::gaps;

use super::{
    history::{steps_of_deleted, stored_steps},
    lists::kind_of,
    operation::{OperationFuture, OperationRequest, Param, ParamValues},
    problem::Problem,
    response::OperationResponse,
    step_types::{Step, Trace},
    types::{Event, Events, ToolDefinition, Tools},
};
use crate::{
    app::SharedAppState,
    auth::ApiCaller,
    fleet::{FleetEntry, Record},
    related::EventRecord,
};

/// Parameters of the history of an object.
pub(super) const TRACE: &[Param] = &[Param {
    name: "since",
    about: "Only steps after this number.",
    values: ParamValues::Number(0, i64::MAX),
    repeatable: false,
}];
/// Parameters of the tools of a server.
pub(super) const TOOLS: &[Param] = &[Param {
    name: "kind",
    about: "The server's kind, where both kinds have one of the name.",
    values: ParamValues::OneOf(|| vec!["MCPServer", "RemoteMCPServer"]),
    repeatable: false,
}];

/// Finds the object of a path.
pub(super) async fn find(
    app: &SharedAppState,
    caller: &ApiCaller,
    asked: &OperationRequest,
) -> Result<FleetEntry, Problem> {
    let kind = kind_of(asked)?;
    look_up(app, caller, kind, asked).await?.ok_or_else(|| missing(kind, asked))
}

/// Finds the object of a path, if there is one, after a check that the caller may read it.
async fn look_up(
    app: &SharedAppState,
    caller: &ApiCaller,
    kind: &'static ApiKind,
    asked: &OperationRequest,
) -> Result<Option<FleetEntry>, Problem> {
    let (namespace, name) = (asked.path_segment("namespace"), asked.path_segment("name"));
    app.auth.may_get(caller, kind, namespace, name).await?;
    Ok(app.fleet.get(kind, &Key::new(namespace, name)))
}

fn missing(kind: &ApiKind, asked: &OperationRequest) -> Problem {
    Problem::missing(format!(
        "{} {}/{} not found",
        kind.name,
        asked.path_segment("namespace"),
        asked.path_segment("name")
    ))
}

/// Returns the whole object.
pub(super) fn object(app: SharedAppState, caller: ApiCaller, asked: OperationRequest) -> OperationFuture {
    async move {
        let FleetEntry { stamp, record } = find(&app, &caller, &asked).await?;
        let mut body = record.json();
        if !record.object().get("status").is_some_and(Value::is_object) {
            let mut object = record.object();
            object["status"] = Value::Null;
            body = serde_json::to_vec(&object).map_err(|error| Problem::defect(&error))?;
        }
        Ok(OperationResponse::Json { body: body.into(), tag: format!("{}-{stamp}", app.fleet.epoch()) })
    }
    .boxed()
}

/// Returns its status.
pub(super) fn status(app: SharedAppState, caller: ApiCaller, asked: OperationRequest) -> OperationFuture {
    async move {
        let record = find(&app, &caller, &asked).await?.record;
        OperationResponse::of(&record.object()["status"])
    }
    .boxed()
}

/// Returns its history. A deleted object still has one, but only in the database.
pub(super) fn trace(app: SharedAppState, caller: ApiCaller, asked: OperationRequest) -> OperationFuture {
    async move {
        let kind = kind_of(&asked)?;
        let since = asked.number("since").unwrap_or_default();
        let entries = if let Some(FleetEntry { record, .. }) = look_up(&app, &caller, kind, &asked).await? {
            let known: Vec<Step> = record.history_after(since).iter().map(Step::from).collect();
            let mut entries = stored_steps(&app, &record, since, &known).await;
            entries.extend(known);
            entries
        } else {
            let (namespace, name) = (asked.path_segment("namespace"), asked.path_segment("name"));
            let gone = steps_of_deleted(&app, kind.name, namespace, name, since).await;
            gone.ok_or_else(|| missing(kind, &asked))?
        };
        let gaps = gaps(since, entries.iter().map(|entry| entry.seq));
        OperationResponse::of(&Trace { entries, gaps })
    }
    .boxed()
}

/// Returns the Events about it, and the warnings about its Deployment, ReplicaSets and Pods.
pub(super) fn events(app: SharedAppState, caller: ApiCaller, asked: OperationRequest) -> OperationFuture {
    async move {
        let record = find(&app, &caller, &asked).await?.record;
        let mut items = events_about(&app, &record.uid, &format!("{}/{}", record.kind.name, record.key.name));
        if record.kind.role == Role::Workload {
            items.extend(rollout_warnings(&app, &record));
            for pod in app.related.pods_of(record.kind, &record.key) {
                items.extend(events_about(&app, &pod.uid, &format!("Pod/{}", pod.name)));
            }
        }
        items.sort_by(|one, other| other.last_at.cmp(&one.last_at));
        OperationResponse::of(&Events { items })
    }
    .boxed()
}

/// Returns the warnings about its Deployment and its ReplicaSets, such as that a quota or the Pod Security level refuses its Pods.
fn rollout_warnings(app: &SharedAppState, record: &Record) -> Vec<Event> {
    let Some(found) = app.related.deployments.get(&record.key).filter(|found| found.owner == record.uid) else {
        return Vec::new();
    };
    let mut items = events_about(app, &found.uid, &format!("Deployment/{}", record.key.name));
    items.extend(app.related.replica_set_warnings(&record.key).iter().map(|seen| {
        let name = seen.replica_set.as_deref().unwrap_or_default();
        event(seen, format!("ReplicaSet/{name}"))
    }));
    items
}

/// Returns the Events about the object with this uid, which is shown by this name.
fn events_about(app: &SharedAppState, uid: &str, object: &str) -> Vec<Event> {
    app.related.events_of(uid).iter().map(|seen| event(seen, object.to_owned())).collect()
}

fn event(seen: &EventRecord, object: String) -> Event {
    Event {
        object,
        type_: seen.type_.to_string(),
        reason: seen.reason.to_string(),
        message: seen.message.to_string(),
        count: seen.count,
        first_at: seen.times.0.to_string(),
        last_at: seen.times.1.to_string(),
    }
}

/// Returns its load.
pub(super) fn load(app: SharedAppState, caller: ApiCaller, asked: OperationRequest) -> OperationFuture {
    async move {
        let record = find(&app, &caller, &asked).await?.record;
        let pods =
            if record.kind.role == Role::Workload { app.related.pods_of(record.kind, &record.key) } else { Vec::new() };
        OperationResponse::of(&*app.loads.get(&record.uid, pods).await)
    }
    .boxed()
}

/// Returns the tools of a server.
pub(super) fn tools(app: SharedAppState, caller: ApiCaller, asked: OperationRequest) -> OperationFuture {
    async move {
        let key = Key::new(asked.path_segment("namespace"), asked.path_segment("name"));
        let named = asked.one("kind").and_then(ApiKind::find);
        let kinds = ["MCPServer", "RemoteMCPServer"].into_iter().filter_map(ApiKind::find);
        let kinds: Vec<_> = named.map_or_else(|| kinds.collect(), |kind| vec![kind]);
        let mut refused = None;
        for kind in kinds {
            match app.auth.may_get(&caller, kind, &key.namespace, &key.name).await {
                Err(problem) => refused = Some(problem),
                Ok(()) => {
                    let Some(entry) = app.fleet.get(kind, &key) else { continue };
                    let text = app.fleet.tools(kind.name, &key);
                    let items: Vec<ToolDefinition> = text
                        .map(|text| serde_json::from_str(&text))
                        .transpose()
                        .map_err(|error| Problem::defect(&error))?
                        .unwrap_or_default();
                    let routed = kind.name == "MCPServer";
                    let call_path = routed
                        .then(|| format!("/v1/mcp/{}/{}{}", key.namespace, key.name, endpoint(&entry.record.object())));
                    return OperationResponse::of(&Tools { items, call_path });
                }
            }
        }
        Err(refused.unwrap_or_else(|| Problem::missing(format!("MCP server {key} not found"))))
    }
    .boxed()
}

/// Returns the path of an MCP server's endpoint.
fn endpoint(object: &Value) -> String {
    let spec = MCPServerSpec::deserialize(&object["spec"]);
    spec.map_or_else(|_| "/mcp".to_owned(), |spec| spec.path().to_owned())
}
