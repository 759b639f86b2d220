//! Command-line flags of `recif dev`.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::ValueEnum;
use crds::Period;

/// Options of `recif dev`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without FILE a built-in sample runs, which needs no network and no keys. Every other command of `recif` in this folder or \
                  below talks to it, and `export KUBECONFIG=\"$PWD/.recif/kubeconfig\"` lets kubectl do so. Programs run as you, \
                  without a container: start only files that you trust.\n\nExamples:\n  recif dev\n  recif dev agent.yaml tools/\n  \
                  kubectl kustomize overlays/dev | recif dev -\n  recif dev agent.yaml -- pytest tests/"
)]
pub struct DevArgs {
    /// Files with objects, or folders of such files; - is standard input
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Take the folders below a folder, too
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// File of variables, of which the Secrets are made that objects refer to and no file has [default: .env beside the first
    /// FILE]
    #[arg(long, value_name = "FILE")]
    pub(crate) env_file: Option<PathBuf>,
    /// Namespace of objects that name none
    #[arg(short, long, default_value = "default", value_name = "NAMESPACE", value_parser = namespace)]
    pub(crate) namespace: String,
    /// Port of the gateway on 127.0.0.1 [default: 8080, or the next one that is free]
    #[arg(long, value_name = "PORT")]
    pub(crate) gateway_port: Option<u16>,
    /// Port of the web UI and the REST API on 127.0.0.1 [default: 8780, or the next one that is free]
    #[arg(long, value_name = "PORT")]
    pub(crate) ui_port: Option<u16>,
    /// Port of the API server on 127.0.0.1 [default: any]
    #[arg(long, value_name = "PORT")]
    pub(crate) api_port: Option<u16>,
    /// Whose output is shown: all, none, or names such as agent/my-agent, proxy or operator, separated by commas [default:
    /// that of your objects, without their sidecars]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) logs: Vec<String>,
    /// How to print what happens: lines, or a JSON object each
    #[arg(short, long, value_enum, default_value_t = EventFormat::Plain)]
    pub(crate) output: EventFormat,
    /// How long COMMAND waits until all is Ready, such as 90s or 5m
    #[arg(long, default_value = "60s", value_name = "TIME", value_parser = length)]
    pub(crate) timeout: Duration,
    /// Command to run when all is Ready, with KUBECONFIG and RECIF_GATEWAY. Its exit code is that of recif dev
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Format of printed events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EventFormat {
    /// Lines for people.
    Plain,
    /// One JSON object per line.
    Json,
}

fn length(text: &str) -> Result<Duration, String> {
    Period::from(text).length().ok_or_else(|| "give a length of time such as `90s` or `5m`".to_owned())
}

fn namespace(text: &str) -> Result<String, String> {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_label =
        (1..=63).contains(&text.len()) && text.bytes().all(is_inner) && !text.starts_with('-') && !text.ends_with('-');
    if is_label { Ok(text.to_owned()) } else { Err("a namespace has small letters, digits and '-' only".to_owned()) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        args: DevArgs,
    }

    fn parse(words: &str) -> Result<DevArgs, clap::Error> {
        Cli::try_parse_from(["dev"].into_iter().chain(words.split_whitespace())).map(|cli| cli.args)
    }

    #[test]
    fn flags_are_read() {
        let args = parse(
            "a.yaml tools -R --env-file x -n team --gateway-port 1 --logs a,agent/b -o json --timeout 1m -- run -x",
        )
        .unwrap();
        assert_eq!(args.files, ["a.yaml", "tools"].map(PathBuf::from));
        assert_eq!(args.command, ["run", "-x"].map(OsString::from));
        assert_eq!((args.recursive, args.namespace.as_str(), args.gateway_port), (true, "team", Some(1)));
        assert_eq!((args.output, args.timeout), (EventFormat::Json, Duration::from_secs(60)));
        assert_eq!(args.logs, ["a", "agent/b"]);
        let args = parse("").unwrap();
        assert_eq!((args.files.len(), args.command.len(), args.logs.len()), (0, 0, 0));
        assert_eq!((args.namespace.as_str(), args.timeout), ("default", Duration::from_secs(60)));
        assert_eq!(parse("-").unwrap().files, [PathBuf::from("-")]);
    }

    #[test]
    fn wrong_values_are_refused() {
        for words in ["-n Team", "-n -a", "--timeout 60", "--gateway-port 70000", "-o yaml", "--unknown"] {
            assert!(parse(words).is_err(), "{words}");
        }
    }
}
