//! Reads of the commands from a cluster, with the rights of the user, and their two writes: an annotation, and the keys
//! by which gateways sign the names of callers.
//!
//! Unlike the operator's watches these are reads of whole objects, once, on demand: the user wants the kubelet's own
//! texts.

mod caller;
mod dev;
mod forward;
mod raw;
mod read_error;
mod table;
mod tunnel;

use std::{env, fmt, path::PathBuf};

use crds::{ApiKind, GROUP, VERSION};
use futures::{AsyncBufReadExt, Stream, StreamExt, TryFutureExt as _, TryStreamExt};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Event as KubeEvent, Namespace, Pod, Secret},
};
use kube::{
    Api, Client, Config,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, LogParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};

pub(crate) use caller::CallerCredentials;
pub(crate) use dev::DevCluster;
pub(crate) use forward::{Forward, ForwardError, PodError};
pub(crate) use raw::ServerTime;
pub(crate) use read_error::{ReadError, error_chain};
pub(crate) use table::{ObjectTable, TableColumn, TableQuery, TableRow};

/// Objects per page of a list.
const PAGE_SIZE: u32 = 500;

/// Connection to the cluster; missing values come from the kubeconfig.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConnectOptions {
    /// Namespace of the command.
    pub namespace: Option<String>,
    /// Context of the kubeconfig.
    pub context: Option<String>,
    /// Path of the kubeconfig.
    pub kubeconfig: Option<PathBuf>,
}

/// Client of a cluster with the rights of the user, and the namespace of the command.
pub(crate) struct UserClient {
    client: Client,
    /// Namespace of the command line, else that of the kubeconfig's context.
    pub namespace: String,
    /// Credentials of the kubeconfig.
    pub caller: CallerCredentials,
    /// Set if the cluster is that of a `recif dev`.
    pub dev: Option<DevCluster>,
}

impl fmt::Debug for UserClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserClient").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// Event of a watched object.
#[derive(Debug)]
pub(crate) enum ObjectEvent {
    /// The object exists, and may have changed.
    Changed(Box<DynamicObject>),
    /// It was deleted.
    Deleted,
}

impl UserClient {
    /// Reads the kubeconfig. No request is sent yet.
    ///
    /// # Errors
    /// [`ReadError::Kubeconfig`].
    pub(crate) async fn connect(connection: &ConnectOptions) -> Result<Self, ReadError> {
        let (config, dev) = config(connection).await?;
        let namespace = connection.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let caller = CallerCredentials::from_config(&config)?;
        let client = Client::try_from(config).map_err(|error| ReadError::Kubeconfig(error.to_string()))?;
        Ok(Self { client, namespace, caller, dev })
    }

    /// Returns a client of a mocked cluster.
    #[cfg(test)]
    pub(crate) fn mocked(client: Client, namespace: &str) -> Self {
        Self { client, namespace: namespace.to_owned(), caller: CallerCredentials::anonymous(), dev: None }
    }

    /// Reads an object of the API in the command's namespace; `None` if it does not exist.
    ///
    /// # Errors
    /// [`ReadError::NotInstalled`] if its kind does not exist, either.
    pub(crate) async fn object(&self, kind: &'static ApiKind, name: &str) -> Result<Option<DynamicObject>, ReadError> {
        self.object_in(&self.namespace, kind, name).await
    }

    /// Reads an object of the API in a namespace; `None` if it does not exist.
    ///
    /// # Errors
    /// [`ReadError::NotInstalled`] if its kind does not exist, either.
    pub(crate) async fn object_in(
        &self,
        namespace: &str,
        kind: &'static ApiKind,
        name: &str,
    ) -> Result<Option<DynamicObject>, ReadError> {
        match self.objects(namespace, kind).get(name).await {
            Ok(object) => Ok(Some(object)),
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let known = status.details.as_ref().is_some_and(|details| details.name == name);
                if known { Ok(None) } else { Err(ReadError::NotInstalled(kind.name)) }
            }
            Err(error) => Err(ReadError::request(format!("read {} {namespace}/{name}", kind.name))(error)),
        }
    }

    /// Sets an annotation of an object of the API; with a resource version, only while the object has it (optimistic concurrency).
    ///
    /// # Errors
    /// [`ReadError::Request`], also if the object does not exist; with the status 409 if it has another version.
    pub(crate) async fn annotate(
        &self,
        kind: &'static ApiKind,
        name: &str,
        key: &str,
        value: &str,
        version: Option<&str>,
    ) -> Result<(), ReadError> {
        let mut patch = serde_json::json!({ "metadata": { "annotations": { key: value } } });
        if let Some(version) = version {
            patch["metadata"]["resourceVersion"] = version.into();
        }
        let sent = self.objects(&self.namespace, kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        sent.map(drop).map_err(ReadError::request(format!("annotate {} {}/{name}", kind.name, self.namespace)))
    }

    /// Watches an object; the first event is its present version.
    pub(crate) fn watch(&self, kind: &'static ApiKind, name: &str) -> impl Stream<Item = ObjectEvent> + use<> {
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut listed = false;
        watcher::watcher(self.objects(&self.namespace, kind), config).default_backoff().filter_map(move |event| {
            let seen = match event {
                Ok(Event::Init) => {
                    listed = false;
                    None
                }
                Ok(Event::InitApply(object) | Event::Apply(object)) => {
                    listed = true;
                    Some(ObjectEvent::Changed(Box::new(object)))
                }
                Ok(Event::InitDone) => (!listed).then_some(ObjectEvent::Deleted),
                Ok(Event::Delete(_)) => Some(ObjectEvent::Deleted),
                Err(_) => None,
            };
            std::future::ready(seen)
        })
    }

    /// Lists the Pods with these labels in the namespace.
    ///
    /// # Errors
    /// [`ReadError::Request`].
    pub(crate) async fn pods(&self, namespace: &str, selector: &str) -> Result<Vec<Pod>, ReadError> {
        list_pods(&self.client, namespace, selector).await
    }

    /// Lists the warnings about the object with this uid in the namespace.
    ///
    /// # Errors
    /// [`ReadError::Request`].
    pub(crate) async fn warnings_about(&self, namespace: &str, uid: &str) -> Result<Vec<KubeEvent>, ReadError> {
        let events: Api<KubeEvent> = Api::namespaced(self.client.clone(), namespace);
        let about = ListParams::default().fields(&format!("type=Warning,involvedObject.uid={uid}"));
        let list = events.list(&about).await;
        list.map(|list| list.items).map_err(ReadError::request(format!("list Events in namespace {namespace}")))
    }

    /// Reads the Deployment of that name in the command's namespace.
    ///
    /// # Errors
    /// [`ReadError::Request`].
    pub(crate) async fn deployment(&self, name: &str) -> Result<Option<Deployment>, ReadError> {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), &self.namespace);
        let doing = format!("read Deployment {}/{name}", self.namespace);
        deployments.get_opt(name).await.map_err(ReadError::request(doing))
    }

    /// Reads the ConfigMap of that name in the command's namespace.
    ///
    /// # Errors
    /// [`ReadError::Request`].
    pub(crate) async fn config_map(&self, name: &str) -> Result<Option<ConfigMap>, ReadError> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        maps.get_opt(name).await.map_err(ReadError::request(format!("read ConfigMap {}/{name}", self.namespace)))
    }

    /// Reads a Secret; `None` if it does not exist.
    ///
    /// # Errors
    /// [`ReadError::Request`].
    pub(crate) async fn secret(&self, namespace: &str, name: &str) -> Result<Option<Secret>, ReadError> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        secrets.get_opt(name).await.map_err(ReadError::request(format!("read Secret {namespace}/{name}")))
    }

    /// Writes a Secret with the resource version that was read (optimistic concurrency).
    ///
    /// # Errors
    /// [`ReadError::Request`].
    pub(crate) async fn replace_secret(&self, namespace: &str, secret: &Secret) -> Result<(), ReadError> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let name = secret.metadata.name.as_deref().unwrap_or_default();
        let written = secrets.replace(name, &PostParams::default(), secret).await;
        written.map(drop).map_err(ReadError::request(format!("write Secret {namespace}/{name}")))
    }

    /// Lists the objects of a kind of the API for which `wanted` is true, page by page: in a namespace, or in all of
    /// them.
    ///
    /// # Errors
    /// [`ReadError::NotInstalled`] if the kind does not exist.
    pub(crate) async fn list(
        &self,
        kind: &'static ApiKind,
        namespace: Option<&str>,
        mut wanted: impl FnMut(&DynamicObject) -> bool,
    ) -> Result<Vec<DynamicObject>, ReadError> {
        let (objects, place) = match namespace {
            Some(namespace) => (self.objects(namespace, kind), format!("namespace {namespace}")),
            None => (self.all_objects(kind), "all namespaces".into()),
        };
        let mut all = Vec::new();
        let mut page = ListParams::default().limit(PAGE_SIZE);
        loop {
            let list = objects.list(&page).await.map_err(|error| match error {
                kube::Error::Api(status) if status.code == 404 => ReadError::NotInstalled(kind.name),
                error => ReadError::request(format!("list {} in {place}", kind.plural))(error),
            })?;
            all.extend(list.items.into_iter().filter(&mut wanted));
            match list.metadata.continue_.filter(|next| !next.is_empty()) {
                Some(next) => page = page.continue_token(&next),
                None => return Ok(all),
            }
        }
    }

    /// Lists the names of the namespaces.
    ///
    /// # Errors
    /// [`ReadError::Request`].
    pub(crate) async fn namespaces(&self) -> Result<Vec<String>, ReadError> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let list = namespaces.list_metadata(&ListParams::default()).await;
        let list = list.map_err(ReadError::request("list namespaces"))?;
        Ok(list.items.into_iter().filter_map(|namespace| namespace.metadata.name).collect())
    }

    /// Reads the lines of a Pod's log for which `wanted` is true.
    ///
    /// # Errors
    /// [`ReadError::Request`].
    pub(crate) async fn log(
        &self,
        namespace: &str,
        pod: &str,
        params: &LogParams,
        mut wanted: impl FnMut(&str) -> bool,
    ) -> Result<Vec<String>, ReadError> {
        let lines = self.log_lines(namespace, pod, params);
        lines.try_filter(|line| std::future::ready(wanted(line))).try_collect().await
    }

    /// Streams the lines of a Pod's log as they come. An error is the last item: [`ReadError::Request`].
    pub(crate) fn log_lines(
        &self,
        namespace: &str,
        pod: &str,
        params: &LogParams,
    ) -> impl Stream<Item = Result<String, ReadError>> + Send + use<> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let doing = format!("read the log of Pod {namespace}/{pod}");
        let (pod, params) = (pod.to_owned(), params.clone());
        async move {
            let opened = pods.log_stream(&pod, &params).await.map_err(ReadError::request(doing.clone()))?;
            let broken = move |error| ReadError::request(doing.clone())(kube::Error::ReadEvents(error));
            Ok(opened.lines().map_err(broken))
        }
        .try_flatten_stream()
    }

    fn objects(&self, namespace: &str, kind: &'static ApiKind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &resource(kind))
    }

    fn all_objects(&self, kind: &'static ApiKind) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &resource(kind))
    }
}

fn resource(kind: &'static ApiKind) -> ApiResource {
    let gvk = GroupVersionKind::gvk(GROUP, VERSION, kind.name);
    ApiResource::from_gvk_with_plural(&gvk, kind.plural)
}

/// Returns the label selector of a workload's Pods.
pub(crate) fn pods_of(kind: &ApiKind, name: &str) -> String {
    format!("app.kubernetes.io/name={name},recif.dev/{}={name}", kind.name.to_lowercase())
}

async fn list_pods(client: &Client, namespace: &str, selector: &str) -> Result<Vec<Pod>, ReadError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let list = pods.list(&ListParams::default().labels(selector)).await;
    list.map(|list| list.items).map_err(ReadError::request(format!("list Pods in namespace {namespace}")))
}

/// Returns how the cluster is reached: by the kubeconfig or the context that is named, else by that of `$KUBECONFIG`, of a
/// `recif dev` that runs here or above, of the user, or of the Pod.
async fn config(connection: &ConnectOptions) -> Result<(Config, Option<DevCluster>), ReadError> {
    let unusable = |error: KubeconfigError| ReadError::Kubeconfig(error.to_string());
    let context = connection.context.as_deref();
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let is_named = connection.kubeconfig.is_some()
        || context.is_some()
        || env::var_os("KUBECONFIG").is_some_and(|paths| !paths.is_empty());
    let running = match env::current_dir() {
        Ok(here) if !is_named => dev::find(&here)?,
        _ => None,
    };
    let (dev, file) = match &connection.kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).map_err(unusable)?;
            (DevCluster::of(&file, context), Some(file))
        }
        None => match running {
            Some((dev, file)) => (Some(dev), Some(file)),
            None => (Kubeconfig::read().ok().and_then(|file| DevCluster::of(&file, context)), None),
        },
    };
    let mut config = match file {
        Some(file) => Config::from_custom_kubeconfig(file, &options).await.map_err(unusable)?,
        None if context.is_some() => Config::from_kubeconfig(&options).await.map_err(unusable)?,
        None => Config::infer().await.map_err(|error| ReadError::Kubeconfig(error.to_string()))?,
    };
    if dev.is_some() {
        // No proxy of the environment leads to loopback.
        config.proxy_url = None;
    }
    Ok((config, dev))
}
