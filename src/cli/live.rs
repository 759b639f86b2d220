//! What the commands read from a cluster, with the rights of whoever typed them. Nothing here writes.

use crds::{GROUP, Kind, VERSION};
use futures::{AsyncBufReadExt, Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Api, Client, Config,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, LogParams},
    config::{KubeConfigOptions, Kubeconfig},
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};

use super::{CliError, Connection};

/// A cluster, and the namespace the caller means.
pub(super) struct Live {
    client: Client,
    /// The namespace given, else that of the kubeconfig's context.
    pub(super) namespace: String,
}

/// What happened to a watched object.
pub(super) enum Seen {
    /// It is there, perhaps changed.
    There(Box<DynamicObject>),
    /// It was deleted.
    Gone,
}

impl Live {
    /// Reads the kubeconfig. Nothing is sent yet.
    pub(super) async fn connect(connection: &Connection) -> Result<Self, CliError> {
        let config = config(connection).await?;
        let namespace = connection.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config).map_err(|error| CliError::Kubeconfig(error.to_string()))?;
        Ok(Self { client, namespace })
    }

    /// An object of ours, or [`CliError::Missing`].
    pub(super) async fn object(&self, kind: &'static Kind, name: &str) -> Result<DynamicObject, CliError> {
        match self.objects(kind).get(name).await {
            Ok(object) => Ok(object),
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let known = status.details.as_ref().is_some_and(|details| details.name == name);
                Err(if known { self.missing(kind, name) } else { CliError::NotInstalled(kind.name) })
            }
            Err(error) => Err(CliError::api(format!("read {} {}/{name}", kind.name, self.namespace))(error)),
        }
    }

    /// Every version of the object from now on; the first one at once.
    pub(super) fn watch(&self, kind: &'static Kind, name: &str) -> impl Stream<Item = Seen> + use<> {
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut listed = false;
        watcher::watcher(self.objects(kind), config).default_backoff().filter_map(move |event| {
            let seen = match event {
                Ok(Event::Init) => {
                    listed = false;
                    None
                }
                Ok(Event::InitApply(object) | Event::Apply(object)) => {
                    listed = true;
                    Some(Seen::There(Box::new(object)))
                }
                Ok(Event::InitDone) => (!listed).then_some(Seen::Gone),
                Ok(Event::Delete(_)) => Some(Seen::Gone),
                Err(_) => None,
            };
            std::future::ready(seen)
        })
    }

    /// The Pods with these labels in the namespace.
    pub(super) async fn pods(&self, namespace: &str, selector: &str) -> Result<Vec<Pod>, CliError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let list = pods.list(&ListParams::default().labels(selector)).await;
        list.map(|list| list.items).map_err(CliError::api(format!("list Pods in namespace {namespace}")))
    }

    /// The Deployment of that name in the caller's namespace.
    pub(super) async fn deployment(&self, name: &str) -> Result<Option<Deployment>, CliError> {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), &self.namespace);
        let doing = format!("read Deployment {}/{name}", self.namespace);
        deployments.get_opt(name).await.map_err(CliError::api(doing))
    }

    /// The lines of a Pod's log that `wanted` takes.
    pub(super) async fn log(
        &self,
        namespace: &str,
        pod: &str,
        params: &LogParams,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<String>, CliError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let doing = format!("read the log of Pod {namespace}/{pod}");
        let mut lines = pods.log_stream(pod, params).await.map_err(CliError::api(doing.clone()))?.lines();
        let mut taken = Vec::new();
        loop {
            match lines.try_next().await {
                Ok(Some(line)) if wanted(&line) => taken.push(line),
                Ok(Some(_)) => {}
                Ok(None) => return Ok(taken),
                Err(error) => return Err(CliError::api(doing)(kube::Error::ReadEvents(error))),
            }
        }
    }

    /// The error that the object is not there.
    pub(super) fn missing(&self, kind: &'static Kind, name: &str) -> CliError {
        CliError::Missing {
            kind: kind.name,
            plural: kind.plural,
            namespace: self.namespace.clone(),
            name: name.to_owned(),
        }
    }

    fn objects(&self, kind: &'static Kind) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk(GROUP, VERSION, kind.name);
        let resource = ApiResource::from_gvk_with_plural(&gvk, kind.plural);
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }
}

async fn config(connection: &Connection) -> Result<Config, CliError> {
    let options = KubeConfigOptions { context: connection.context.clone(), ..KubeConfigOptions::default() };
    if let Some(path) = &connection.kubeconfig {
        let file = Kubeconfig::read_from(path).map_err(|error| CliError::Kubeconfig(error.to_string()))?;
        return Config::from_custom_kubeconfig(file, &options)
            .await
            .map_err(|error| CliError::Kubeconfig(error.to_string()));
    }
    if connection.context.is_some() {
        return Config::from_kubeconfig(&options).await.map_err(|error| CliError::Kubeconfig(error.to_string()));
    }
    Config::infer().await.map_err(|error| CliError::Kubeconfig(error.to_string()))
}
