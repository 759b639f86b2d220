//! Locates the foreign programs that the runner is tested with: the packages pinned in `tests/peers`, installed by
//! `hack/peers`.
//!
//! Other test programs include this file by path.
#![allow(dead_code, reason = "each test program needs a part of it")]

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Returns the folder of the packages: `RECIF_PEERS`, or else the one that `hack/peers` prints, which installs them the
/// first time.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        if let Some(folder) = env::var_os("RECIF_PEERS").filter(|folder| !folder.is_empty()) {
            return folder.into();
        }
        let mut script = Command::new(checkout().join("hack/peers"));
        let output = script.stderr(Stdio::inherit()).output().unwrap();
        assert!(output.status.success(), "hack/peers ended with {}", output.status);
        String::from_utf8(output.stdout).unwrap().trim().into()
    })
}

/// Returns the command for the script `name` of `tests/peers` in Node with the npm packages. Proxy variables are removed:
/// peers connect over loopback.
pub fn node(name: &str) -> Command {
    let mut node = without_proxy("node");
    node.env("NODE_PATH", folder().join("node_modules")).arg(script(name));
    node
}

/// Returns the command for the script `name` of `tests/peers` in Python with the Python packages.
pub fn python(name: &str) -> Command {
    let mut python = without_proxy(folder().join("python/bin/python"));
    // The folder of the script is the checkout, which must not be written to.
    python.arg("-B").arg(script(name));
    python
}

fn checkout() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().find(|folder| folder.join("hack/peers").is_file()).unwrap_or(package)
}

fn script(name: &str) -> PathBuf {
    checkout().join("tests/peers").join(name)
}

fn without_proxy(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NODE_OPTIONS", "PYTHONPATH", "PYTHONHOME"] {
        command.env_remove(name).env_remove(name.to_ascii_lowercase());
    }
    command.env("NO_PROXY", "*");
    command
}
