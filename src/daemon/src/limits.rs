//! What the system lets a process have.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Allows this process as many open files as it may have at all: each connection is one, and many systems begin with 1024.
pub fn raise_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Below the maximum it is never refused, and with fewer the process works too.
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
