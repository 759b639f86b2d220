//! Runs `recif dev` in a folder of its own, and reads its events.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::{sleep, timeout},
};

/// Longest wait of every step.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// A running `recif dev`. It is killed when it is dropped.
pub(crate) struct Dev {
    pub(crate) process: Child,
    pub(crate) folder: PathBuf,
    events: Lines<BufReader<ChildStdout>>,
    /// Events so far.
    pub(crate) seen: Vec<Value>,
    pub(crate) gateway: String,
}

/// Returns a new, empty folder of a test.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("dev-{name}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Returns the command in a folder, on ports that are free, and with little of this environment.
pub(crate) fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_recif"));
    command.args(["dev", "--gateway-port", "0", "--ui-port", "0"]).args(arguments).current_dir(folder);
    command.env_clear().env("PATH", std::env::var("PATH").unwrap()).env("HOME", folder);
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Runs the command to its end.
pub(crate) async fn output(folder: &Path, arguments: &[&str]) -> Output {
    timeout(SOON, command(folder, arguments).output()).await.unwrap().unwrap()
}

impl Dev {
    /// Starts it, and waits until it listens.
    pub(crate) async fn start(folder: &Path, arguments: &[&str]) -> Self {
        let mut command = command(folder, &[&["-o", "json"], arguments].concat());
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let events = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut dev = Self { process, folder: folder.to_owned(), events, seen: Vec::new(), gateway: String::new() };
        dev.gateway = dev.event("start").await["gateway"].as_str().unwrap().to_owned();
        dev
    }

    /// Waits for an event of this name.
    pub(crate) async fn event(&mut self, name: &str) -> Value {
        self.wait(|event| event["event"] == name).await
    }

    /// Waits for the next event that fits.
    pub(crate) async fn wait(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        let next = async {
            loop {
                let line = self.events.next_line().await.unwrap().expect("it has ended");
                let event: Value = serde_json::from_str(&line).expect(&line);
                self.seen.push(event.clone());
                if fits(&event) {
                    return event;
                }
            }
        };
        match timeout(SOON, next).await {
            Ok(event) => event,
            Err(_) => panic!("it did not happen in time: {:#?}", self.seen),
        }
    }

    /// Waits until an object is in a phase, and returns the text of that.
    pub(crate) async fn phase(&mut self, object: &str, phase: &str) -> String {
        let event =
            self.wait(|event| event["event"] == "phase" && event["object"] == object && event["phase"] == phase).await;
        event["text"].as_str().unwrap().to_owned()
    }

    /// Waits for a problem that has this text.
    pub(crate) async fn problem(&mut self, text: &str) -> String {
        let event =
            self.wait(|event| event["event"] == "problem" && event["text"].as_str().unwrap().contains(text)).await;
        event["text"].as_str().unwrap().to_owned()
    }

    /// Sends a signal.
    pub(crate) async fn signal(&self, signal: &str) {
        let pid = self.process.id().unwrap().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().await.unwrap().success());
    }

    /// Waits for its end, and returns its exit code.
    pub(crate) async fn end(&mut self) -> i32 {
        let reads = async { while let Ok(Some(_)) = self.events.next_line().await {} };
        let ends = async { tokio::join!(self.process.wait(), reads).0 };
        timeout(SOON, ends).await.unwrap().unwrap().code().unwrap()
    }

    /// Returns the processes that it has started, with theirs.
    pub(crate) fn children(&self) -> BTreeSet<u32> {
        let mut all = BTreeSet::from([self.process.id().unwrap()]);
        let parents: Vec<(u32, u32)> = processes().into_iter().filter_map(|pid| Some((pid, parent(pid)?))).collect();
        loop {
            let before = all.len();
            all.extend(
                parents.iter().filter(|(_, parent)| all.contains(parent)).map(|(pid, _)| *pid).collect::<Vec<_>>(),
            );
            if all.len() == before {
                break;
            }
        }
        all.remove(&self.process.id().unwrap());
        all
    }

    /// Asks an agent through the gateway, and returns code and text of the answer.
    pub(crate) async fn chat(&self, agent: &str, message: &str) -> (u16, String) {
        // Only the first call in a process has an effect.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let url = format!("{}/v1/agents/default/{agent}/chat", self.gateway);
        let sent =
            client.post(url).json(&serde_json::json!({ "message": message })).timeout(SOON).send().await.unwrap();
        (sent.status().as_u16(), sent.text().await.unwrap())
    }

    /// Runs another command of `recif` with its kubeconfig, and returns exit code, output and errors.
    pub(crate) async fn recif(&self, arguments: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_recif"));
        command.args(arguments).arg("--kubeconfig").arg(self.folder.join(".recif/kubeconfig")).env_clear();
        let output = timeout(SOON, command.stdin(Stdio::null()).output()).await.unwrap().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    }
}

fn processes() -> Vec<u32> {
    let names = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter_map(|name| name.parse().ok()).collect()
}

/// Returns the parent of a process; `None` for one that has ended.
fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit(')').next()?.split_whitespace();
    (fields.next()? != "Z").then_some(())?;
    fields.next()?.parse().ok()
}

/// Waits until none of these processes is left.
pub(crate) async fn until_gone(pids: &BTreeSet<u32>) {
    let gone = async {
        while pids.iter().any(|pid| parent(*pid).is_some()) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SOON, gone).await.unwrap();
}
