//! Creates agents and tools in bulk, waits for them and deletes them; the generic functions also serve other kinds.

use std::{collections::BTreeSet, pin::pin, time::Duration};

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, PostParams},
    core::{ApiResource, DynamicObject},
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

/// Tool that every agent uses.
pub(crate) const TOOL: &str = "shared";
/// Limit of concurrent requests of the benchmark.
pub(crate) const AT_ONCE: usize = 32;

/// Returns the time limit for the start or the deletion of this many agents.
pub(crate) fn timeout_for(agents: usize) -> Duration {
    Duration::from_secs(60) + Duration::from_millis(300) * u32::try_from(agents).unwrap_or(u32::MAX)
}

/// Returns the [`ApiResource`] of a kind.
pub(crate) fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    let api_version = if group.is_empty() { version.into() } else { format!("{group}/{version}") };
    ApiResource { group: group.into(), version: version.into(), api_version, kind: kind.into(), plural: plural.into() }
}

/// Returns the [`ApiResource`] of a kind of `agents.recif.dev`.
pub(crate) fn custom(kind: &str, plural: &str) -> ApiResource {
    resource(crds::GROUP, crds::VERSION, kind, plural)
}

/// Agents and tools of one namespace.
#[derive(Clone)]
pub(crate) struct AgentNamespace {
    pub(crate) client: Client,
    /// Name of the namespace.
    pub(crate) name: String,
    pub(crate) agents: Api<DynamicObject>,
    pub(crate) tools: Api<DynamicObject>,
}

impl AgentNamespace {
    /// Creates the namespace and its tool if they do not exist.
    pub(crate) async fn ensure(client: &Client, name: &str) -> Result<Self> {
        let agents = Api::namespaced_with(client.clone(), name, &custom("Agent", "agents"));
        let tools = Api::namespaced_with(client.clone(), name, &custom("Tool", "tools"));
        let agents_namespace = Self { client: client.clone(), name: name.into(), agents, tools };
        namespace(client, name).await?;
        let spec = json!({"name": TOOL, "type": "builtin"});
        create(&agents_namespace.tools, manifest("Tool", TOOL, spec)).await?;
        Ok(agents_namespace)
    }

    /// Creates an agent with these additional fields in its spec.
    pub(crate) async fn agent(&self, name: &str, fields: Value) -> Result<()> {
        let mut spec = json!({"name": name, "framework": "corail", "tools": [TOOL]});
        if let (Value::Object(spec), Value::Object(fields)) = (&mut spec, fields) {
            spec.extend(fields);
        }
        create(&self.agents, manifest("Agent", name, spec)).await
    }

    /// Creates agents, up to [`AT_ONCE`] concurrently.
    pub(crate) async fn agents(&self, names: impl IntoIterator<Item = String>) -> Result<()> {
        let make = stream::iter(names).map(Ok::<_, anyhow::Error>);
        make.try_for_each_concurrent(AT_ONCE, async |name| self.agent(&name, json!({})).await).await
    }

    /// Returns the number of agents.
    pub(crate) async fn len(&self) -> Result<usize> {
        Ok(self.agents.list_metadata(&ListParams::default()).await.context("list agents")?.items.len())
    }

    /// Waits until this many agents are Running.
    pub(crate) async fn running(&self, count: usize) -> Result<()> {
        await_all(&self.agents, count, "run", is_running).await
    }

    /// Deletes all agents and waits until they are gone.
    pub(crate) async fn clear(&self) -> Result<()> {
        clear(&self.agents).await
    }
}

/// Creates a namespace if it does not exist.
pub(crate) async fn namespace(client: &Client, name: &str) -> Result<()> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let namespaces: Api<DynamicObject> = Api::all_with(client.clone(), &resource("", "v1", "Namespace", "namespaces"));
    create(&namespaces, namespace).await
}

/// Deletes all objects of a kind and waits until they are gone.
pub(crate) async fn clear(api: &Api<DynamicObject>) -> Result<()> {
    let everything = ListParams::default();
    // The API server ends a request after a minute, which is too short for many objects; the next attempt continues.
    let mut attempts = 1;
    while let Err(error) = api.delete_collection(&DeleteParams::default(), &everything).await {
        attempts += 1;
        if attempts > 5 || matches!(error, kube::Error::Api(_)) {
            return Err(error).context("delete everything of a kind");
        }
    }
    let left = api.list_metadata(&everything).await.context("list what is left")?.items.len();
    let patience = timeout_for(left);
    let deadline = Instant::now() + patience;
    while !api.list_metadata(&everything.clone().limit(1)).await?.items.is_empty() {
        if Instant::now() > deadline {
            bail!("at {} something is still there after {patience:?}", api.resource_url());
        }
        sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}

/// Waits until this many objects satisfy the predicate; `what` names it in the error.
pub(crate) async fn await_all(
    api: &Api<DynamicObject>,
    count: usize,
    what: &str,
    is_so: impl Fn(&DynamicObject) -> bool,
) -> Result<()> {
    let mut so = BTreeSet::new();
    let mut last = String::new();
    let all = async {
        let mut objects = pin!(watcher(api.clone(), watcher::Config::default()).default_backoff().applied_objects());
        while let Some(object) = objects.next().await {
            let Ok(object) = object else { continue };
            if is_so(&object) {
                so.insert(object.name_any());
            } else {
                so.remove(&object.name_any());
                last = format!("{} {}", object.name_any(), object.data["status"]["conditions"]);
            }
            if so.len() >= count {
                break;
            }
        }
    };
    let patience = timeout_for(count);
    if timeout(patience, all).await.is_err() {
        bail!("only {} of {count} at {} {what} after {patience:?}; last seen: {last}", so.len(), api.resource_url())
    }
    Ok(())
}

/// Reports whether a workload is Running at its current generation.
pub(crate) fn is_running(workload: &DynamicObject) -> bool {
    let status = &workload.data["status"];
    status["phase"] == "Running" && status["observedGeneration"].as_i64() == workload.metadata.generation
}

/// Returns the manifest of an object of `agents.recif.dev`.
pub(crate) fn manifest(kind: &str, name: &str, spec: Value) -> Value {
    let api_version = format!("{}/{}", crds::GROUP, crds::VERSION);
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// Creates an object; an existing one (409) is left unchanged.
pub(crate) async fn create(api: &Api<DynamicObject>, manifest: Value) -> Result<()> {
    let what = format!("create {} {}", manifest["kind"], manifest["metadata"]["name"]);
    match api.create(&PostParams::default(), &serde_json::from_value(manifest)?).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        result => result.map(drop).context(what),
    }
}
