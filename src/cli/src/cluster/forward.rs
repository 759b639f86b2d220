//! Connections to the Pods of a Service, or to one Pod, through the API server, as `kubectl port-forward` makes them.
//!
//! Each connection is a stream of its own within a WebSocket to the API server, so bytes arrive unchanged. The API
//! server's proxy of Services, by contrast, consumes `Authorization` and rewrites pages.

use std::{
    pin::pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use cluster::access::OWN_AUTHORIZATION;
use crds::diagnosis::is_pod_ready;
use futures::{
    FutureExt as _,
    future::{BoxFuture, Either, select},
};
use http::{
    HeaderValue, Request, StatusCode, Uri,
    header::{CONNECTION, HOST},
};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1::handshake;
use hyper_util::{
    client::legacy::Client as HttpClient,
    rt::{TokioExecutor, TokioIo},
};
use k8s_openapi::{
    api::core::v1::{Pod, Service},
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::{Api, Client};

use super::{
    UserClient,
    read_error::{ReadError, error_chain},
    tunnel::Tunnel,
};

/// Time for which an idle connection is kept for another request: less than servers keep it, whose close is not always
/// passed on.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);

/// Largest response of a Pod that is read, in bytes.
const MAX_BODY: usize = 4 << 20;

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

impl UserClient {
    /// Sends a GET to a port of a Pod, through the API server as `kubectl port-forward` does.
    ///
    /// # Errors
    /// [`PodError`].
    pub(crate) async fn ask_pod(
        &self,
        (namespace, pod, port): (&str, &str, u16),
        path: &str,
        token: Option<HeaderValue>,
    ) -> Result<(StatusCode, String), PodError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let doing = format!("forward a connection to Pod {namespace}/{pod}");
        let mut forwarded = pods.portforward(pod, &[port]).await.map_err(ReadError::request(doing))?;
        let broken = |error: &dyn std::error::Error| PodError::Broken(error_chain(error));
        let stream = forwarded.take_stream(port).ok_or_else(|| PodError::Broken("no connection".to_owned()))?;
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| broken(&error))?;
        // A connection that is forwarded comes from loopback, by which a server without sign-in judges it.
        let mut request = Request::get(path).header(HOST, "localhost").header(CONNECTION, "close");
        if let Some(token) = token {
            request = request.header(OWN_AUTHORIZATION, token);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| broken(&error))?;
        let exchange = pin!(async move {
            let (head, body) = sender.send_request(request).await.map_err(|error| broken(&error))?.into_parts();
            let body = Limited::new(body, MAX_BODY).collect().await.map_err(|error| broken(error.as_ref()))?;
            Ok::<_, PodError>((head.status, String::from_utf8_lossy(&body.to_bytes()).into_owned()))
        });
        // The connection has to be polled for the exchange to go on.
        match select(exchange, pin!(connection)).await {
            Either::Left((answer, _)) => answer,
            Either::Right((_, exchange)) => exchange.await,
        }
    }
}

/// Reason for which a Pod did not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PodError {
    /// The API server does not forward the connection.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The Pod takes no connection, or breaks it.
    #[error("no answer: {0}")]
    Broken(String),
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
