//! Paths of a workload that need no credential (`spec.expose.anonymousPaths`).

/// Reports whether one of `paths` covers `target`, the path and query below the workload, as sent. A path is covered by
/// an equal entry, or by an entry that ends in `/*` and is a prefix of it; `/*` covers the root too.
///
/// A path that servers interpret in different ways is covered by no prefix: one with a percent sign, a backslash, a
/// semicolon or an empty segment must be listed exactly.
pub(super) fn covers(paths: &[Box<str>], target: &[u8]) -> bool {
    if paths.is_empty() {
        return false;
    }
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    // The root of the workload, with or without its slash.
    let path = if path.is_empty() { b"/" } else { path };
    paths.iter().any(|listed| match listed.strip_suffix('*') {
        Some(start) if start.ends_with('/') => {
            let below = path.len() > start.len() || start == "/";
            path.starts_with(start.as_bytes()) && below && is_plain(path)
        }
        _ => path == listed.as_bytes(),
    })
}

/// Reports whether every path is covered.
pub(super) fn covers_all(paths: &[Box<str>]) -> bool {
    paths.iter().any(|listed| &**listed == "/*")
}

fn is_plain(path: &[u8]) -> bool {
    let dots = path.split(|byte| *byte == b'/').any(|segment| matches!(segment, b"." | b".."));
    let empty = path.windows(2).any(|pair| pair == b"//");
    !dots && !empty && !path.iter().any(|byte| matches!(byte, b'%' | b'\\' | b';'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_covered_by_itself_or_by_a_beginning() {
        let paths = ["/.well-known/*", "/callback", "/odd%20name", "/literal*"].map(Box::from);
        for covered in [
            "/.well-known/agent-card.json",
            "/.well-known/a/b/",
            "/.well-known/a?x=/../y",
            "/callback",
            "/callback?code=1;2",
            "/odd%20name",
            "/literal*",
        ] {
            assert!(covers(&paths, covered.as_bytes()), "{covered}");
        }
        for hidden in [
            "/",
            "/chat",
            "/.well-known",
            "/.well-known/",
            "/.well-knownx/a",
            "/callback/",
            "/callback/more",
            "/literal/more",
            "/.well-known/../chat",
            "/.well-known/%2e%2e/chat",
            "/.well-known/..%2fchat",
            "/.well-known/..;/chat",
            "/.well-known//chat",
            "/.well-known/a\\..\\..\\chat",
            "//.well-known/a",
            "/CALLBACK",
        ] {
            assert!(!covers(&paths, hidden.as_bytes()), "{hidden}");
        }
        assert!(!covers(&[], b"/"));
    }

    #[test]
    fn everything_can_be_open() {
        let paths = ["/*"].map(Box::from);
        assert!(covers(&paths, b"/") && covers(&paths, b"/chat") && covers(&paths, b"") && covers(&paths, b"?q"));
        assert!(!covers(&paths, b"//") && !covers(&paths, b"/%2e"));
    }
}
