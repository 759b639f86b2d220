//! Children of an object, and the files that were rendered from it.

use crds::{ApiKind, ChildRecord, Role, tool_server::tools_config_map};
use futures::FutureExt as _;
use meta::Key;
use serde::Deserialize as _;

use super::{
    object::find,
    operation::{OperationFuture, OperationRequest},
    problem::Problem,
    response::OperationResponse,
    types::{Child, Children, File, Rendered},
};
use crate::{
    app::SharedAppState,
    auth::ApiCaller,
    fleet::{MASKED, Record},
};

/// Lists its children.
pub(super) fn list(app: SharedAppState, caller: ApiCaller, asked: OperationRequest) -> OperationFuture {
    async move {
        let record = find(&app, &caller, &asked).await?.record;
        OperationResponse::of(&Children { items: children_of(&app, &caller, &record).await? })
    }
    .boxed()
}

/// Returns its children, without the Tools that the caller may not list.
pub(super) async fn children_of(
    app: &SharedAppState,
    caller: &ApiCaller,
    record: &Record,
) -> Result<Vec<Child>, Problem> {
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
            message: app.related.problems_of(pod).join("; "),
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
