//! `recif ui`: serves the web UI of a cluster's control plane on this machine's loopback interface, for the user who
//! started it.
//!
//! The relay adds the token of the kubeconfig to the browser's requests, so it must serve no other user: the printed
//! address holds a key, which a cookie keeps; only requests for this very address are answered, and none of pages of
//! another origin.

mod origin_guard;
mod relay;

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use origin_guard::OriginGuard;
use relay::Relay;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    task::JoinSet,
    time::sleep,
};

use crate::{
    cluster::DevCluster,
    error::CliError,
    exit::Exit,
    output::{hint, print},
    target::{ConnectArgs, SystemArgs},
};
pub(crate) use relay::SERVICE;

/// Flags of `recif ui`.
#[derive(Debug, clap::Args)]
#[command(after_help = "The control plane is reached through the API server, which takes the right to get and create \
                  pods/portforward in its namespace (the Role recif-visitor). It knows you by the token of your kubeconfig; without one, sign in on \
                  the page with one that `kubectl create token` makes. The address is for you alone: it opens what you may \
                  see and call, until Ctrl-C. Of a `recif dev` it is printed where that serves it.")]
pub struct UiArgs {
    /// Port on 127.0.0.1; 0: one that is free
    #[arg(long, default_value_t = 0, value_name = "PORT")]
    port: u16,
    #[command(flatten)]
    connection: ConnectArgs,
    #[command(flatten)]
    system: SystemArgs,
}

/// Name of the control plane in messages.
const COMPONENT: &str = "control plane";

/// Prints where the UI of a `recif dev` is: on this machine already.
fn show_dev(dev: &DevCluster, port: u16) -> Result<Exit, CliError> {
    let address = format!("{}/ui/", dev.control_plane.as_str().trim_end_matches('/'));
    if port != 0 {
        return Err(CliError::Usage(format!(
            "--port {port}: recif dev serves the UI at {address}: leave the flag out"
        )));
    }
    print(&format!("{address}\n"))?;
    hint("Open this address, which recif dev serves until it ends.");
    Ok(Exit::Done)
}

/// Serves until Ctrl-C.
pub(super) async fn run(args: UiArgs) -> Result<Exit, CliError> {
    let UiArgs { port, connection, system } = args;
    let live = connection.connect().await?;
    if let Some(dev) = &live.dev {
        return show_dev(dev, port);
    }
    let forward = live.forward(&system.system_namespace, SERVICE);
    forward.ready_pod().await.map_err(|error| CliError::unreachable_part(COMPONENT, error, ""))?;
    let signed = live.caller.bearer().await?.is_some();
    let bind = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let listen = |error: std::io::Error| CliError::Usage(format!("--port {port}: {error}: choose another port"));
    let listener = TcpListener::bind(bind).await.map_err(listen)?;
    let port = listener.local_addr().map_err(listen)?.port();
    let gate = OriginGuard::new(port)
        .map_err(|error| CliError::FailedAnswer(format!("the system has no random numbers: {error}")))?;
    print(&format!("{}\n", gate.address()))?;
    hint("Open this address; Ctrl-C ends it. It is for you alone.");
    if !signed {
        hint("The kubeconfig has no token: sign in on the page with one, as `kubectl create token NAME` makes it.");
    }
    let relay = Relay::new(gate, forward, live.caller.clone());
    let failed = |error| CliError::FailedAnswer(format!("wait for signals: {error}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(relay.clone().serve(stream));
                }
                // Too many open files, or the client has gone already.
                Err(_) => sleep(Duration::from_millis(100)).await,
            },
            Some(_) = connections.join_next() => {}
            _ = interrupt.recv() => return Ok(Exit::Done),
            _ = terminate.recv() => return Ok(Exit::Done),
        }
    }
}
