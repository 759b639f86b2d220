//! Lookup of API keys.

use std::path::{Component, Path, PathBuf};

use crate::Lookup;

/// Lookup of API keys and other variables by name.
pub(crate) type Credentials<'a> = dyn Fn(&str) -> Option<String> + Send + Sync + 'a;

/// Returns a lookup in a directory with one file per name, the form of a mounted Secret. Surrounding white space is
/// trimmed: files often end with a newline. A name with more than one path component finds nothing.
pub(crate) fn directory(path: PathBuf) -> Box<Lookup> {
    Box::new(move |name| {
        let mut components = Path::new(name).components();
        if !matches!((components.next(), components.next()), (Some(Component::Normal(_)), None)) {
            return None;
        }
        let value = std::fs::read_to_string(path.join(name)).ok()?;
        Some(value.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_a_file_of_the_directory_itself() {
        let path = std::env::temp_dir().join(format!("recif-credentials-{}", std::process::id()));
        std::fs::create_dir_all(path.join("inside")).unwrap();
        std::fs::write(path.join("KEY"), "value\n").unwrap();
        let found = directory(path.join("inside"))("../KEY");
        let lookup = directory(path.clone());
        let all = ["KEY", "OTHER", "inside", "./KEY", ""].map(&lookup);
        std::fs::remove_dir_all(path).unwrap();
        assert_eq!(found, None);
        assert_eq!(all, [Some("value".to_owned()), None, None, None, None]);
    }
}
