//! Tests the runner with the official clients of its protocols: real processes, over loopback.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::iter;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use testing::peers;

/// Runner with the name `peer` and the stub model, on a port of its own. It ends when it is dropped.
struct Runner {
    process: Child,
    port: u16,
}

/// Server that accepts connections and never responds.
struct HangingServer(TcpListener);

impl HangingServer {
    fn new() -> Self {
        Self(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap())
    }

    /// Returns the definition of a tool with this name that calls this server.
    fn tool(&self) -> String {
        let endpoint = format!("http://{}/", self.0.local_addr().unwrap());
        format!(r#"[{{"name":"hang","type":"http","method":"GET","endpoint":"{endpoint}","description":"x"}}]"#)
    }
}

impl Runner {
    /// Starts an agent with these tools.
    fn agent(tools: &str) -> Self {
        let prompt = ("CORAIL_SYSTEM_PROMPT", "be brief");
        Self::start("CORAIL_PORT", &[("CORAIL_AGENT_NAME", "peer"), prompt, ("CORAIL_TOOLS", tools)])
    }

    /// Starts a flow whose files are written to the folder of this name.
    fn flow(folder: &str) -> Self {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
        fs::create_dir_all(root.join("prompts")).unwrap();
        let config = r#"{"defaultModel": {"provider": "stub", "model": "stub-echo"}, "plugin": {"type": "stub"}}"#;
        fs::write(root.join("config.json"), config).unwrap();
        fs::write(root.join("prompts/peer.prompt"), r#"{{role "system"}}be brief"#).unwrap();
        Self::start("PORT", &[("RECIF_FLOW_NAME", "peer"), ("RECIF_CONTRACT_ROOT", root.to_str().unwrap())])
    }

    fn start(port: &str, environment: &[(&str, &str)]) -> Self {
        // The starts are serialized, so that a port that was free stays free; other programs are the reason for the
        // retries.
        static STARTING: Mutex<()> = Mutex::new(());
        let _alone = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        iter::repeat_with(|| Self::listening(port, environment)).take(5).flatten().next().unwrap()
    }

    /// Starts a process and returns it when it listens on the port; `None` if it ended, because another process has the
    /// port.
    fn listening(variable: &str, environment: &[(&str, &str)]) -> Option<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let mut command = Command::new(env!("CARGO_BIN_EXE_recif-runner"));
        command.env_clear().env(variable, port.to_string()).envs(environment.iter().copied());
        let mut process = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
        let listens = log.any(|line| line.contains("listening"));
        thread::spawn(move || log.for_each(drop));
        if !listens {
            process.wait().unwrap();
        }
        listens.then_some(Self { process, port })
    }

    /// Runs a script of `tests/peers` against it. The script checks what it sees, and prints `done` at its end.
    fn check(&self, script: Command) {
        let mut limited = Command::new("timeout");
        limited.arg("300").arg(script.get_program()).args(script.get_args());
        limited.arg(format!("http://127.0.0.1:{}", self.port));
        for (name, value) in script.get_envs() {
            match value {
                Some(value) => limited.env(name, value),
                None => limited.env_remove(name),
            };
        }
        let output = limited.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success() && out.trim_end().ends_with("done"), "{script:?}\n{out}\n{err}");
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a2a_in_python() {
    let hang = HangingServer::new();
    Runner::agent(&hang.tool()).check(peers::python("a2a_client.py"));
}

#[test]
fn a2a_in_javascript() {
    let hang = HangingServer::new();
    Runner::agent(&hang.tool()).check(peers::node("a2a_client.cjs"));
}

#[test]
fn openai_in_python() {
    Runner::agent("").check(peers::python("openai_client.py"));
    Runner::flow("openai-in-python").check(peers::python("openai_client.py"));
}

#[test]
fn openai_in_javascript() {
    Runner::agent("").check(peers::node("openai_client.cjs"));
    Runner::flow("openai-in-javascript").check(peers::node("openai_client.cjs"));
}
