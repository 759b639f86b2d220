//! Runs `recif dev` in a folder of its own, and reads its events.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::{sleep, timeout},
};

/// Longest wait of every step.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// Interval at which a condition is looked at.
const INTERVAL: Duration = Duration::from_millis(20);

/// A running `recif dev`. It ends with all its programs when it is dropped.
pub(crate) struct Dev {
    pub(crate) process: Child,
    pub(crate) folder: PathBuf,
    /// Its output, until its terminal is closed.
    events: Option<Lines<BufReader<ChildStdout>>>,
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

/// Saves a file as editors do: another one is put in its place, so that no half of it is read.
pub(crate) fn save(path: PathBuf, text: impl AsRef<[u8]>) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(new, path)
}

/// Returns a command of `recif` in a folder, with little of this environment: that of a user who has no cluster.
pub(crate) fn recif(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_recif"));
    command.args(arguments).current_dir(folder);
    command.env_clear().env("PATH", std::env::var("PATH").unwrap()).env("HOME", folder);
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Returns the command in a folder, on ports that are free.
pub(crate) fn command(folder: &Path, arguments: &[&str]) -> Command {
    recif(folder, &[&["dev", "--gateway-port", "0", "--ui-port", "0"], arguments].concat())
}

/// Runs a command to its end.
pub(crate) async fn ended(mut command: Command) -> Output {
    timeout(SOON, command.output()).await.unwrap().unwrap()
}

/// Runs `recif dev` to its end.
pub(crate) async fn output(folder: &Path, arguments: &[&str]) -> Output {
    ended(command(folder, arguments)).await
}

/// Returns output as text.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Dev {
    /// Starts it, and waits until it listens.
    pub(crate) async fn start(folder: &Path, arguments: &[&str]) -> Self {
        Self::of(command(folder, &[&["-o", "json"], arguments].concat()), folder).await
    }

    /// Starts a command that prints JSON, and waits until it listens.
    pub(crate) async fn of(mut command: Command, folder: &Path) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let events = BufReader::new(process.stdout.take().unwrap()).lines();
        let (seen, gateway) = (Vec::new(), String::new());
        let mut dev = Self { process, folder: folder.to_owned(), events: Some(events), seen, gateway };
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
            let events = self.events.as_mut().expect("its terminal is closed");
            loop {
                let line = events.next_line().await.unwrap().expect("it has ended");
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

    /// Waits until each object is as it should be.
    pub(crate) async fn ready(&mut self) {
        self.wait(|event| event["event"] == "ready" && event["except"] == serde_json::json!([])).await;
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

    /// Waits until an event has this text, also one that came before, and returns it.
    pub(crate) async fn told(&mut self, text: &str) -> Value {
        let fits = |event: &Value| event["text"].as_str().is_some_and(|found| found.contains(text));
        let before = self.seen.iter().find(|&event| fits(event)).cloned();
        match before {
            Some(event) => event,
            None => self.wait(fits).await,
        }
    }

    /// Sends a signal.
    pub(crate) async fn signal(&self, signal: &str) {
        let pid = self.process.id().unwrap().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().await.unwrap().success());
    }

    /// Closes its terminal: nothing reads what it prints any more.
    pub(crate) fn close_terminal(&mut self) {
        self.events = None;
    }

    /// Waits for its end, and returns its exit code.
    pub(crate) async fn end(&mut self) -> i32 {
        let events = &mut self.events;
        let reads = async {
            if let Some(events) = events {
                while let Ok(Some(_)) = events.next_line().await {}
            }
        };
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

    /// Returns those of its processes that have a variable with this value, such as `RECIF_NAME=a`.
    pub(crate) fn children_with(&self, variable: &str) -> BTreeSet<u32> {
        let has = |pid: &u32| {
            let variables = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            variables.split(|byte| *byte == 0).any(|found| found == variable.as_bytes())
        };
        self.children().into_iter().filter(has).collect()
    }

    /// Returns the processes of an agent: its sidecars and its programs.
    pub(crate) fn processes_of(&self, agent: &str) -> BTreeSet<u32> {
        let mut all = self.children_with(&format!("RECIF_NAME={agent}"));
        all.append(&mut self.children_with(&format!("CORAIL_AGENT_NAME={agent}")));
        all
    }

    /// Waits until so many programs of an agent run, without their sidecars.
    pub(crate) async fn until_programs(&self, agent: &str, count: usize) {
        let variable = format!("CORAIL_AGENT_NAME={agent}");
        let reached = async {
            while self.children_with(&variable).len() != count {
                sleep(INTERVAL).await;
            }
        };
        let in_time = timeout(SOON, reached).await.is_ok();
        assert!(in_time, "{} programs of {agent} run, and not {count}", self.children_with(&variable).len());
    }

    /// Returns the TCP ports at which it and its processes listen, each with its address as in `/proc/net/tcp`.
    pub(crate) fn listeners(&self) -> BTreeMap<u16, String> {
        let pids = self.children().into_iter().chain(self.process.id());
        let files = pids.flat_map(|pid| fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten());
        let links = files.filter_map(|file| fs::read_link(file.path()).ok());
        let socket = |link: PathBuf| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned());
        let sockets: BTreeSet<String> = links.filter_map(socket).collect();
        let tables = ["tcp", "tcp6"].map(|table| fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default());
        let listener = |row: &str| {
            let fields: Vec<&str> = row.split_whitespace().collect();
            let (address, port) = fields.get(1)?.rsplit_once(':')?;
            let listens = *fields.get(3)? == "0A" && sockets.contains(*fields.get(9)?);
            let port = u16::from_str_radix(port, 16).ok()?;
            listens.then(|| (port, address.to_owned()))
        };
        tables.iter().flat_map(|table| table.lines().skip(1)).filter_map(listener).collect()
    }

    /// Returns the URL of an agent's chat at the gateway.
    pub(crate) fn chat_url(&self, agent: &str) -> String {
        format!("{}/v1/agents/default/{agent}/chat", self.gateway)
    }

    /// Asks an agent through the gateway, and returns code and text of the answer.
    pub(crate) async fn chat(&self, agent: &str, message: &str) -> (u16, String) {
        let message = serde_json::json!({ "message": message });
        let sent = client().post(self.chat_url(agent)).json(&message).timeout(SOON).send().await.unwrap();
        (sent.status().as_u16(), sent.text().await.unwrap())
    }

    /// Runs another command of `recif` with its kubeconfig, and returns exit code, output and errors.
    pub(crate) async fn recif(&self, arguments: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_recif"));
        command.args(arguments).arg("--kubeconfig").arg(self.folder.join(".recif/kubeconfig")).env_clear();
        let output = timeout(SOON, command.stdin(Stdio::null()).output()).await.unwrap().unwrap();
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    }

    /// Returns its kubeconfig.
    pub(crate) fn kubeconfig(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(self.folder.join(".recif/kubeconfig")).unwrap()).unwrap()
    }
}

impl Drop for Dev {
    #[allow(clippy::disallowed_methods, reason = "a drop cannot await, and no other task of the test runs")]
    fn drop(&mut self) {
        let Some(pid) = self.process.id() else { return };
        let programs = self.children();
        let kill = |signal: &str, pid: u32| {
            let mut command = std::process::Command::new("kill");
            // Fails for a process that has ended.
            let _ = command.args([signal, &pid.to_string()]).stderr(Stdio::null()).status();
        };
        // The second signal ends the programs at once. Two equal ones may arrive as one.
        ["-INT", "-TERM"].into_iter().for_each(|signal| kill(signal, pid));
        let deadline = Instant::now() + Duration::from_secs(10);
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(INTERVAL);
        }
        programs.into_iter().filter(|pid| runs(*pid)).for_each(|pid| kill("-KILL", pid));
    }
}

/// Returns an HTTP client.
pub(crate) fn client() -> reqwest::Client {
    // Only the first call in a process has an effect.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
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

/// Reports whether a process runs.
pub(crate) fn runs(pid: u32) -> bool {
    parent(pid).is_some()
}

/// Waits until none of these processes is left.
pub(crate) async fn until_gone(pids: &BTreeSet<u32>) {
    let gone = async {
        while pids.iter().any(|pid| runs(*pid)) {
            sleep(INTERVAL).await;
        }
    };
    timeout(SOON, gone).await.unwrap();
}
