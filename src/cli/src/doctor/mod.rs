//! `recif doctor`: judges whether Récif works here, and before an install whether it would.
//!
//! Everything is read first, side by side; then each check is a pure function of what was read. It reads, and sends dry runs
//! and reviews; only `--pull` creates Pods, and removes them.

mod certificate;
mod check;
mod finding;
mod reading;
#[cfg(test)]
mod tests;

pub(crate) use reading::{InstalledVersion, installed_versions};

use finding::Report;
use reading::Scope;

use crate::{
    cluster::UserClient,
    error::CliError,
    exit::Exit,
    output::{PrintFormat, print_foreign},
    target::{ConnectArgs, SystemArgs, parse_timeout},
};

/// Flags of `recif doctor`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Before an install it judges whether one would work. Each line begins with ok, warn, fail or skip (not judged, \
                  often for lack of a right); a warning or failure ends with what to do. It reads, and sends reviews and \
                  dry runs; only --pull creates Pods, and removes them. Of a `recif dev` it judges what that has.\n\nExit code 3: a check failed; 5: you may read \
                  nothing; 6: there is no API server.\n\nExamples:\n  recif doctor\n  recif doctor -n team-a --strict\n  \
                  recif doctor --pull -o json"
)]
pub struct DoctorArgs {
    #[command(flatten)]
    connection: ConnectArgs,
    #[command(flatten)]
    system: SystemArgs,
    /// Pull each image with a Pod that prints its version, where and with the Secrets with which the image is used, for up to
    /// a minute
    #[arg(long)]
    pull: bool,
    /// Exit with 3 for a warning too
    #[arg(long)]
    strict: bool,
    /// How to print it
    #[arg(short, long, value_parser = PrintFormat::parser(PrintFormat::TEXT_FORMATS), default_value = "plain")]
    output: PrintFormat,
    /// Longest wait for each reading, such as 30s or 2m
    #[arg(long, default_value = "30s", value_name = "TIME")]
    timeout: String,
}

/// Reads, judges and prints.
pub(super) async fn run(args: DoctorArgs) -> Result<Exit, CliError> {
    let DoctorArgs { connection, system, pull, strict, output, timeout } = args;
    let timeout = parse_timeout(&timeout)?;
    let live = connection.connect().await?;
    let scope = Scope { namespace: live.namespace.clone(), system: system.system_namespace, pull, timeout };
    let report = examine(&live, scope).await?;
    match output {
        PrintFormat::Json | PrintFormat::Yaml => print_foreign(&output.document("the findings", &report)?)?,
        _ => print_foreign(&report.text())?,
    }
    Ok(report.exit(strict))
}

/// Returns the findings.
///
/// # Errors
/// As [`reading::read`].
async fn examine(live: &UserClient, scope: Scope) -> Result<Report, CliError> {
    if let Some(dev) = &live.dev {
        let readings = reading::read_local(live, dev, &scope).await?;
        return Ok(Report::new(&scope.namespace, &scope.system, check::all_local(&readings, &scope.system)));
    }
    let readings = reading::read(live, scope).await?;
    let findings = check::all(&readings);
    Ok(Report::new(&readings.scope.namespace, &readings.scope.system, findings))
}
