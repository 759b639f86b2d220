//! The user's command, which runs when all is Ready.

use std::{ffi::OsString, io, os::unix::process::ExitStatusExt as _, path::Path, process::ExitStatus};

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

/// Code of a command that a signal ended is this and the number of the signal, as in a shell.
const SIGNALLED: i32 = 128;
/// Code of a command that does not exist, as in a shell.
pub(crate) const NOT_FOUND: u8 = 127;

/// Running command.
pub(crate) struct UserCommand(Child);

impl UserCommand {
    /// Starts a command with the addresses that it needs.
    ///
    /// # Errors
    /// There is no such program.
    pub(crate) fn start(words: &[OsString], kubeconfig: &Path, gateway: &str) -> io::Result<Self> {
        let (program, arguments) = words.split_first().ok_or_else(|| io::Error::other("no command"))?;
        let mut command = Command::new(program);
        command.args(arguments).env("KUBECONFIG", kubeconfig).env("RECIF_GATEWAY", gateway).kill_on_drop(true);
        command.spawn().map(Self)
    }

    /// Waits for its end, and returns its exit code.
    pub(crate) async fn ended(&mut self) -> u8 {
        self.0.wait().await.map_or(1, code)
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = self.0.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(pid) = pid {
            // It may have ended by itself.
            let _ = kill_process(pid, signal);
        }
    }
}

fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| SIGNALLED + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn run(script: &str) -> u8 {
        let words = ["sh", "-c", script].map(OsString::from);
        UserCommand::start(&words, Path::new("/x/kubeconfig"), "http://127.0.0.1:8080").unwrap().ended().await
    }

    #[tokio::test]
    async fn its_exit_code_is_that_of_a_shell() {
        assert_eq!(run("exit 7").await, 7);
        assert_eq!(run("kill -TERM $$").await, 143);
        assert_eq!(run("[ $KUBECONFIG = /x/kubeconfig ] && [ $RECIF_GATEWAY = http://127.0.0.1:8080 ]").await, 0);
        assert!(UserCommand::start(&["/no/such/program".into()], Path::new(""), "").is_err());
    }

    #[tokio::test]
    async fn it_gets_signals() {
        let words = ["sleep", "60"].map(OsString::from);
        let mut command = UserCommand::start(&words, Path::new(""), "").unwrap();
        command.signal(Signal::TERM);
        assert_eq!(command.ended().await, 143);
    }
}
