//! Runs the operator as a child process, with exactly the permissions that it has in a cluster.

use std::{
    fs::File,
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{Api, Client, api::PostParams};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};

const NAMESPACE: &str = "recif-system";
const NAME: &str = "recif-operator";
/// Options for the start of an operator.
#[derive(Debug, Clone)]
pub struct OperatorOptions<'a> {
    /// Path of the built `recif`.
    pub program: &'a Path,
    /// Kubeconfig of the operator.
    pub kubeconfig: &'a Path,
    /// File to which its output is appended.
    pub log: &'a Path,
    /// Address of its probes.
    pub probes: SocketAddr,
    /// Uid of its Pod, which identifies it among the replicas.
    pub uid: &'a str,
    /// Additional arguments.
    pub arguments: &'a [&'a str],
    /// Additional environment variables.
    pub variables: &'a [(&'a str, &'a str)],
}

/// Running operator.
#[derive(Debug)]
pub struct OperatorProcess {
    child: Child,
    /// Process id.
    pub pid: u32,
    /// Time from the start of the process to the first successful readiness probe.
    pub ready_after: Duration,
}

impl OperatorProcess {
    /// Starts an operator and waits until it is ready.
    ///
    /// # Errors
    /// It ends, or is not ready within a minute.
    pub async fn start(start: &OperatorOptions<'_>) -> Result<Self> {
        let OperatorOptions { program, kubeconfig, log, probes, .. } = start;
        let output = File::options().create(true).append(true).open(log);
        let output = output.with_context(|| format!("open {}", log.display()))?;
        let mut command = Command::new(program);
        command.arg("operator").args(start.arguments).env("KUBECONFIG", kubeconfig);
        command.env("POD_UID", start.uid).env("POD_NAME", NAME).env("POD_NAMESPACE", NAMESPACE);
        command.env("RECIF_LISTEN", probes.to_string()).envs(start.variables.iter().copied());
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).kill_on_drop(true);
        let started = Instant::now();
        let mut child = command.spawn().with_context(|| format!("start {}", program.display()))?;
        let pid = child.id().context("the operator ended at once")?;
        let ready = async {
            while !is_ready(*probes).await {
                if let Some(status) = child.try_wait()? {
                    bail!("the operator ended ({status}): {}", last_lines(log));
                }
                sleep(Duration::from_millis(5)).await;
            }
            Ok(())
        };
        match timeout(Duration::from_secs(60), ready).await {
            Ok(ready) => ready?,
            Err(_) => bail!("the operator does not become ready: {}", last_lines(log)),
        }
        Ok(Self { child, pid, ready_after: started.elapsed() })
    }

    /// Returns the exit status, or `None` if it still runs.
    ///
    /// # Errors
    /// The system does not return the status.
    pub fn exit_status(&mut self) -> Result<Option<std::process::ExitStatus>> {
        self.child.try_wait().context("ask for the operator's end")
    }

    /// Kills it by SIGKILL.
    ///
    /// # Errors
    /// The system refuses the signal.
    pub async fn kill(mut self) -> Result<()> {
        self.child.kill().await.context("kill the operator")
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// It has ended, or the system refuses the signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        // `self.pid` may be another process by now.
        let pid = self.child.id().context("the operator has ended")?;
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("a process id")?;
        kill_process(pid, signal).with_context(|| format!("send {signal:?} to the operator"))
    }

    /// Stops it by SIGTERM, as a cluster would; by SIGKILL if it has not ended after 20 seconds. One that has ended is stopped.
    ///
    /// # Errors
    /// It does not end, or the system refuses the signal.
    pub async fn stop(mut self) -> Result<()> {
        if self.exit_status()?.is_none() {
            self.signal(Signal::TERM)?;
        }
        match timeout(Duration::from_secs(20), self.child.wait()).await {
            Ok(status) => status.map(drop).context("wait for the operator's end"),
            Err(_) => self.child.kill().await.context("the operator did not end on SIGTERM, nor on SIGKILL"),
        }
    }
}

async fn is_ready(probes: SocketAddr) -> bool {
    let answer = async {
        let mut stream = TcpStream::connect(probes).await?;
        stream.write_all(b"GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = timeout(Duration::from_secs(1), answer).await;
    answer.is_ok_and(|answer| answer.is_ok_and(|text| text.split(' ').nth(1) == Some("200")))
}

fn last_lines(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}

/// Writes a copy of the kubeconfig `ours` with a token of the operator's ServiceAccount.
///
/// # Errors
/// No token is issued, or the file cannot be written.
pub async fn kubeconfig(client: &Client, ours: &Path, folder: &Path) -> Result<PathBuf> {
    let api: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    let spec = TokenRequestSpec { expiration_seconds: Some(24 * 3600), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let answer = api.create_token_request(NAME, &PostParams::default(), &request).await;
    let token = answer.context("ask for a token of the operator's ServiceAccount")?.status.unwrap_or_default().token;
    let text = std::fs::read_to_string(ours).with_context(|| format!("read {}", ours.display()))?;
    let mut config: Value = serde_yaml::from_str(&text).context("read the kubeconfig")?;
    let user = config.pointer_mut("/users/0/user").context("the kubeconfig has no user")?;
    *user = serde_json::json!({"token": token});
    let path = folder.join("operator.kubeconfig");
    let file = File::options().create(true).write(true).truncate(true).mode(0o600).open(&path);
    serde_json::to_writer(file.with_context(|| format!("write {}", path.display()))?, &config)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_signal_that_is_not_delivered_is_an_error() {
        let child = Command::new("true").spawn().unwrap();
        let pid = child.id().unwrap();
        let mut operator = OperatorProcess { child, pid, ready_after: Duration::ZERO };
        operator.child.wait().await.unwrap();
        operator.signal(Signal::STOP).unwrap_err();
        operator.stop().await.unwrap();
    }
}
