//! Locations of our other programs: beside this one, else on PATH; and the words with which a shell runs this one.

use std::{
    env,
    ffi::OsStr,
    fs, io,
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

/// Returns the words with which the user's shell runs this program: its name if PATH leads to it, else its path.
pub(crate) fn own_command() -> String {
    let path = env::var_os("PATH").unwrap_or_default();
    env::current_exe().map_or_else(|_| "recif".to_owned(), |own| command_of(&own, &path))
}

fn command_of(own: &Path, path: &OsStr) -> String {
    let own = fs::canonicalize(own).unwrap_or_else(|_| own.to_owned());
    for (file, command) in [("recif", "recif"), ("kubectl-recif", "kubectl recif")] {
        if find_in(env::split_paths(path), file).is_some_and(|found| found == own) {
            return command.to_owned();
        }
    }
    let own = own.display().to_string();
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+".contains(letter);
    if own.chars().all(is_plain) { own } else { format!("'{}'", own.replace('\'', r"'\''")) }
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
    fn a_command_is_the_name_only_where_path_leads_to_this_very_program() {
        let folder = env::temp_dir().join(format!("recif-dev-command-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let folder = fs::canonicalize(&folder).unwrap();
        let make = |name: &str| {
            let file = folder.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, "").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
            file
        };
        let (own, blank) = (make("debug/recif"), make("it's mine/recif"));
        make("other/recif");
        for (name, link) in [("linked", "recif"), ("plugin", "kubectl-recif")] {
            fs::create_dir(folder.join(name)).unwrap();
            std::os::unix::fs::symlink(&own, folder.join(name).join(link)).unwrap();
        }
        let command = |own: &Path, names: &[&str]| {
            let path = env::join_paths(names.iter().map(|name| folder.join(name))).unwrap();
            command_of(own, &path)
        };
        assert_eq!(command(&own, &["debug"]), "recif");
        assert_eq!(command(&own, &["linked", "other"]), "recif");
        assert_eq!(command(&own, &["plugin"]), "kubectl recif");
        assert_eq!(command(&own, &["absent"]), own.display().to_string());
        assert_eq!(command(&own, &["other", "debug"]), own.display().to_string(), "the shell would run another one");
        let quoted = format!(r"'{}/it'\''s mine/recif'", folder.display());
        assert_eq!(command(&blank, &["debug"]), quoted);
        fs::remove_dir_all(&folder).unwrap();
    }

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
