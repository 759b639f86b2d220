//! Connections to the Pods of a Service through the API server, as `kubectl port-forward` makes them.
//!
//! Each connection is a stream of its own within a WebSocket to the API server, so bytes arrive unchanged. The API
//! server's proxy of Services, by contrast, consumes `Authorization` and rewrites pages.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use crds::diagnosis::is_pod_ready;
use futures::{FutureExt as _, future::BoxFuture};
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::{
        Client as HttpClient,
        connect::{Connected, Connection},
    },
    rt::{TokioExecutor, TokioIo},
};
use k8s_openapi::{
    api::core::v1::{Pod, Service},
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::{Api, Client};
use tokio::io::DuplexStream;

use super::{UserClient, read_error::ReadError};

/// Time for which an idle connection is kept for another request: less than servers keep it, whose close is not always
/// passed on.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);

/// Reason for which there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ForwardError {
    /// The Service does not exist.
    #[error("Service {namespace}/{service} not found")]
    NoService {
        /// Namespace in which it was looked up.
        namespace: String,
        /// Name of the Service.
        service: String,
    },
    /// None of its Pods takes connections.
    #[error("no Pod of Service {namespace}/{service} is ready: see `kubectl -n {namespace} get pods`")]
    NoPod {
        /// Namespace of the Service.
        namespace: String,
        /// Name of the Service.
        service: String,
    },
    /// The API server refused, or cannot be reached.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Connector to the Pods of a Service.
#[derive(Clone)]
pub(crate) struct Forward {
    client: Client,
    namespace: String,
    service: String,
}

impl std::fmt::Debug for Forward {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Forward({}/{})", self.namespace, self.service)
    }
}

impl UserClient {
    /// Returns a connector to the first port of a Service.
    pub(crate) fn forward(&self, namespace: &str, service: &str) -> Forward {
        Forward { client: self.client.clone(), namespace: namespace.to_owned(), service: service.to_owned() }
    }
}

impl Forward {
    /// Returns a ready Pod of the Service, and the port there.
    ///
    /// # Errors
    /// The Service does not exist, or none of its Pods is ready.
    pub(crate) async fn ready_pod(&self) -> Result<(String, u16), ForwardError> {
        let Self { client, namespace, service } = self;
        let services: Api<Service> = Api::namespaced(client.clone(), namespace);
        let read = services.get_opt(service).await;
        let read = read.map_err(ReadError::request(format!("read Service {namespace}/{service}")))?;
        let (no_service, no_pod) = (
            || ForwardError::NoService { namespace: namespace.clone(), service: service.clone() },
            || ForwardError::NoPod { namespace: namespace.clone(), service: service.clone() },
        );
        let spec = read.ok_or_else(no_service)?.spec.ok_or_else(no_pod)?;
        let labels: Vec<_> = spec.selector.iter().flatten().map(|(key, value)| format!("{key}={value}")).collect();
        let pods = super::list_pods(client, namespace, &labels.join(",")).await?;
        let port = spec.ports.as_ref().and_then(|ports| ports.first()).ok_or_else(no_pod)?;
        let target = port.target_port.clone().unwrap_or(IntOrString::Int(port.port));
        pods.iter().filter(|pod| is_ready(pod)).find_map(|pod| pod_port(pod, &target)).ok_or_else(no_pod)
    }

    /// Returns an HTTP client that connects to the Service, whatever the address of a request.
    pub(crate) fn client<B>(self) -> HttpClient<Self, B>
    where
        B: http_body::Body + Send,
        B::Data: Send,
    {
        HttpClient::builder(TokioExecutor::new()).pool_idle_timeout(IDLE_TIMEOUT).build(self)
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// Those of [`Forward::ready_pod`], or the API server does not forward the connection.
    pub(crate) async fn connect(&self) -> Result<Tunnel, ForwardError> {
        let (pod, port) = self.ready_pod().await?;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let doing = format!("forward a connection to port {port} of Pod {}/{pod}", self.namespace);
        let mut forwarded = pods.portforward(&pod, &[port]).await.map_err(ReadError::request(doing))?;
        let Self { namespace, service, .. } = self.clone();
        forwarded.take_stream(port).map(Tunnel::new).ok_or(ForwardError::NoPod { namespace, service })
    }
}

fn is_ready(pod: &Pod) -> bool {
    is_pod_ready(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// Returns the name of the Pod, and the number of its port.
fn pod_port(pod: &Pod, target: &IntOrString) -> Option<(String, u16)> {
    let number = match target {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
            let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
            ports.find(|port| port.name.as_ref() == Some(name))?.container_port
        }
    };
    Some((pod.metadata.name.clone()?, u16::try_from(number).ok()?))
}

/// Connection through the API server.
#[derive(Debug)]
pub(crate) struct Tunnel(TokioIo<DuplexStream>);

impl Tunnel {
    fn new(stream: DuplexStream) -> Self {
        Self(TokioIo::new(stream))
    }
}

impl Connection for Tunnel {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Tunnel {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl Write for Tunnel {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// Connector of an HTTP client; it ignores the address.
impl tower::Service<Uri> for Forward {
    type Response = Tunnel;
    type Error = ForwardError;
    type Future = BoxFuture<'static, Result<Tunnel, ForwardError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ForwardError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let way = self.clone();
        async move { way.connect().await }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(ready: &str, deleted: bool) -> Pod {
        let mut pod = json!({ "metadata": { "name": "p" },
            "spec": { "containers": [{ "name": "c", "ports": [{ "name": "http", "containerPort": 8780 }] }] },
            "status": { "conditions": [{ "type": "Ready", "status": ready }] } });
        if deleted {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn only_a_pod_that_takes_connections_is_used() {
        assert!(is_ready(&pod("True", false)));
        assert!(!is_ready(&pod("False", false)));
        assert!(!is_ready(&pod("True", true)));
    }

    #[test]
    fn a_port_is_found_by_name_and_by_number() {
        let pod = pod("True", false);
        assert_eq!(pod_port(&pod, &IntOrString::String("http".into())), Some(("p".into(), 8780)));
        assert_eq!(pod_port(&pod, &IntOrString::Int(80)), Some(("p".into(), 80)));
        assert_eq!(pod_port(&pod, &IntOrString::String("grpc".into())), None);
    }
}
