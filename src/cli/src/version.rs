//! `recif version`: versions of this program, of the installed parts and of the CustomResourceDefinitions.

use serde_json::{Value, json};

use crate::{
    doctor::{InstalledVersion, installed_versions},
    error::CliError,
    exit::Exit,
    output::{PrintFormat, print_foreign},
    target::{ConnectArgs, SystemArgs},
};

/// Flags of `recif version`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The version of a part is the tag of its image, or that of its label. `recif --version` prints that of \
                  this program, without a cluster."
)]
pub struct VersionArgs {
    #[command(flatten)]
    connection: ConnectArgs,
    #[command(flatten)]
    system: SystemArgs,
    /// How to print it
    #[arg(short, long, value_parser = PrintFormat::parser(PrintFormat::TEXT_FORMATS), default_value = "plain")]
    output: PrintFormat,
}

/// Reads and prints the versions; without a cluster that of this program, and the reason.
pub(super) async fn run(args: VersionArgs) -> Result<Exit, CliError> {
    let VersionArgs { connection, system, output } = args;
    let client = ("client", InstalledVersion::Known(env!("CARGO_PKG_VERSION").to_owned()));
    let read = async { installed_versions(&connection.connect().await?, &system.system_namespace).await };
    let (parts, failed) = match read.await {
        Ok(parts) => (parts, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let versions: Vec<_> = [client].into_iter().chain(parts).collect();
    match output {
        PrintFormat::Json | PrintFormat::Yaml => {
            print_foreign(&output.document("the versions", &document(&versions))?)?
        }
        _ => print_foreign(&text(&versions))?,
    }
    failed.map_or(Ok(Exit::Done), Err)
}

fn text(versions: &[(&'static str, InstalledVersion)]) -> String {
    versions.iter().map(|(part, version)| format!("{:<14} {version}\n", format!("{part}:"))).collect()
}

/// Returns the versions for programs; one that is not known is null.
fn document(versions: &[(&'static str, InstalledVersion)]) -> Value {
    let fields = versions.iter().map(|(part, version)| {
        let key = if *part == "control plane" { "controlPlane" } else { part };
        let value = match version {
            InstalledVersion::Known(version) => json!(version),
            InstalledVersion::Absent | InstalledVersion::Unknown(_) => Value::Null,
        };
        (key.to_owned(), value)
    });
    Value::Object(fields.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_told_to_people_and_null_for_programs() {
        let versions = [
            ("client", InstalledVersion::Known("0.4.0".into())),
            ("gateway", InstalledVersion::Absent),
            ("control plane", InstalledVersion::Unknown("you may not get deployments".into())),
        ];
        assert_eq!(
            text(&versions),
            "client:        0.4.0\ngateway:       not installed\ncontrol plane: unknown, you may not get deployments\n"
        );
        assert_eq!(document(&versions), json!({ "client": "0.4.0", "gateway": null, "controlPlane": null }));
    }
}
