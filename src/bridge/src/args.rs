//! Command line of the bridge, and the options parsed from it.

use crate::command::ArgsError;
use std::{ffi::OsString, net::IpAddr, time::Duration};

use jiff::SignedDuration;

use super::command::ServerCommand;

/// Serves an MCP server that speaks over standard input and output as Streamable HTTP, for both eras of the protocol.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Port to listen on.
    #[arg(long, default_value_t = 3000)]
    port: u16,
    /// Address to listen on; `::` is every address of both families.
    #[arg(long, default_value = "::")]
    address: IpAddr,
    /// Path at which MCP is served.
    #[arg(long, default_value = "/mcp")]
    path: String,
    /// Sessions at the same time; each has a process of its own.
    #[arg(long, env = "RECIF_MAX_SESSIONS", default_value_t = 16)]
    max_sessions: usize,
    /// How long a session without a request or an open stream lasts, such as `10m`.
    #[arg(long, default_value = "10m", value_parser = duration)]
    idle: Duration,
    /// Origins from which web pages may call, such as `https://app.example`. None by default.
    #[arg(long, env = "RECIF_ALLOWED_ORIGINS", value_delimiter = ',', value_name = "ORIGIN")]
    allowed_origins: Vec<String>,
    /// This is a developer's machine: requests that web pages send are refused.
    #[arg(long, env = "RECIF_LOCAL")]
    local: bool,
    /// The server's program and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Options that the bridge runs with.
#[derive(Debug)]
pub(super) struct BridgeOptions {
    pub(super) port: u16,
    pub(super) address: IpAddr,
    pub(super) path: String,
    pub(super) max_sessions: usize,
    pub(super) idle: Duration,
    pub(super) allowed_origins: Vec<String>,
    /// Set on a developer's machine, where a browser can connect too.
    pub(super) local: bool,
    pub(super) command: ServerCommand,
}

impl Args {
    /// Validates the arguments and looks up the program.
    pub(super) fn options(self) -> Result<BridgeOptions, ArgsError> {
        let Self { port, address, path, max_sessions, idle, mut allowed_origins, local, command } = self;
        if !path.starts_with('/') || matches!(path.as_str(), "/livez" | "/readyz") {
            return Err(ArgsError::Path(path));
        }
        if max_sessions == 0 {
            return Err(ArgsError::Sessions);
        }
        // An empty environment variable gives one empty origin.
        allowed_origins.retain(|origin| !origin.is_empty());
        let command = ServerCommand::find(command)?;
        Ok(BridgeOptions { port, address, path, max_sessions, idle, allowed_origins, local, command })
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let read = text.parse::<SignedDuration>().ok().and_then(|read| Duration::try_from(read).ok());
    read.filter(|read| !read.is_zero()).ok_or_else(|| "expected a duration such as `10m` or `90s`".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct ArgsCommand {
        #[command(flatten)]
        args: Args,
    }

    fn options(words: &[&str]) -> Result<BridgeOptions, ArgsError> {
        ArgsCommand::try_parse_from(["x"].iter().chain(words)).unwrap().args.options()
    }

    #[test]
    fn what_is_not_said_has_a_default() {
        let options = options(&["--", "sh", "-c", "true"]).unwrap();
        assert_eq!((options.port, options.path.as_str(), options.max_sessions), (3000, "/mcp", 16));
        assert_eq!((options.idle, options.allowed_origins.len()), (Duration::from_secs(600), 0));
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let program = |name: &str, searched| Err(ArgsError::Program(name.into(), searched));
        for (words, wanted) in [
            (&["--path", "mcp", "--", "sh"][..], Err(ArgsError::Path("mcp".into()))),
            (&["--path", "/readyz", "--", "sh"], Err(ArgsError::Path("/readyz".into()))),
            (&["--max-sessions", "0", "--", "sh"], Err(ArgsError::Sessions)),
            (&["--", "no-such-program"], program("no-such-program", true)),
            (&["--", "/no/such/program"], program("/no/such/program", false)),
            (&["--", "/etc/passwd"], program("/etc/passwd", false)),
        ] {
            assert_eq!(options(words).map(|options| options.port), wanted, "{words:?}");
        }
        for words in [&["--idle", "600", "--", "sh"][..], &["--idle", "0s", "--", "sh"], &["--port", "3000"]] {
            assert!(ArgsCommand::try_parse_from(["x"].iter().chain(words)).is_err(), "{words:?}");
        }
    }
}
