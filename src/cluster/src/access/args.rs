//! Command-line options of the processes that admit callers: authentication of callers.

use std::net::SocketAddr;

/// Authentication of callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum AuthMode {
    /// By the tokens and roles of the cluster
    Kubernetes,
    /// Not at all: every caller may do everything
    None,
}

/// Options about callers.
#[derive(Debug, Clone, clap::Args)]
pub struct AuthArgs {
    /// How callers are authenticated
    #[arg(long, env = "RECIF_AUTH", value_enum, default_value_t = AuthMode::Kubernetes, value_name = "HOW")]
    auth: AuthMode,
    /// Allow --auth none on an address that other machines reach, and answer any Host and web page there
    #[arg(long, env = "RECIF_INSECURE")]
    insecure: bool,
    /// Audiences that tokens may be meant for, separated by commas; the API server's own and `recif` when empty
    #[arg(long, env = "RECIF_TOKEN_AUDIENCE", value_delimiter = ',', value_name = "NAMES")]
    token_audience: Vec<String>,
}

/// Address on which every caller, from everywhere, would be admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("--auth none on {0} would let in every client that reaches that address: bind to 127.0.0.1, or say --insecure")]
pub struct OpenBindError(SocketAddr);

impl AuthArgs {
    /// Returns the mode of authentication, if it is safe on this address.
    ///
    /// # Errors
    /// [`OpenBindError`].
    pub fn mode(&self, address: SocketAddr) -> Result<AuthMode, OpenBindError> {
        let open = self.auth == AuthMode::None && !self.insecure && !address.ip().is_loopback();
        if open { Err(OpenBindError(address)) } else { Ok(self.auth) }
    }

    /// Reports whether callers from everywhere are admitted if callers are not authenticated.
    pub fn insecure(&self) -> bool {
        self.insecure
    }

    /// Returns the audiences that tokens may be meant for; none: the API server's own and `recif`.
    pub fn audiences(&self) -> Vec<String> {
        // An empty variable is parsed as a list with one empty name.
        self.token_audience.iter().filter(|name| !name.is_empty()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct AuthCommand {
        #[command(flatten)]
        auth: AuthArgs,
    }

    fn parse(flags: &[&str]) -> AuthArgs {
        AuthCommand::parse_from([&["recif"], flags].concat()).auth
    }

    #[test]
    fn access_is_never_open_by_accident() {
        for (flags, address, expected) in [
            (&[][..], "0.0.0.0:1", Some(AuthMode::Kubernetes)),
            (&["--auth", "none"], "127.0.0.1:1", Some(AuthMode::None)),
            (&["--auth", "none"], "[::1]:1", Some(AuthMode::None)),
            (&["--auth", "none"], "0.0.0.0:1", None),
            (&["--auth", "none"], "10.0.0.1:1", None),
            (&["--auth", "none", "--insecure"], "0.0.0.0:1", Some(AuthMode::None)),
        ] {
            assert_eq!(parse(flags).mode(address.parse().unwrap()).ok(), expected, "{flags:?} {address}");
        }
    }

    #[test]
    fn an_empty_variable_names_no_audience() {
        assert_eq!(parse(&["--token-audience", "a,b"]).audiences(), ["a", "b"]);
        assert_eq!(parse(&["--token-audience", ""]).audiences(), [""; 0]);
    }
}
