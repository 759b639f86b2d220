//! Cluster under test: its API, and the files and programs that belong to it.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use e2e::audit::Audit;
use kube::{Api, Client, Config};
use tokio::{io::AsyncWriteExt as _, process::Command, sync::OnceCell};

use crate::{kinds::KubeKind, netns::NetnsRuntime, object::Object};

/// Where things are.
#[derive(Debug, Clone, Args)]
pub(crate) struct TestPaths {
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
    /// Deploys config/default with this image first; unset: the operator is there already.
    #[arg(long, env = "RECIF_OPERATOR_IMAGE")]
    pub(crate) operator_image: Option<String>,
    /// Which Kubernetes the cluster has, for `hack/`: oldest, newest; unset: the default.
    #[arg(long, env = "RECIF_KUBERNETES")]
    kubernetes: Option<String>,
    /// The operator loses one wake of a hundred, and looks at every object again within five seconds.
    #[arg(long, env = "RECIF_LOSE_WAKES")]
    pub(crate) lose_wakes: bool,
    /// The cluster is a `recif dev`: runs only the scenarios that need no node, no quota and no image.
    #[arg(long)]
    pub(crate) local: bool,
}

impl TestPaths {
    /// Reports whether the cluster has the default Kubernetes.
    pub(crate) fn has_default_version(&self) -> bool {
        self.kubernetes.as_deref().is_none_or(|version| version == "default")
    }
}

/// Cluster under test.
pub(crate) struct Env {
    /// Client with every permission.
    pub(crate) client: Client,
    /// The same client without retries: a response that asks for a retry is returned as it is.
    pub(crate) client_without_retry: Client,
    /// Audit log of the API server.
    pub(crate) audit: Audit,
    netns: OnceCell<Arc<NetnsRuntime>>,
    token: String,
    /// Paths of programs and files.
    pub(crate) paths: TestPaths,
}

impl Env {
    /// Connects to the cluster of KUBECONFIG.
    pub(crate) async fn connect(paths: TestPaths) -> Result<Self> {
        let mut config = Config::infer().await.context("read KUBECONFIG")?;
        let client = Client::try_from(config.clone()).context("make a client")?;
        config.default_retry = false;
        let user = serde_json::to_value(&config.auth_info)?;
        let token = user["token"].as_str().unwrap_or_default().to_owned();
        let client_without_retry = Client::try_from(config).context("make a client")?;
        client.apiserver_version().await.context("ask the API server for its version")?;
        let audit = Audit::new(client.clone(), paths.state.join("audit.log"));
        Ok(Self { client, client_without_retry, audit, netns: OnceCell::new(), token, paths })
    }

    /// Returns the runtime whose sockets are in the network namespace of the cluster; it is started once.
    pub(crate) async fn netns(&self) -> Result<Arc<NetnsRuntime>> {
        let started = self.netns.get_or_try_init(async || Ok(Arc::new(NetnsRuntime::start(&self.paths.state).await?)));
        started.await.cloned()
    }

    /// Returns the token of the user with every permission.
    pub(crate) fn token(&self) -> Result<&str> {
        ensure!(!self.token.is_empty(), "the user of KUBECONFIG has no token");
        Ok(&self.token)
    }

    /// Returns the command of a program of `hack/` that works on this cluster.
    pub(crate) fn in_cluster(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("RECIF_CLUSTER", &self.paths.cluster);
        command
    }

    /// Reports whether the cluster has the oldest supported Kubernetes.
    pub(crate) fn has_oldest_version(&self) -> bool {
        self.paths.kubernetes.as_deref() == Some("oldest")
    }

    /// Returns the state folder of the cluster.
    pub(crate) fn state(&self) -> &Path {
        &self.paths.state
    }

    /// Returns the path of a file of the repository.
    pub(crate) fn file(&self, path: &str) -> PathBuf {
        self.paths.root.join(path)
    }

    /// Returns the API of a kind in all namespaces, or of a cluster-scoped kind.
    pub(crate) fn all(&self, kind: KubeKind) -> Api<Object> {
        Api::all_with(self.client.clone(), &kind.resource())
    }

    /// Returns the API of a kind in one namespace.
    pub(crate) fn within(&self, namespace: &str, kind: KubeKind) -> Api<Object> {
        Api::namespaced_with(self.client.clone(), namespace, &kind.resource())
    }

    /// Runs `hack/cluster <arguments>`, which stops, starts, restarts or pauses a component of the cluster.
    pub(crate) async fn cluster(&self, arguments: &[&str]) -> Result<()> {
        ensure!(self.paths.cluster != "existing", "{arguments:?} needs a cluster of hack/cluster");
        let mut command = self.in_cluster(&self.file("hack/cluster"));
        command.args(arguments);
        output(command, None, Duration::from_secs(120)).await.map(drop)
    }

    /// Returns the `PATH` of a user of the cluster: `recif` and `kubectl` come first.
    pub(crate) fn path(&self) -> Result<OsString> {
        let before = std::env::var_os("PATH").unwrap_or_default();
        let tools = [self.paths.bin_dir.clone(), self.paths.state.join("bin")];
        Ok(std::env::join_paths(tools.into_iter().chain(std::env::split_paths(&before)))?)
    }

    /// Returns the command of the built `recif`, to be run as a process of the test.
    pub(crate) fn recif_command(&self) -> Command {
        Command::new(self.paths.bin_dir.join("recif"))
    }

    /// Runs `recif <arguments>`; returns the exit code, and standard output followed by standard error.
    pub(crate) async fn recif(&self, arguments: &[&str]) -> Result<(i32, String)> {
        let mut command = self.recif_command();
        command.args(arguments);
        let ProcessOutput { code, stdout, stderr } = run_to_exit(command, None).await?;
        Ok((code, stdout + &stderr))
    }

    /// Returns the command of the cluster's kubectl.
    pub(crate) fn kubectl_command(&self) -> Command {
        if self.paths.local {
            Command::new(self.paths.state.join("bin/kubectl"))
        } else {
            self.in_cluster(&self.file("hack/kubectl"))
        }
    }

    /// Runs `kubectl <arguments>` and returns its standard output.
    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.kubectl_within(Duration::from_secs(60), arguments).await
    }

    /// Runs `kubectl <arguments>`, which may take this long, and returns its standard output.
    pub(crate) async fn kubectl_within(&self, deadline: Duration, arguments: &[&str]) -> Result<String> {
        let mut command = self.kubectl_command();
        command.args(arguments);
        output(command, None, deadline).await
    }

    /// Runs `kubectl <arguments>` with this standard input and returns its standard output.
    pub(crate) async fn kubectl_with(&self, arguments: &[&str], input: String) -> Result<String> {
        let mut command = self.kubectl_command();
        command.args(arguments);
        output(command, Some(input), Duration::from_secs(60)).await
    }

    /// Runs `helm <arguments>` and returns its standard output.
    pub(crate) async fn helm(&self, arguments: &[&str]) -> Result<String> {
        self.tool("helm", arguments).await
    }

    /// Returns the tools that are Helm. The oldest and the newest Kubernetes are tried with version 3 too.
    pub(crate) fn helms(&self) -> &'static [&'static str] {
        if self.paths.has_default_version() { &["helm"] } else { &["helm", "helm3"] }
    }

    /// Runs a tool of `hack/tools` and returns its standard output. The first run builds it.
    pub(crate) async fn tool(&self, tool: &str, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(self.prepared("hack/tools", &[tool]).await?);
        command.args(arguments);
        output(command, None, Duration::from_secs(150)).await
    }

    /// Runs a program of `hack/` that gets something into the cache the first time, and returns the path that it prints.
    pub(crate) async fn prepared(&self, program: &str, arguments: &[&str]) -> Result<PathBuf> {
        let mut command = Command::new(self.file(program));
        command.args(arguments);
        Ok(output(command, None, Duration::from_secs(900)).await?.trim().into())
    }
}

/// Result of a command.
#[derive(Debug)]
pub(crate) struct ProcessOutput {
    /// Exit code; -1 after a signal.
    pub(crate) code: i32,
    /// Standard output.
    pub(crate) stdout: String,
    /// Standard error.
    pub(crate) stderr: String,
}

/// Runs a command that ends by itself, within 60 seconds.
pub(crate) async fn run_to_exit(command: Command, input: Option<String>) -> Result<ProcessOutput> {
    run(command, input, Duration::from_secs(60)).await
}

/// Runs a command that must succeed and returns its standard output.
pub(crate) async fn output(command: Command, input: Option<String>, deadline: Duration) -> Result<String> {
    let shown = format!("{:?}", command.as_std());
    let ProcessOutput { code, stdout, stderr } = run(command, input, deadline).await?;
    ensure!(code == 0, "{shown}: exit code {code}\n{stdout}{stderr}");
    Ok(stdout)
}

async fn run(mut command: Command, input: Option<String>, deadline: Duration) -> Result<ProcessOutput> {
    let shown = format!("{:?}", command.as_std());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().with_context(|| format!("start {shown}"))?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    let ended = async {
        let write = async move { stdin.write_all(input.unwrap_or_default().as_bytes()).await };
        tokio::join!(write, child.wait_with_output()).1
    };
    let Ok(output) = tokio::time::timeout(deadline, ended).await else {
        bail!("{shown} did not end within {deadline:?}")
    };
    let output = output.with_context(|| format!("run {shown}"))?;
    let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok(ProcessOutput { code: output.status.code().unwrap_or(-1), stdout, stderr })
}
