//! Locations of our other programs: beside this one, else on PATH.

use std::{
    env, fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use node::Programs;

/// A program that is not there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramsError {
    /// The own path cannot be read.
    #[error("find the folder of this program: {0}")]
    Here(#[from] io::Error),
    /// It is in none of the folders.
    #[error("{name} is neither in {} nor on PATH: put it beside recif, from the same release", .folder.display())]
    Missing {
        /// Its name.
        name: &'static str,
        /// Folder of this program.
        folder: PathBuf,
    },
}

/// Finds the programs that Pods run.
///
/// # Errors
/// One is missing.
pub(crate) fn find() -> Result<Programs, ProgramsError> {
    let here = fs::canonicalize(env::current_exe()?)?;
    let folder = here.parent().unwrap_or(Path::new("/")).to_owned();
    let path = env::var_os("PATH").unwrap_or_default();
    let find = |name| {
        let folders = [folder.clone()].into_iter().chain(env::split_paths(&path));
        find_in(folders, name).ok_or_else(|| ProgramsError::Missing { name, folder: folder.clone() })
    };
    Ok(Programs { proxy: find("recif-proxy")?, runner: find("recif-runner")? })
}

fn find_in(folders: impl Iterator<Item = PathBuf>, name: &str) -> Option<PathBuf> {
    let is_program =
        |path: &PathBuf| fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
    // Programs run in other folders, so the path has to be absolute.
    folders.map(|folder| folder.join(name)).find(is_program).and_then(|path| fs::canonicalize(path).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_folder_that_has_the_program_counts() {
        let folder = env::temp_dir().join(format!("recif-dev-programs-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        for (name, mode) in [("a", None), ("b", Some(0o644)), ("c", Some(0o755)), ("d", Some(0o755))] {
            fs::create_dir_all(folder.join(name)).unwrap();
            if let Some(mode) = mode {
                let file = folder.join(name).join("x");
                fs::write(&file, "").unwrap();
                fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
            }
        }
        let folders = ["a", "b", "c", "d"].map(|name| folder.join(name));
        let found = find_in(folders.into_iter(), "x").unwrap();
        assert_eq!(found, fs::canonicalize(folder.join("c/x")).unwrap());
        assert_eq!(find_in([folder.join("a")].into_iter(), "x"), None);
    }
}
