//! Processes of the overload test: workloads, a sidecar in front of each, and one gateway in front of all.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use tokio::{
    net::TcpListener,
    process::{Child, Command},
    time::sleep,
};

use crate::{api, http::get_from};

/// All processes. They end when it is dropped.
pub(crate) struct OverloadProcesses {
    /// Address of the gateway.
    pub(crate) gateway: SocketAddr,
    admin: SocketAddr,
    sidecars: Vec<SocketAddr>,
    /// Gateway and sidecars, whose memory is measured, by name.
    relays: Vec<(String, Child)>,
    workloads: Vec<(SocketAddr, Child)>,
    kubeconfig: PathBuf,
}

impl OverloadProcesses {
    /// Starts this many Pods, each with a limit of `cap` requests, and waits until all processes are ready.
    pub(crate) async fn start(bin_dir: &Path, pods: usize, cap: usize) -> Result<Self> {
        let (mut workloads, mut sidecars, mut relays) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..pods {
            let workload = free_address().await?;
            let mut command = Command::new(bin_dir.join("workload"));
            workloads.push((workload, spawn(command.env("CORAIL_PORT", workload.port().to_string()))?));
            let sidecar = free_address().await?;
            let mut command = Command::new(bin_dir.join("recif-proxy"));
            command.env("RECIF_LISTEN_ADDR", sidecar.to_string());
            command.env("RECIF_UPSTREAM_URL", format!("http://{workload}"));
            command.env("RECIF_CONCURRENCY", cap.to_string());
            relays.push((format!("sidecar {number}"), spawn(&mut command)?));
            sidecars.push(sidecar);
        }
        let api = api::serve(&sidecars).await?;
        let kubeconfig = std::env::temp_dir().join(format!("recif-overload-{}.yaml", std::process::id()));
        tokio::fs::write(&kubeconfig, kubeconfig_of(api)).await?;
        let (gateway, admin) = (free_address().await?, free_address().await?);
        let mut command = Command::new(bin_dir.join("recif"));
        command.args(["gateway", "--auth", "none", "--listen", &gateway.to_string()]);
        command.args(["--admin-listen", &admin.to_string()]).env("KUBECONFIG", &kubeconfig);
        relays.insert(0, ("gateway".into(), spawn(&mut command)?));
        let fleet = Self { gateway, admin, sidecars, relays, workloads, kubeconfig };
        for address in fleet.sidecars.iter().chain([&fleet.admin]) {
            ready(*address).await?;
        }
        Ok(fleet)
    }

    /// Returns the resident memory of each proxy, in KiB.
    pub(crate) fn memory(&self) -> Result<Vec<(String, u64)>> {
        let of = |(name, child): &(String, Child)| {
            let pid = child.id().with_context(|| format!("{name} has ended"))?;
            let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
            Ok((name.clone(), kib.context("no VmRSS")?))
        };
        self.relays.iter().map(of).collect()
    }

    /// Describes the requests that are still in flight or waiting after five seconds, if any.
    pub(crate) async fn left_behind(&self) -> Option<String> {
        let mut left = None;
        for _ in 0..50 {
            left = self.in_flight().await.unwrap_or_else(|error| Some(format!("{error:#}")));
            left.as_ref()?;
            sleep(Duration::from_millis(100)).await;
        }
        left
    }

    async fn in_flight(&self) -> Result<Option<String>> {
        for sidecar in &self.sidecars {
            let (_, text) = get_from(*sidecar, "/_recif/inflight").await?;
            let reported: serde_json::Value = serde_json::from_str(&text)?;
            if reported["inflight"] != 0 {
                return Ok(Some(format!("a sidecar says {text}")));
            }
        }
        for (workload, _) in &self.workloads {
            let (_, text) = get_from(*workload, "/stats").await?;
            let reported: serde_json::Value = serde_json::from_str(&text)?;
            if reported["inFlight"] != 0 {
                return Ok(Some(format!("a workload says {text}")));
            }
        }
        let (_, metrics) = get_from(self.admin, "/metrics").await?;
        let counts = |line: &&str| {
            ["recif_gateway_queue_depth", "recif_gateway_active_streams"].iter().any(|name| line.starts_with(name))
        };
        let busy = metrics.lines().filter(counts).find(|line| !line.ends_with(" 0"));
        Ok(busy.map(|line| format!("the gateway says {line}")))
    }
}

impl Drop for OverloadProcesses {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

fn spawn(command: &mut Command) -> Result<Child> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit()).env("RUST_LOG", "error");
    command.kill_on_drop(true).spawn().with_context(|| format!("start {:?}", command.as_std()))
}

/// Returns a free port of loopback.
async fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0").await?.local_addr()?)
}

async fn ready(address: SocketAddr) -> Result<()> {
    for _ in 0..100 {
        if get_from(address, "/readyz").await.is_ok_and(|(status, _)| status == 200) {
            return Ok(());
        }
        sleep(Duration::from_millis(100)).await;
    }
    bail!("{address} does not become ready")
}

fn kubeconfig_of(api: SocketAddr) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: bench\nclusters: [{{name: bench, cluster: {{server: \
         'http://{api}'}}}}]\nusers: [{{name: bench, user: {{token: bench}}}}]\ncontexts: [{{name: bench, context: \
         {{cluster: bench, user: bench}}}}]\n"
    )
}
