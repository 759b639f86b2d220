//! `recif machine`: the state machine of a kind, drawn from the very table that the operator checks every move against.

use std::{fmt::Write, process::ExitCode};

use actions::machine::{At, Edge, Machine};
use crds::{Agent, Kind, Phase, Standing, Tool};

use super::{CliError, print, target::find_kind};

/// Flags of `recif machine`.
#[derive(Debug, clap::Args)]
#[command(after_help = "The text is Mermaid: put it into a ```mermaid block, or into https://mermaid.live.")]
pub struct MachineArgs {
    /// The kind, its plural or its short name
    kind: String,
}

/// Prints the diagram.
pub(super) fn run(args: &MachineArgs) -> Result<ExitCode, CliError> {
    let kind = find_kind(&args.kind)?;
    let text = diagram(kind).ok_or(CliError::NoMachine(kind.name))?;
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The diagram of a kind; `None` for one that this build does not run.
pub fn diagram(kind: &Kind) -> Option<String> {
    let text = match kind.name {
        Agent::KIND => mermaid(Agent::EDGES),
        Tool::KIND => mermaid(Tool::EDGES),
        _ => return None,
    };
    Some(text)
}

/// A table of edges as a Mermaid `stateDiagram-v2`, in the order of the table.
///
/// What may happen anywhere is drawn once, from a box of its own: as an arrow from each phase it would hide the rest.
pub fn mermaid<P: Phase>(edges: &[Edge<P>]) -> String {
    let mut text = String::from("stateDiagram-v2\n");
    if edges.iter().any(|edge| edge.from == At::Any) {
        let but = P::TERMINATING.map(|phase| format!(" but {phase}")).unwrap_or_default();
        let _ = writeln!(text, "    state \"any phase{but}\" as any");
    }
    for edge in edges {
        let from = match edge.from {
            At::Nothing => "[*]".to_owned(),
            At::Any => "any".to_owned(),
            At::In(phase) => phase.to_string(),
        };
        let _ = writeln!(text, "    {from} --> {}: {}", edge.to, label(edge.by.as_str(), edge.why));
    }
    for phase in P::ALL.iter().filter(|phase| phase.standing() == Standing::Terminating) {
        let _ = writeln!(text, "    {phase} --> [*]");
    }
    text
}

/// Who, and when. A colon or semicolon would end the label.
fn label(by: &str, why: &str) -> String {
    let why = why.replace([':', ';'], ",");
    if why.is_empty() { by.to_owned() } else { format!("{by} – {why}") }
}

#[cfg(test)]
mod tests {
    use actions::machine::Rule;
    use crds::WorkloadPhase::{self, Failed, Pending, Resolving, Terminating};

    use super::*;

    const TABLE: &[Edge<WorkloadPhase>] = &[
        Edge::rule(At::Nothing, Pending, Rule::Admit, "first sight"),
        Edge::new(Pending, Resolving, "accept", "valid; or so: it seems"),
        Edge::rule(At::In(Pending), Failed, Rule::Fail, ""),
        Edge::rule(At::Any, Terminating, Rule::Delete, "deletionTimestamp set"),
    ];

    #[test]
    fn a_table_reads_as_a_diagram() {
        let expected = "stateDiagram-v2
    state \"any phase but Terminating\" as any
    [*] --> Pending: Admit – first sight
    Pending --> Resolving: accept – valid, or so, it seems
    Pending --> Failed: Fail
    any --> Terminating: Delete – deletionTimestamp set
    Terminating --> [*]
";
        assert_eq!(mermaid(TABLE), expected);
    }

    #[test]
    fn every_kind_has_a_diagram() {
        for kind in crds::KINDS {
            assert!(diagram(kind).is_some(), "{}", kind.name);
        }
    }
}
