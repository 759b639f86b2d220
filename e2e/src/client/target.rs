//! Target of requests: a workload, and the way to it.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use anyhow::{Context as _, Result};
use tokio::{net::TcpStream, time::timeout};

use crate::{
    env::Env,
    gateway,
    kinds::{KubeKind, MCP_SERVER, SERVICE},
    namespace::{Namespace, START_TIMEOUT},
    object::{Object, ObjectExt as _},
    operator,
    watch::poll,
};

/// Longest wait for one connection to a Service. A SYN that kube-proxy does not route yet is lost, and is sent again only after 1 s, 3 s, 7 s …
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Target of requests.
#[derive(Debug, Clone)]
pub(crate) struct ClientTarget {
    /// Name of the way, for messages.
    pub(crate) route: &'static str,
    /// Address to connect to.
    pub(crate) address: SocketAddr,
    /// Prefix of every path.
    pub(crate) prefix: String,
    /// Additional header lines, each with its line end.
    pub(crate) headers: String,
}

impl ClientTarget {
    /// Targets a workload through its own Service, once kube-proxy routes it: that may be a moment after a Pod is ready.
    pub(crate) async fn service(ns: &Namespace, name: &str) -> Result<Self> {
        let address = address(&ns.get(SERVICE, name).await?)?;
        let inside = ns.env.netns().await?;
        poll(START_TIMEOUT, "a route to the Service", || async {
            let connect = async move {
                let connected = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await;
                connected.context("no connection in time")?.map(drop).context("connect")
            };
            inside.run(connect).await.map(Some)
        })
        .await?;
        Ok(Self { route: "Service", address, prefix: String::new(), headers: String::new() })
    }

    /// Targets a workload through the gateway, as a user with every permission.
    pub(crate) async fn gateway(ns: &Namespace, kind: KubeKind, name: &str) -> Result<Self> {
        let mut target = Self::gateway_root(&ns.env).await?;
        let word = if kind == MCP_SERVER { "mcp" } else { kind.plural };
        target.prefix = format!("/v1/{word}/{}/{name}", ns.name);
        Ok(target)
    }

    /// Targets the control plane, as a user with every permission.
    pub(crate) async fn control_plane(env: &Env) -> Result<Self> {
        let service = env.within(operator::NAMESPACE, SERVICE).get("recif-control-plane").await;
        let service = service.context("get the control plane's Service")?;
        let headers = format!("Authorization: Bearer {}\r\n", env.token()?);
        Ok(Self { route: "control plane", address: address(&service)?, prefix: String::new(), headers })
    }

    /// Targets the gateway itself, as a user with every permission.
    pub(crate) async fn gateway_root(env: &Env) -> Result<Self> {
        let service = env.within(operator::NAMESPACE, SERVICE).get(gateway::NAME).await;
        let service = service.context("get the gateway's Service")?;
        let headers = format!("Authorization: Bearer {}\r\n", env.token()?);
        Ok(Self { route: "gateway", address: address(&service)?, prefix: String::new(), headers })
    }
}

/// Returns the cluster IP and the first port of a Service.
fn address(service: &Object) -> Result<SocketAddr> {
    let ip: IpAddr = service.text("/spec/clusterIP").parse().context("the Service has no address")?;
    let port = u16::try_from(service.number("/spec/ports/0/port")).context("the Service has no port")?;
    Ok((ip, port).into())
}
