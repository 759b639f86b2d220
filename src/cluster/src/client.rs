//! Finds the API server and creates clients for it.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderValue, Request, header::USER_AGENT};
use http_body::{Body, Frame, SizeHint};
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
pub use kube::Client;
use kube::{Config, client::ConfigExt as _};
use tower::{BoxError, ServiceBuilder};

use super::{crash::CrashPoint, metrics::ApiMetrics, transport::Transport, write_gate::WriteGate};

/// Time after which an idle connection is closed.
const IDLE: Duration = Duration::from_secs(20);

/// Reason for a missing client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// There is neither a kubeconfig nor a service account.
    #[error("no cluster configured: set KUBECONFIG or run inside a Pod: {0}")]
    Config(#[from] kube::config::InferConfigError),
    /// The configuration cannot be used.
    #[error("the cluster configuration cannot be used: {0}")]
    Client(#[from] kube::Error),
}

/// Creates a transport through a given client, which is that of an API server in this process; without one, to the cluster of the
/// kubeconfig, or of the Pod that this process runs in. `deadline` bounds each call. Nothing is sent yet.
///
/// # Errors
/// Fails if no client is given, and no cluster is configured or its configuration cannot be used.
pub async fn connect(
    given: Option<Client>,
    authority: WriteGate,
    crash: CrashPoint,
    metrics: ApiMetrics,
    deadline: Duration,
) -> Result<Arc<Transport>, ConnectError> {
    if let Some(client) = given {
        // Without connections none can be dead: after a time-out the same client goes on. A write needs no second look at the gate,
        // because it does not wait for a connection.
        return Ok(Arc::new(Transport::new(client, || None, authority, crash, metrics).with_deadline(deadline)));
    }
    let mut config = Config::infer().await?;
    config.connect_timeout = Some(Duration::from_secs(3));
    config.default_retry = false;
    let agent = concat!("recif/", env!("CARGO_PKG_VERSION"));
    config.headers.push((USER_AGENT, HeaderValue::from_static(agent)));
    let client = make(&config)?;
    let renew = move || {
        let fresh = make(&config);
        fresh.inspect_err(|error| tracing::error!(%error, "cannot make a new client")).ok()
    };
    Ok(Arc::new(Transport::new(client, renew, authority, crash, metrics).with_deadline(deadline)))
}

/// Fences a write: its body checks the write gate once more when it goes out. The write may have waited for a connection, or the process
/// may have been stopped, while another replica took over.
fn fenced<B>(request: Request<B>) -> Request<Fenced<B>> {
    let (mut parts, body) = request.into_parts();
    let authority = parts.extensions.remove::<WriteGate>();
    Request::from_parts(parts, Fenced { body, authority })
}

/// Body that breaks off instead of being sent without the Lease.
struct Fenced<B> {
    body: B,
    authority: Option<WriteGate>,
}

impl<B: Body<Error: Into<BoxError>> + Unpin> Body for Fenced<B> {
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let this = self.get_mut();
        if this.authority.as_ref().is_some_and(|authority| !authority.allows_writes()) {
            return Poll::Ready(Some(Err("this replica does not hold the lease any more".into())));
        }
        Pin::new(&mut this.body).poll_frame(cx).map_err(Into::into)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

/// Creates a client without a connection. It is kube's own, but for four things: writes are [`fenced`]; connections left over from a busy
/// time, of some 50 KB each, are closed; `TCP_NODELAY` is set, so that the kernel does not wait for more to send; and no span is created
/// for each request, because the transport reports requests already.
fn make(config: &Config) -> kube::Result<Client> {
    // A proxy needs features of kube that are not built in; kube reports so.
    if config.proxy_url.is_some() {
        return Client::try_from(config.clone());
    }
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(connector)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_write_timeout(config.write_timeout);
    let client = legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_request(fenced)
        .map_err(BoxError::from)
        .service(client);
    Ok(Client::new(service, config.default_namespace.clone()))
}

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncReadExt as _, net::TcpListener};

    use super::*;

    #[tokio::test]
    async fn a_write_whose_lease_ends_on_the_way_is_not_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = Config::new(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap());
        let client = make(&config).unwrap();
        let mut request = Request::patch("/x").body(kube::client::Body::from(b"{}".to_vec())).unwrap();
        request.extensions_mut().insert(WriteGate::by_lease());
        let received = tokio::spawn(async move {
            let mut bytes = Vec::new();
            listener.accept().await.unwrap().0.read_to_end(&mut bytes).await.unwrap();
            bytes
        });
        let sent = tokio::time::timeout(Duration::from_secs(5), client.send(request)).await;
        let error = sent.expect("it was sent, and an answer is waited for").unwrap_err();
        drop(client);
        assert!(format!("{error:?}").contains("does not hold the lease"), "{error:?}");
        let received = String::from_utf8(received.await.unwrap()).unwrap();
        assert!(!received.ends_with("{}"), "{received}");
    }
}
