//! Locates the tools that `hack/tools` builds.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Returns the path of a tool: `RECIF_HELM` for `helm`, or else the one that `hack/tools` prints, which builds it the first
/// time.
pub fn path(name: &str) -> PathBuf {
    let variable = format!("RECIF_{}", name.to_uppercase());
    if let Some(path) = env::var_os(variable).filter(|path| !path.is_empty()) {
        return path.into();
    }
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let checkout = package.ancestors().find(|folder| folder.join("hack/tools").is_file()).unwrap_or(package);
    let mut script = Command::new(checkout.join("hack/tools"));
    let output = script.arg(name).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "hack/tools {name} ended with {}", output.status);
    String::from_utf8(output.stdout).unwrap().trim().into()
}
