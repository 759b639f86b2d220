//! One object and the data about it: status, history, diagnosis, children, rendered files, Events, load and tools.

use crds::{
    ApiKind, ChildRecord, MCPServerSpec, Role,
    diagnosis::{first_lines, reference_problem},
    tool_server::tools_config_map,
    why::why,
};
use futures::{FutureExt as _, future::BoxFuture};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use meta::{CommonStatus, HistoryEntry, Key, condition_type};
use serde::Deserialize as _;
use serde_json::Value;
use store::gaps;

use super::{
    history::{steps_of_deleted, stored_steps},
    lists::kind_of,
    operation::{OperationRequest, Param, ParamValues},
    problem::Problem,
    response::OperationResponse,
    types::{Child, Children, Condition, Event, Events, File, Rendered, Step, ToolDefinition, Tools, Trace, Why},
};
use crate::{
    app::SharedAppState,
    auth::ApiCaller,
    fleet::{FleetEntry, MASKED, Record},
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
/// Number of last steps in a diagnosis.
const STEPS: usize = 5;

type OperationFuture = BoxFuture<'static, Result<OperationResponse, Problem>>;

/// Finds the object of a path.
async fn find(app: &SharedAppState, caller: &ApiCaller, asked: &OperationRequest) -> Result<FleetEntry, Problem> {
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

/// Returns its diagnosis: the reason for its state.
pub(super) fn reason(app: SharedAppState, caller: ApiCaller, asked: OperationRequest) -> OperationFuture {
    async move {
        let record = find(&app, &caller, &asked).await?.record;
        let object = record.object();
        let metadata = ObjectMeta::deserialize(&object["metadata"]).map_err(|error| Problem::defect(&error))?;
        let stored = record.status();
        let answer = why(record.kind.name, &metadata, stored.as_ref());
        let status = stored.unwrap_or_default();
        let mut steps: Vec<&HistoryEntry> = status.history.iter().rev().take(STEPS).collect();
        steps.reverse();
        OperationResponse::of(&Why {
            sentence: answer.sentence,
            phase: answer.phase,
            condition: condition(&status),
            waiting_for: waiting_for(&app, &caller, &record, &metadata, &status).await?,
            steps: steps.into_iter().map(Step::from).collect(),
            children: children_of(&app, &caller, &record).await?,
        })
    }
    .boxed()
}

/// Returns the condition that gives the reason: Stalled if it is true, else Ready. The initial status, from the defaults of the
/// schema, has none, because its time is no real one.
fn condition(status: &CommonStatus) -> Option<Condition> {
    if status.is_initial() {
        return None;
    }
    let stalled = status.condition(condition_type::STALLED).filter(|stalled| stalled.status == "True");
    let found = stalled.or(status.condition(condition_type::READY))?;
    Some(Condition {
        type_: found.type_.clone(),
        status: found.status.clone(),
        reason: found.reason.clone(),
        message: found.message.clone(),
        since: found.last_transition_time.0.to_string(),
    })
}

/// Returns the lines that `recif why` adds, without those from logs; none for an object that is ready. Of objects that the
/// caller may not see, only their invisibility is reported.
async fn waiting_for(
    app: &SharedAppState,
    caller: &ApiCaller,
    record: &Record,
    metadata: &ObjectMeta,
    status: &CommonStatus,
) -> Result<Vec<String>, Problem> {
    let current = metadata.generation.is_none() || status.observed_generation >= metadata.generation;
    let ready = status.condition(condition_type::READY).is_some_and(|ready| ready.status == "True");
    if ready && current {
        return Ok(Vec::new());
    }
    let mut lines = Vec::new();
    for link in &record.references {
        if !app.auth.sees(caller, link.kind, &link.namespace, &link.name).await? {
            lines.push(format!("{} {}: not visible to you", link.kind.name, link.name));
            continue;
        }
        let found = app.fleet.get(link.kind, &Key::new(&*link.namespace, &*link.name));
        let status = found.map(|entry| entry.record.status().unwrap_or_default());
        lines.extend(reference_problem(link.kind.name, &link.name, status.as_ref()));
    }
    if record.kind.role == Role::Workload {
        let deployment = app.related.deployments.get(&record.key);
        lines.extend(deployment.iter().flat_map(|deployment| deployment.problems.iter().cloned()));
        let pods = app.related.pods_of(record.kind, &record.key);
        lines.extend(pods.iter().flat_map(|pod| pod.problems.iter().cloned()));
    }
    Ok(first_lines(lines))
}

/// Returns its children.
pub(super) fn children(app: SharedAppState, caller: ApiCaller, asked: OperationRequest) -> OperationFuture {
    async move {
        let record = find(&app, &caller, &asked).await?.record;
        OperationResponse::of(&Children { items: children_of(&app, &caller, &record).await? })
    }
    .boxed()
}

/// Returns its children, without the Tools that the caller may not list.
async fn children_of(app: &SharedAppState, caller: &ApiCaller, record: &Record) -> Result<Vec<Child>, Problem> {
    let mut items = workload_children(app, record);
    let Some(tool) = ApiKind::find("Tool").filter(|_| record.server.is_some()) else { return Ok(items) };
    let namespace = &record.key.namespace;
    if app.auth.may_list(caller, tool, "").await? || app.auth.may_list(caller, tool, namespace).await? {
        items.extend(app.fleet.owned_by(tool.name, namespace, &record.uid).iter().map(|tool| Child {
            kind: tool.kind.name.to_owned(),
            name: tool.key.name.clone(),
            uid: tool.uid.to_string(),
            state: tool.phase.as_deref().unwrap_or_default().to_owned(),
            message: String::new(),
        }));
    }
    Ok(items)
}

/// Returns the objects that the operator made for it, and its Pods.
fn workload_children(app: &SharedAppState, record: &Record) -> Vec<Child> {
    let key = |name: &str| Key::new(&record.key.namespace, name);
    let recorded: Vec<ChildRecord> = record.object()["status"]
        .get("children")
        .and_then(|children| Vec::deserialize(children).ok())
        .unwrap_or_default();
    let mut items: Vec<Child> = recorded
        .into_iter()
        .map(|ChildRecord { kind, name, uid, .. }| {
            let (state, message) = match kind.as_str() {
                "Deployment" => match app.related.deployments.get(&key(&name)) {
                    Some(found) => (format!("{}/{} ready", found.ready, found.desired), found.problems.join("; ")),
                    None => ("Missing".to_owned(), String::new()),
                },
                "ConfigMap" if app.related.config_maps.get(&key(&name)).is_none() => ("Missing".into(), String::new()),
                _ => ("Applied".to_owned(), String::new()),
            };
            Child { kind, name, uid, state, message }
        })
        .collect();
    if record.kind.role == Role::Workload {
        // The Deployment exists, but the status that lists it is not written yet.
        let recorded = items.iter().any(|child| child.kind == "Deployment");
        let made = app.related.deployments.get(&record.key).filter(|found| !recorded && found.owner == record.uid);
        items.extend(made.map(|found| Child {
            kind: "Deployment".into(),
            name: record.key.name.clone(),
            uid: found.uid.to_string(),
            state: format!("{}/{} ready", found.ready, found.desired),
            message: found.problems.join("; "),
        }));
        items.extend(app.related.pods_of(record.kind, &record.key).iter().map(|pod| Child {
            kind: "Pod".into(),
            name: pod.name.to_string(),
            uid: pod.uid.to_string(),
            state: pod.state.to_string(),
            message: pod.problems.join("; "),
        }));
    }
    items
}

/// Returns its rendered files.
pub(super) fn rendered(app: SharedAppState, caller: ApiCaller, asked: OperationRequest) -> OperationFuture {
    async move {
        let record = find(&app, &caller, &asked).await?.record;
        let mut files = Vec::new();
        for child in workload_children(&app, &record) {
            let object = format!("{}/{}", child.kind, child.name);
            match child.kind.as_str() {
                // The control plane does not read Secrets.
                "Secret" => files.push(File { object, name: "*".into(), text: MASKED.into() }),
                "ConfigMap" => {
                    let map = app.related.config_maps.get(&Key::new(&record.key.namespace, &child.name));
                    let texts = map.iter().flat_map(|map| map.files.iter());
                    files.extend(texts.map(|(name, text)| File {
                        object: object.clone(),
                        name: name.to_string(),
                        text: text.to_string(),
                    }));
                }
                _ => {}
            }
        }
        if let Some(text) = app.fleet.tools(record.kind.name, &record.key) {
            let object = format!("ConfigMap/{}", tools_config_map(record.kind.name, &record.key.name));
            files.push(File { object, name: crds::tool_server::TOOLS_KEY.into(), text: text.to_string() });
        }
        OperationResponse::of(&Rendered { files })
    }
    .boxed()
}

/// Returns the Events about it.
pub(super) fn events(app: SharedAppState, caller: ApiCaller, asked: OperationRequest) -> OperationFuture {
    async move {
        let record = find(&app, &caller, &asked).await?.record;
        let mut items: Vec<Event> = app
            .related
            .events_of(&record.uid)
            .iter()
            .map(|seen| Event {
                type_: seen.type_.to_string(),
                reason: seen.reason.to_string(),
                message: seen.message.to_string(),
                count: seen.count,
                first_at: seen.times.0.to_string(),
                last_at: seen.times.1.to_string(),
            })
            .collect();
        items.sort_by(|one, other| other.last_at.cmp(&one.last_at));
        OperationResponse::of(&Events { items })
    }
    .boxed()
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
