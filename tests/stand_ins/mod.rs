//! Stand-ins of the programs that the scripts call, and means to run the scripts with them.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use tokio::{
    process::Command,
    time::{sleep, timeout},
};

/// The checkout.
pub(crate) const ROOT: &str = env!("CARGO_MANIFEST_DIR");
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// A folder of a test, with stand-ins of programs and what they noted.
pub(crate) struct StandIns {
    pub(crate) dir: PathBuf,
    pub(crate) path: String,
}

impl StandIns {
    /// Puts stand-ins of these programs on PATH, before all others.
    pub(crate) fn of(test: &str, programs: &[&str]) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fast-start-{test}"));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("bin")).unwrap();
        for program in programs {
            symlink(Path::new(ROOT).join("tests/stand_ins/program"), dir.join("bin").join(program)).unwrap();
        }
        fs::write(dir.join("clusters"), "").unwrap();
        let path = format!("{}:{}", dir.join("bin").display(), std::env::var("PATH").unwrap());
        Self { dir, path }
    }

    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(Path::new(ROOT).join(program));
        for name in [
            "RECIF_IMAGES",
            "RECIF_VERSION",
            "RECIF_CLUSTER",
            "RECIF_KUBERNETES",
            "RECIF_STARTED_AT",
            "RECIF_EVENTS",
            "KUBECONFIG",
        ] {
            command.env_remove(name);
        }
        command.env("PATH", &self.path).env("HOME", &self.dir).env("RECORDS", &self.dir);
        command.env("XDG_CACHE_HOME", self.dir.join("cache")).env("XDG_STATE_HOME", self.dir.join("state"));
        command.env("CONFIG", Path::new(ROOT).join("config")).env("USER_ID", "0").env("FREE_KILOBYTES", "3000000");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    pub(crate) fn noted(&self, file: &str) -> String {
        fs::read_to_string(self.dir.join(file)).unwrap_or_default()
    }

    /// Returns the noted calls of a program, and forgets all.
    pub(crate) fn calls_of(&self, programs: &[&str]) -> Vec<String> {
        let calls = self.noted("calls");
        fs::write(self.dir.join("calls"), "").unwrap();
        let named = |line: &&str| programs.contains(&line.split(' ').next().unwrap());
        calls.lines().filter(named).map(str::to_owned).collect()
    }
}

/// Runs a command to its end, and returns its exit code, standard output and standard error.
pub(crate) async fn end_of(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = timeout(SOON, command.output()).await.unwrap().unwrap();
    (status.code().unwrap_or(-1), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// Runs lines of bash after the functions of hack/cluster.d. Signals that this process ignores are not ignored there.
pub(crate) fn script(stand_ins: &StandIns, lines: &str) -> Command {
    let mut command = stand_ins.command("/usr/bin/env");
    let load = "set -euo pipefail; for file in \"$HACK\"/cluster.d/*.sh; do . \"$file\"; done";
    command.args(["--default-signal", "bash", "-c", &format!("{load}\n{lines}"), "script"]);
    command.env("HACK", Path::new(ROOT).join("hack")).env("ROOT", ROOT);
    command
}

/// Waits until a condition holds.
pub(crate) async fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    timeout(SOON, async {
        while !holds() {
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap_or_else(|_| panic!("{what}"));
}
