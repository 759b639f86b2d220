//! Configuration of the node: its folder, the programs, and what of the user's environment programs may see.

use std::{collections::BTreeMap, fmt, io, path::PathBuf};

use crate::{programs::Programs, tokens::Tokens};

/// Name of the node in Pods and EndpointSlices.
pub const NODE_NAME: &str = "recif-dev";

/// Variables of the user's environment that programs may see.
const PASSED: &[&str] = &["PATH", "HOME", "USER", "SHELL", "LANG", "TZ", "TERM"];
/// Beginnings of such names.
const PASSED_PREFIXES: &[&str] = &["LC_", "XDG_", "SSL_CERT_"];
/// Such names that are written in upper or lower case.
const PROXIES: &[&str] = &["http_proxy", "https_proxy", "no_proxy", "all_proxy"];
/// Hosts that are reached without a proxy.
const LOOPBACK: &str = "localhost,127.0.0.1";

/// Configuration of a [`crate::LocalNode`].
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// Folder of the node: it writes `pods/`, `claims/`, `logs/` and the file `processes` there. Absolute, and closed to others.
    pub folder: PathBuf,
    /// Programs of ours.
    pub programs: Programs,
    /// Variables that every program sees, unless its Pod sets them.
    pub environment: Environment,
    /// DNS domain of the cluster, such as `cluster.local`.
    pub cluster_domain: String,
    /// Tokens of ServiceAccounts. The API server is to know the same ones.
    pub tokens: Tokens,
}

/// Variables of the user's environment that every program sees.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<String, String>);

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A proxy's URL may hold a password.
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Environment {
    /// Returns what programs may see of the environment of this process: no credential of the user's shell.
    pub fn of_user() -> Self {
        // A variable that is no text cannot be in a Pod either.
        Self::filtered(
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
        )
    }

    /// Returns what programs may see of these variables. Where there is a proxy, this machine is reached without it, because all Pods and
    /// relays are here.
    pub fn filtered(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let is_passed = |name: &str| {
            PASSED.contains(&name)
                || PASSED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
                || PROXIES.contains(&name.to_ascii_lowercase().as_str())
        };
        let mut passed: BTreeMap<_, _> = variables.into_iter().filter(|(name, _)| is_passed(name)).collect();
        if passed.keys().any(|name| PROXIES.contains(&name.to_ascii_lowercase().as_str())) {
            // Programs read one of the two names; what the user set under the other one counts, too.
            let (lower, upper) = (passed.get("no_proxy").cloned(), passed.get("NO_PROXY").cloned());
            for (name, others) in [("no_proxy", lower.clone().or(upper.clone())), ("NO_PROXY", upper.or(lower))] {
                let others = others.filter(|others| !others.is_empty());
                let all = others.into_iter().chain([LOOPBACK.to_owned()]).collect::<Vec<_>>().join(",");
                passed.insert(name.to_owned(), all);
            }
        }
        Self(passed)
    }

    /// Adds a variable that is not the user's.
    #[must_use]
    pub fn with(mut self, name: &str, value: String) -> Self {
        self.0.insert(name.to_owned(), value);
        self
    }

    /// Returns the variables by name.
    pub fn variables(&self) -> &BTreeMap<String, String> {
        &self.0
    }
}

/// The node cannot start.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A folder cannot be made.
    #[error("make the folder {}: {source}", .path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The folder is relative, and so would be the paths that programs are given.
    #[error("the folder {} of the node is relative: give its whole path", .0.display())]
    Relative(PathBuf),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_of_the_shell_reaches_a_program() {
        let names = ["PATH", "HOME", "LC_ALL", "XDG_CACHE_HOME", "SSL_CERT_FILE", "TZ"];
        let others = ["OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "PATHS", "path", "KUBECONFIG", "RUST_LOG", "PWD"];
        let all = names.iter().chain(&others).map(|name| ((*name).to_owned(), "x".to_owned()));
        let kept = Environment::filtered(all);
        let mut expected = names.to_vec();
        expected.sort_unstable();
        assert_eq!(kept.variables().keys().map(String::as_str).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn this_machine_is_reached_without_a_proxy() {
        let of = |pairs: &[(&str, &str)]| {
            let kept =
                Environment::filtered(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
            kept.variables().iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
        };
        assert_eq!(
            of(&[("HTTPS_PROXY", "http://u:p@proxy:3128"), ("no_proxy", "example.com")]),
            [
                "HTTPS_PROXY=http://u:p@proxy:3128",
                "NO_PROXY=example.com,localhost,127.0.0.1",
                "no_proxy=example.com,localhost,127.0.0.1"
            ]
        );
        assert_eq!(
            of(&[("NO_PROXY", "a.example"), ("no_proxy", "b.example")]),
            ["NO_PROXY=a.example,localhost,127.0.0.1", "no_proxy=b.example,localhost,127.0.0.1"]
        );
        assert_eq!(of(&[("PATH", "/bin")]), ["PATH=/bin"]);
    }
}
