//! Resource limits of the process.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the limit of open files to its maximum: each connection takes one, and many systems begin with 1024.
pub fn raise_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Up to the maximum it is never refused, and the process works with fewer files, too.
    let _ = setrlimit(Resource::Nofile, limit);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_highest_there_is() {
        raise_open_files();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
