//! The cluster under test: its API, and the files and programs that belong to it.

use std::{path::PathBuf, process::Stdio, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use kube::{Api, Client, Config};
use tokio::process::Command;

use crate::{audit::Audit, kinds::Kind, object::Object};

/// Where things are.
#[derive(Debug, Clone, Args)]
pub(crate) struct Places {
    /// The cluster's state folder, which holds the API server's audit log.
    #[arg(long, env = "RECIF_STATE")]
    state: PathBuf,
    /// The folder with the built `recif`.
    #[arg(long, env = "RECIF_BIN_DIR")]
    bin_dir: PathBuf,
    /// Root of the repository; unset: the current folder.
    #[arg(long, env = "RECIF_ROOT", default_value = ".")]
    root: PathBuf,
    /// The cluster's name, for `hack/cluster`.
    #[arg(long, env = "RECIF_CLUSTER")]
    cluster: String,
}

/// The cluster under test.
pub(crate) struct Env {
    /// A client with every right.
    pub(crate) client: Client,
    /// Its audit log.
    pub(crate) audit: Audit,
    places: Places,
}

impl Env {
    /// Connects to the cluster of KUBECONFIG.
    pub(crate) async fn connect(places: Places) -> Result<Self> {
        let config = Config::infer().await.context("read KUBECONFIG")?;
        let client = Client::try_from(config).context("make a client")?;
        client.apiserver_version().await.context("ask the API server for its version")?;
        let audit = Audit::new(client.clone(), places.state.join("audit.log"));
        Ok(Self { client, audit, places })
    }

    /// A file of the repository.
    pub(crate) fn file(&self, path: &str) -> PathBuf {
        self.places.root.join(path)
    }

    /// Objects of a kind in all namespaces, or of a kind without namespaces.
    pub(crate) fn all(&self, kind: Kind) -> Api<Object> {
        Api::all_with(self.client.clone(), &kind.resource())
    }

    /// Objects of a kind in one namespace.
    pub(crate) fn within(&self, namespace: &str, kind: Kind) -> Api<Object> {
        Api::namespaced_with(self.client.clone(), namespace, &kind.resource())
    }

    /// Runs `hack/cluster <arguments>`: a part of the cluster is stopped, started, restarted, paused.
    pub(crate) async fn cluster(&self, arguments: &[&str]) -> Result<()> {
        ensure!(self.places.cluster != "existing", "{arguments:?} needs a cluster of hack/cluster");
        let program = self.file("hack/cluster");
        let mut command = Command::new(&program);
        command.args(arguments).env("RECIF_CLUSTER", &self.places.cluster);
        output(command, Duration::from_secs(120)).await.map(drop)
    }

    /// Runs `recif <arguments>` and returns what it prints, its error output included.
    pub(crate) async fn recif(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(self.places.bin_dir.join("recif"));
        command.args(arguments);
        output(command, Duration::from_secs(30)).await
    }
}

async fn output(mut command: Command, deadline: Duration) -> Result<String> {
    let shown = format!("{:?}", command.as_std());
    let child = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = match tokio::time::timeout(deadline, child).await {
        Ok(output) => output.with_context(|| format!("start {shown}"))?,
        Err(_) => bail!("{shown} did not end within {deadline:?}"),
    };
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    ensure!(output.status.success(), "{shown}: {}\n{text}", output.status);
    Ok(text)
}
