//! `recif import`: turns objects of kagent, genkit-operator, Krypton and the upstream Récif operator into ours.
//!
//! Objects come from files ([`files`]) or from a cluster ([`live`]); what they become is decided by the package of the same
//! name, which knows neither. Objects of ours go to stdout, a line for each decision to stderr.

mod files;
mod live;
#[cfg(test)]
mod tests;

use std::{
    io::{self, IsTerminal as _},
    path::PathBuf,
};

use ::import::{ImportOptions, Imported, Source};
use clap::ValueEnum;
use serde::Serialize;

use crate::{
    error::CliError,
    exit::Exit,
    output::{PrintFormat, hint, json, print_foreign},
    target::{ConnectArgs, check_name},
};

/// Project whose objects are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SourceName {
    /// kagent.dev, with kmcp
    Kagent,
    /// genkit.dev, of genkit-operator
    Genkit,
    /// krypton.ai
    Krypton,
    /// agents.recif.dev, of the upstream operator
    Recif,
}

impl From<SourceName> for Source {
    fn from(name: SourceName) -> Self {
        match name {
            SourceName::Kagent => Self::Kagent,
            SourceName::Genkit => Self::Genkit,
            SourceName::Krypton => Self::Krypton,
            SourceName::Recif => Self::Recif,
        }
    }
}

/// Flags of `recif import`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  recif import -f kagent/ | kubectl apply --dry-run=server -f -\n  recif import --live -A --from \
                  kagent > ours.yaml\n  recif import -f agent.yaml --strict"
)]
pub struct ImportArgs {
    /// File to read, `-` for stdin, or a folder, of which the *.yaml, *.yml and *.json are read; may be repeated
    /// [default: stdin]
    #[arg(short, long = "filename", value_name = "FILE", conflicts_with = "live")]
    file: Vec<PathBuf>,
    /// Take the objects of this source only
    #[arg(long, value_enum)]
    from: Option<SourceName>,
    /// Read the objects from the cluster, and of others only the ConfigMaps and Services that they name, never a Secret
    #[arg(long)]
    live: bool,
    /// With --live: in all namespaces
    #[arg(short = 'A', long, requires = "live", conflicts_with = "namespace")]
    all_namespaces: bool,
    /// How to print it
    #[arg(short, long, value_parser = PrintFormat::parser([PrintFormat::Yaml, PrintFormat::Json]), default_value = "yaml")]
    output: PrintFormat,
    /// Print nothing and exit with 8 if something has no counterpart
    #[arg(long)]
    strict: bool,
    /// Namespace of the upstream operator, in which it looks for a database whose host is one word
    #[arg(long, value_name = "NAMESPACE", default_value = "recif-system")]
    operator_namespace: String,
    #[command(flatten)]
    connection: ConnectArgs,
}

/// Prints what the objects become.
pub(super) async fn run(args: ImportArgs) -> Result<Exit, CliError> {
    let ImportArgs { file, from, live, all_namespaces, output, strict, operator_namespace, connection } = args;
    check_name(&operator_namespace)?;
    if connection.namespace.is_some() && !live {
        return Err(CliError::Usage("-n chooses what --live reads: add --live, or leave out -n".into()));
    }
    let options = ImportOptions { from: from.map(Source::from), live, operator_namespace };
    let objects = if live {
        live::read(&connection.connect().await?, all_namespaces, &options).await?
    } else if file.is_empty() && io::stdin().is_terminal() {
        return Err(CliError::Usage("name the files with -f, or read the cluster with --live".into()));
    } else if file.is_empty() {
        files::read(&["-".into()])?
    } else {
        files::read(&file)?
    };
    let imported = ::import::import(&objects, &options)?;
    let is_refused = strict && imported.is_lossy();
    if !is_refused {
        print_foreign(&printed(&imported, output)?)?;
    }
    for line in &imported.lines {
        hint(&line.to_string());
    }
    hint(&imported.summary);
    Ok(if is_refused { Exit::Lossy } else { Exit::Done })
}

/// Returns the objects as one text.
fn printed(imported: &Imported, output: PrintFormat) -> Result<String, CliError> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct List<'a> {
        api_version: &'static str,
        kind: &'static str,
        items: &'a [serde_yaml::Value],
    }
    if output == PrintFormat::Json {
        let list = List { api_version: "v1", kind: "List", items: &imported.objects };
        return Ok(json("the objects", &list)? + "\n");
    }
    imported.objects.iter().map(|object| output.document("an object", object)).collect()
}
