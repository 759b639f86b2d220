//! The start: what can be wrong is found before anything runs; then everything listens, and the parts and the node start.

use std::{
    fs,
    io::{self, Read as _},
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
};

use apiserver::ApiServer;
use daemon::ids::random_hex;
use http::{HeaderValue, Request, header::USER_AGENT};
use jiff::Timestamp;
use kube::{Client, client::Body};
use node::{Environment, LocalNode, Names, NodeConfig, NodeError, Programs, Tokens};
use operator::discovery::HostMap;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::{
    args::DevArgs,
    bound::{Addresses, Bound},
    certificate::{self, Certificate, CertificateError},
    desired::Desired,
    files::Input,
    folder::{Folder, FolderError},
    kinds::Kinds,
    kubeconfig::{self, Kubeconfig},
    listener::GuardedServer,
    part_logs,
    parts::{PartConfig, PartError, PartListeners, PlatformParts},
    platform::{self, NAMESPACE},
    ports::PortError,
    programs::{self, ProgramsError},
    refusal::words,
    reload::FileWatcher,
    screen::{Event, OutputSelection, Screen, ScreenStyle, ScreenWriter},
    session::{Processes, Session},
    signals::Signals,
    workspace::Workspace,
};

/// The built-in sample.
const SAMPLE: &str = include_str!("sample.yaml");
/// DNS domain of the cluster, which stands in URLs of Services.
const CLUSTER_DOMAIN: &str = "cluster.local";
/// Name that stands for standard input.
const STDIN: &str = "-";

/// `recif dev` does not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Port(#[from] PortError),
    #[error(transparent)]
    Programs(#[from] ProgramsError),
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error(transparent)]
    Node(#[from] NodeError),
    #[error(transparent)]
    Part(#[from] PartError),
    #[error("the system has no random numbers: {0}")]
    Random(#[from] getrandom::Error),
    #[error("write to the API server: {}", words(.0))]
    Api(#[from] kube::Error),
    #[error("{0}: {1}")]
    Io(&'static str, io::Error),
}

impl StartError {
    /// Returns the exit code: 2 for what the user can put right on the command line, else 1.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Port(_) | Self::Folder(FolderError::Running(_)) => 2,
            _ => 1,
        }
    }

    fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io(doing, error)
    }
}

/// Starts everything.
///
/// # Errors
/// The first thing that is wrong. Nothing runs then.
pub(crate) async fn start(args: DevArgs) -> Result<Session, StartError> {
    let inputs = inputs(&args.files)?;
    if let Some(file) = args.env_file.as_ref().filter(|file| !file.is_file()) {
        return Err(StartError::Usage(format!("--env-file {}: there is no such file", file.display())));
    }
    let programs = programs::find()?;
    let mut folder = Folder::open(Path::new(".")).await?;
    // That of a run which was killed leads to a server that is gone.
    folder.remove(kubeconfig::NAME);
    let signals = Signals::new().map_err(StartError::io("handle signals"))?;
    let bound = Bound::bind(&args)?;
    let ports = bound.ports().map_err(StartError::io("listen"))?;
    let addresses = Addresses::new(ports, &args);
    folder.note(&addresses.ui).map_err(StartError::io("write the lock"))?;
    let (screen, writer) = screen(&args)?;

    let tokens = Tokens::default();
    let known = tokens.clone();
    let server = ApiServer::new(Timestamp::now, move |token| known.account(token));
    let client = client(&server);
    let server_port = bound.api.local_addr().map_err(StartError::io("listen"))?.port();
    // What a model or an object chooses must not lead to what starts programs.
    let closed = vec![server_port, ports.control_plane];
    let config = node_config(&folder, programs, tokens, &closed);
    let node = LocalNode::new(client.clone(), config, Arc::new(screen.clone()))?;
    let logs = part_logs::start(node.log_store(), screen.clone());
    logs.map_err(|error| StartError::Usage(format!("RECIF_LOG: {error}")))?;
    let server = server.with_logs(node.logs());
    let otlp_port = bound.otlp.local_addr().map_err(StartError::io("listen"))?.port();
    let Bound { gateway, gateway_admin, control_plane, control_plane_admin, otlp, api } = bound;
    let token = random_hex::<32>()?;
    let Certificate { server: tls, authority } = certificate::make()?;
    let file = Kubeconfig {
        server: SocketAddr::from((Ipv4Addr::LOCALHOST, server_port)),
        authority: &authority,
        token: &token,
        namespace: &args.namespace,
        gateway: &addresses.gateway,
        control_plane: &addresses.control_plane,
    };
    tokio::spawn(GuardedServer::new(server, &token).serve(api, tls));
    let kubeconfig = folder.write(kubeconfig::NAME, &file.text())?;

    let kinds = Kinds::discover(&client).await?;
    platform::write(&client, &kinds, ports, &Timestamp::now().to_string()).await?;
    let (stop, kill) = (CancellationToken::new(), CancellationToken::new());
    let names = node.names();
    let node = tokio::spawn(node.run(stop.clone(), kill.clone()));
    let address = |port: u16| format!("127.0.0.1:{port}");
    let config = PartConfig {
        folder: folder.path(),
        gateway: address(ports.gateway),
        control_plane: address(ports.control_plane),
        otlp: address(otlp_port),
        closed_ports: closed,
        hosts: hosts(names),
    };
    let listeners = PartListeners { gateway, gateway_admin, control_plane, control_plane_admin, otlp };
    let parts = PlatformParts::start(&client, config, listeners).await?;
    greet(&screen, &addresses, &kubeconfig);
    let workspace = Workspace::new(inputs, args.recursive, args.env_file, args.namespace.clone(), kinds.clone());
    let watcher = FileWatcher::start().map_err(StartError::io("watch files"))?;
    Ok(Session {
        desired: Desired::new(workspace, client.clone(), kinds, args.namespace, screen.clone()),
        command: args.command,
        timeout: args.timeout,
        gateway: addresses.gateway,
        processes: Processes { parts, node, stop, kill },
        client,
        folder,
        kubeconfig,
        screen,
        writer,
        signals,
        watcher,
    })
}

/// Returns what to read: the built-in sample if nothing is named.
fn inputs(files: &[PathBuf]) -> Result<Vec<Input>, StartError> {
    if files.is_empty() {
        return Ok(vec![Input::Text("the built-in sample", SAMPLE.to_owned())]);
    }
    let input = |file: &PathBuf| {
        if file.as_os_str() == STDIN {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).map_err(StartError::io("read standard input"))?;
            return Ok(Input::Text(STDIN, text));
        }
        match fs::metadata(file) {
            Ok(_) => Ok(Input::Path(file.clone())),
            Err(error) => Err(StartError::Usage(format!("{}: {error}", file.display()))),
        }
    };
    files.iter().map(input).collect()
}

fn screen(args: &DevArgs) -> Result<(Screen, ScreenWriter), StartError> {
    let selection = OutputSelection::new(&args.logs);
    // Of a command's output nothing else is part.
    let style = ScreenStyle { format: args.output, selection, to_stderr: !args.command.is_empty() };
    Screen::start(style).map_err(StartError::io("start a thread"))
}

fn node_config(folder: &Folder, programs: Programs, tokens: Tokens, closed: &[u16]) -> NodeConfig {
    let closed: Vec<String> = closed.iter().map(u16::to_string).collect();
    NodeConfig {
        folder: folder.path().to_owned(),
        programs,
        environment: Environment::of_user().with("RECIF_CLOSED_PORTS", closed.join(",")),
        cluster_domain: CLUSTER_DOMAIN.to_owned(),
        tokens,
    }
}

/// Returns the function by which the operator finds a Service on this machine. A name without a namespace is of its own.
fn hosts(names: Names) -> HostMap {
    Arc::new(move |host: &str, port: u16| {
        let url = names.replace(&format!("http://{host}:{port}"), NAMESPACE)?;
        let (host, port) = url.strip_prefix("http://")?.split_once(':')?;
        Some((host.to_owned(), port.parse().ok()?))
    })
}

/// Makes a client of a server in this process. It has a name, as that of a cluster has: by it the server knows who wrote a field.
fn client(server: &ApiServer) -> Client {
    let named = server.clone().map_request(|mut request: Request<Body>| {
        let name = HeaderValue::from_static(concat!("recif/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().insert(USER_AGENT, name);
        request
    });
    Client::new(named, "default")
}

fn greet(screen: &Screen, addresses: &Addresses, kubeconfig: &Path) {
    screen.show(&Event::Start {
        ui: addresses.ui.clone(),
        gateway: addresses.gateway.clone(),
        kubeconfig: kubeconfig.display().to_string(),
    });
    addresses.notes.iter().for_each(|note| screen.note(note));
}
