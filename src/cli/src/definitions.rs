//! `recif crds`: prints the CustomResourceDefinitions of this version, or writes them to files.

use std::{fs, path::PathBuf};

use crate::{error::CliError, exit::Exit, output::print};

/// Flags of `recif crds`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  recif crds | kubectl apply --server-side -f -")]
pub struct CrdsArgs {
    /// Write one file per kind into this folder instead of printing; it is made if need be
    #[arg(long, value_name = "DIR")]
    pub write: Option<PathBuf>,
}

/// Prints or writes the definitions.
pub(super) fn run(args: &CrdsArgs) -> Result<Exit, CliError> {
    let manifests = crds::manifests()
        .map_err(|error| CliError::Encode { what: "the CustomResourceDefinitions", why: error.to_string() })?;
    match &args.write {
        None => print(&stream(&manifests))?,
        Some(folder) => {
            fs::create_dir_all(folder).map_err(|source| CliError::Write { path: folder.clone(), source })?;
            for (name, yaml) in &manifests {
                let path = folder.join(name);
                fs::write(&path, yaml).map_err(|source| CliError::Write { path, source })?;
            }
        }
    }
    Ok(Exit::Done)
}

/// Returns all definitions as one YAML stream.
fn stream(manifests: &[(String, String)]) -> String {
    manifests.iter().map(|(_, yaml)| format!("---\n{}", yaml.trim_start_matches("---\n"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_holds_one_document_per_kind() {
        let manifests = crds::manifests().unwrap();
        let text = stream(&manifests);
        let documents: Vec<serde_yaml::Value> = text
            .split("---\n")
            .filter(|document| !document.is_empty())
            .map(|document| serde_yaml::from_str(document).unwrap())
            .collect();
        assert_eq!(documents.len(), crds::KINDS.len());
        for (document, kind) in documents.iter().zip(crds::KINDS) {
            assert_eq!(document["kind"], "CustomResourceDefinition");
            assert_eq!(document["spec"]["names"]["kind"], kind.name);
        }
    }
}
