//! Tests of the gateway over real sockets on loopback, with scripted Pods and routes that the tests set.

mod audit;
mod bad_requests;
mod callers;
mod h2;
mod limits;
mod mcp;
mod overload;
mod pending;
mod relaying;
mod retries;
mod root;
mod tls;
mod traces;
mod waiting;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use clap::Parser;
use cluster::{cache::Keys, endpoint_slice::EndpointState};
use meta::Key;
use telemetry::{Sampler, SpanCounters, Tracing};
use testing::connection::{SOON, read_exactly, read_head};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    args::{GatewayArgs, GatewaySettings},
    audit::AuditLog,
    auth::Auth,
    clients::ClientLimiter,
    clock::Clock,
    endpoints::{PodEndpoint, WorkloadEndpoints},
    meters::Meters,
    metrics::GatewayMetrics,
    object::{NoPod, Object, RoutedKind, testing::object},
    record::RequestLog,
    root::RootLimits,
    routes::Routes,
    serve::accept,
    state::GatewayContext,
    traces::RequestTraces,
    workload::QueueDemand,
};

const GET: &[u8] = b"GET /v1/agents/ns/a/x HTTP/1.1\r\nHost: h\r\n\r\n";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nx-recif-load: 1/0\r\n\r\nok";
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\nx-recif-reason: over-capacity\r\n\r\nno";

/// Day of the gateways, in days since 1970: none begins while a test runs.
const TODAY: i64 = 20_784;
/// Their time, in milliseconds since 1970.
const NOON: u64 = TODAY as u64 * 86_400_000 + 43_200_000;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: GatewayArgs,
}

/// Gateway with one workload, `Agent ns/a`.
struct TestGateway {
    address: SocketAddr,
    shared: Arc<GatewayContext>,
}

/// Pod whose connections the test holds.
struct TestPod {
    address: SocketAddr,
    accepted: mpsc::UnboundedReceiver<TcpStream>,
}

impl TestPod {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, accepted) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((io, _)) = listener.accept().await {
                if sender.send(io).is_err() {
                    return;
                }
            }
        });
        Self { address, accepted }
    }

    /// Returns the Pod's end of the next connection, once a whole head has arrived on it.
    async fn next(&mut self) -> (TcpStream, String) {
        let mut io = timeout(SOON, self.accepted.recv()).await.unwrap().unwrap();
        let head = read_head(&mut io).await;
        (io, head)
    }

    fn has_connections(&mut self) -> bool {
        self.accepted.try_recv().is_ok()
    }
}

/// A port that refuses connections: nothing listens on it, and nothing else gets it, as it is bound.
struct ClosedPort {
    address: SocketAddr,
    _bound: TcpSocket,
}

impl ClosedPort {
    fn bind() -> Self {
        let bound = TcpSocket::new_v4().unwrap();
        bound.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        Self { address: bound.local_addr().unwrap(), _bound: bound }
    }
}

impl TestGateway {
    /// Starts a gateway with these flags and Pods.
    async fn start(flags: &[&str], pods: &[SocketAddr]) -> Self {
        Self::with_auth(Auth::None { any_host: true }, flags, pods).await
    }

    /// Starts a gateway with this authentication.
    async fn with_auth(auth: Auth, flags: &[&str], pods: &[SocketAddr]) -> Self {
        Self::with_audit(std::io::sink(), auth, flags, pods).await
    }

    /// Starts a gateway that writes its audit to `out`.
    async fn with_audit(
        out: impl std::io::Write + Send + 'static,
        auth: Auth,
        flags: &[&str],
        pods: &[SocketAddr],
    ) -> Self {
        let counters = SpanCounters::default();
        let traces = RequestTraces::start(Tracing::off(), Sampler::default(), counters).unwrap();
        Self::with_log(out, traces, auth, flags, pods).await
    }

    /// Starts a gateway that writes its audit to `out`, and records spans.
    async fn with_log(
        out: impl std::io::Write + Send + 'static,
        traces: RequestTraces,
        auth: Auth,
        flags: &[&str],
        pods: &[SocketAddr],
    ) -> Self {
        let flags = [&["gateway", "--auth", "none", "--listen", "127.0.0.1:0"], flags].concat();
        let args = Cli::parse_from(flags).args;
        let (clock, meters) = (Clock::at(NOON), Arc::new(Meters::new(args.metrics.by_workload)));
        let metrics = GatewayMetrics::new(meters.clone(), |_| {});
        let audit = AuditLog::start(args.audit, out, metrics.audit_dropped.clone()).unwrap();
        let shared = Arc::new(GatewayContext {
            settings: GatewaySettings::read(&args).unwrap(),
            routes: Routes::with_meters(clock, meters),
            auth,
            keys: Keys::default(),
            clients: ClientLimiter::new(args.max_in_flight_per_client),
            connections: ClientLimiter::new(args.max_connections_per_address),
            root: RootLimits::default(),
            limits: Default::default(),
            log: RequestLog { audit, traces },
            metrics,
            clock,
            instance: "gw".into(),
            watch_health: Default::default(),
            leaving: Default::default(),
            closing: CancellationToken::new(),
            cold_starts: Default::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(accept(listener, None, shared.clone(), SOON, 1));
        let gateway = Self { address, shared };
        gateway.object(Some(object()));
        gateway.pods(&pods.iter().map(|address| (*address, EndpointState::Ready)).collect::<Vec<_>>());
        gateway
    }

    /// Sets the object of the workload.
    fn object(&self, object: Option<Object>) {
        self.shared.routes.object(RoutedKind::Agent, &Key::new("ns", "a"), object.map(Arc::new));
    }

    /// Makes it useless to wait for a Pod of the workload.
    fn no_pod(&self, pods_serve: bool) {
        let halt = Some(NoPod { sentence: "Agent ns/a is Failed.".into(), pods_serve, ended_by_pods: pods_serve });
        self.object(Some(Object { no_pod: halt, ..object() }));
    }

    /// Sets the Pods of the workload.
    fn pods(&self, pods: &[(SocketAddr, EndpointState)]) {
        let endpoints = pods.iter().map(|(address, state)| {
            let uid = address.to_string().into();
            PodEndpoint { uid, address: *address, state: *state }
        });
        let slice = WorkloadEndpoints {
            workload: Some((RoutedKind::Agent, "a".into())),
            service: "s".into(),
            endpoints: endpoints.collect(),
        };
        self.shared.routes.slice(&Key::new("ns", "a-x"), None, Some(&Arc::new(slice)));
    }

    async fn client(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Opens a client connection and sends these bytes.
    async fn send(&self, bytes: &[u8]) -> TcpStream {
        let mut client = self.client().await;
        client.write_all(bytes).await.unwrap();
        client
    }

    /// Sends these bytes on a new connection, and returns everything that is received until it is closed.
    async fn answer(&self, bytes: &[u8]) -> String {
        let mut client = self.send(bytes).await;
        let mut answer = Vec::new();
        timeout(SOON, client.read_to_end(&mut answer)).await.unwrap().unwrap();
        String::from_utf8(answer).unwrap()
    }

    fn in_flight(&self) -> u32 {
        let route = self.shared.routes.find(b"agents/ns/a").unwrap();
        route.pods.iter().map(|pod| pod.in_flight()).sum()
    }

    fn demand(&self) -> QueueDemand {
        self.shared.routes.find(b"agents/ns/a").unwrap().workload.demand()
    }

    async fn until_in_flight(&self, expected: u32) {
        until(|| self.in_flight() == expected).await;
    }

    async fn until_waiting(&self, expected: usize) {
        until(|| self.demand().waiting == expected).await;
    }
}

async fn until(reached: impl Fn() -> bool) {
    let waiting = async {
        while !reached() {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(SOON, waiting).await.unwrap();
}

/// Reads one response with a `Content-Length`. Returns its head and its body.
async fn whole(io: &mut TcpStream) -> (String, String) {
    let head = read_head(io).await;
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap().parse().unwrap();
    (head, read_exactly(io, length).await)
}

/// Returns the value of a header field.
fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}
