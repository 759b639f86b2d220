//! Copies the program into an image that does not contain it.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// The program could not be copied.
#[derive(Debug, thiserror::Error)]
#[error("copy this program to {}: {source}", .file.display())]
pub struct InstallError {
    file: PathBuf,
    source: io::Error,
}

/// Copies this program to `file`, executable for every user. The copy is renamed into place, so that no reader sees a
/// partial file.
///
/// # Errors
/// The folder does not exist or is not writable.
pub fn install(file: &Path) -> Result<(), InstallError> {
    let copy = || {
        let mut new = file.as_os_str().to_owned();
        new.push(".new");
        fs::copy("/proc/self/exe", &new)?;
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755))?;
        fs::rename(&new, file)
    };
    copy().map_err(|source| InstallError { file: file.to_owned(), source })
}
