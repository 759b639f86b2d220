//! The runner as the official clients of the protocols that it speaks see it: real processes, over loopback.

#![allow(clippy::unwrap_used)]

#[path = "../src/runner/tests/peers.rs"]
mod peers;

use std::io::{BufRead, BufReader};
use std::iter;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// A runner on a port of its own; ends with this value.
struct Runner {
    process: Child,
    port: u16,
    /// Where its tool `hang` is: takes connections and never answers.
    _hang: TcpListener,
}

impl Runner {
    /// An agent called `peer`, of the stub model.
    fn start() -> Self {
        let hang = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let endpoint = format!("http://{}/", hang.local_addr().unwrap());
        let tools =
            format!(r#"[{{"name":"hang","type":"http","method":"GET","endpoint":"{endpoint}","description":"x"}}]"#);
        // One at a time, so that a port which is free stays free; other programs are why there is a second try.
        static STARTING: Mutex<()> = Mutex::new(());
        let _alone = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let started = iter::repeat_with(|| Self::listening(&tools)).take(5).flatten().next();
        let (process, port) = started.unwrap();
        Self { process, port, _hang: hang }
    }

    /// A process that listens on the port; none when it ended, because somebody else has the port.
    fn listening(tools: &str) -> Option<(Child, u16)> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let mut command = Command::new(env!("CARGO_BIN_EXE_recif-runner"));
        command.env_clear().env("CORAIL_PORT", port.to_string()).env("CORAIL_AGENT_NAME", "peer");
        command.env("CORAIL_SYSTEM_PROMPT", "be brief").env("CORAIL_TOOLS", tools);
        let mut process = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
        let listens = log.any(|line| line.contains("listening"));
        thread::spawn(move || log.for_each(drop));
        if !listens {
            process.wait().unwrap();
        }
        listens.then_some((process, port))
    }

    /// Runs a script of `tests/peers` against it. The script checks what it sees, and says `done` at its end.
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
    Runner::start().check(peers::python("a2a_client.py"));
}

#[test]
fn a2a_in_javascript() {
    Runner::start().check(peers::node("a2a_client.cjs"));
}

#[test]
fn openai_in_python() {
    Runner::start().check(peers::python("openai_client.py"));
}

#[test]
fn openai_in_javascript() {
    Runner::start().check(peers::node("openai_client.cjs"));
}
