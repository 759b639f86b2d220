//! `recif machine`: prints the state machine of a kind, from the same table by which the operator checks every move.

use actions::kind::ControlledKind;
use std::fmt::Write;

use crds::ApiKind;
use machine::{Edge, EdgeFrom, EdgeOwner};
use meta::{Phase, PhaseClass};
use serde_json::{Value, json};

use crate::{
    error::CliError,
    exit::Exit,
    output::{PrintFormat, print},
    target::find_kind,
};

/// Flags of `recif machine`.
#[derive(Debug, clap::Args)]
#[command(after_help = "The plain text is Mermaid: put it into a ```mermaid block, or into https://mermaid.live.")]
pub struct MachineArgs {
    /// The kind, its plural or its short name
    #[arg(value_name = "KIND")]
    kind: String,
    /// How to print it: as a diagram, or as data
    #[arg(short, long, value_parser = PrintFormat::parser(PrintFormat::TEXT_FORMATS), default_value = "plain")]
    output: PrintFormat,
}

/// Prints the diagram.
pub(super) fn run(args: &MachineArgs) -> Result<Exit, CliError> {
    let kind = find_kind(&args.kind)?;
    match args.output {
        PrintFormat::Json | PrintFormat::Yaml => print(&args.output.document("the machine", &data(kind))?)?,
        _ => print(&diagram(kind))?,
    }
    Ok(Exit::Done)
}

/// Returns the phases and edges of a kind, in the format of the control plane's `/v1/machines`.
fn data(kind: &ApiKind) -> Value {
    let edges = edge_rows(kind.name);
    json!({ "kind": kind.name, "phases": kind.role.phases(), "edges": edges })
}

macro_rules! edges_by_kind {
    ($($kind:ident $module:ident $plural:literal $short:literal $role:ident $children:ident $($rank:literal)?;)+) => {
        fn edge_rows(kind: &str) -> Vec<Value> {
            match kind {
                $(stringify!($kind) => rows(<crds::$module::$kind as ControlledKind>::TABLE.edges),)+
                _ => Vec::new(),
            }
        }

        fn edge_diagram(kind: &str) -> String {
            match kind {
                $(stringify!($kind) => mermaid(<crds::$module::$kind as ControlledKind>::TABLE.edges),)+
                _ => String::new(),
            }
        }
    };
}
crds::for_each_kind!(edges_by_kind);

fn rows<P: Phase>(edges: &[Edge<P>]) -> Vec<Value> {
    let from = |at| match at {
        EdgeFrom::Nothing => "",
        EdgeFrom::In(phase) => P::as_str(phase),
        EdgeFrom::Any => "*",
    };
    let row = |edge: &Edge<P>| json!({ "from": from(edge.from), "to": edge.to.as_str(), "by": edge.by.as_str(), "why": edge.why });
    edges.iter().map(row).collect()
}

/// Returns the diagram of a kind.
pub fn diagram(kind: &ApiKind) -> String {
    edge_diagram(kind.name)
}

/// Returns a table of edges as a Mermaid `stateDiagram-v2`, in the order of the table.
///
/// A move that several phases share is drawn once, from a box that names them: an arrow from each would hide the rest.
pub fn mermaid<P: Phase>(edges: &[Edge<P>]) -> String {
    let mut boxes = String::new();
    let mut arrows = String::new();
    let mut drawn: Vec<(P, EdgeOwner, &str)> = Vec::new();
    for edge in edges {
        let alike: Vec<_> = edges.iter().filter(|other| same_move(edge, other)).collect();
        let from = match edge.from {
            EdgeFrom::Nothing => "[*]".to_owned(),
            EdgeFrom::In(phase) if alike.len() < MANY => phase.to_string(),
            EdgeFrom::In(_) if drawn.contains(&(edge.to, edge.by, edge.why)) => continue,
            EdgeFrom::In(_) => {
                drawn.push((edge.to, edge.by, edge.why));
                let phases: Vec<_> = alike.iter().filter_map(|edge| phase(edge.from)).collect();
                add_box(&mut boxes, &edge.by.as_str().to_lowercase(), &phases.join(", "))
            }
            EdgeFrom::Any => {
                let but = P::TERMINATING.map(|phase| format!(" but {phase}")).unwrap_or_default();
                add_box(&mut boxes, "any", &format!("any phase{but}"))
            }
        };
        let _ = writeln!(arrows, "    {from} --> {}: {}", edge.to, label(edge.by.as_str(), edge.why));
    }
    for phase in P::ALL.iter().filter(|phase| phase.class() == PhaseClass::Terminating) {
        let _ = writeln!(arrows, "    {phase} --> [*]");
    }
    format!("stateDiagram-v2\n{boxes}{arrows}")
}

/// Number of phases from which on equal moves are drawn as one.
const MANY: usize = 3;

/// Reports whether two edges differ only in the phase from which they start.
fn same_move<P: Phase>(one: &Edge<P>, other: &Edge<P>) -> bool {
    phase(other.from).is_some() && (one.to, one.by, one.why) == (other.to, other.by, other.why)
}

fn phase<P: Phase>(at: EdgeFrom<P>) -> Option<&'static str> {
    match at {
        EdgeFrom::In(phase) => Some(phase.as_str()),
        EdgeFrom::Nothing | EdgeFrom::Any => None,
    }
}

/// Adds a box unless it exists; returns its id.
fn add_box(boxes: &mut String, id: &str, title: &str) -> String {
    let line = format!("    state \"{title}\" as {id}\n");
    if !boxes.contains(&line) {
        boxes.push_str(&line);
    }
    id.to_owned()
}

/// Returns the label of an edge: its action or rule, and its condition. A colon or semicolon would end the label.
fn label(by: &str, why: &str) -> String {
    let why = why.replace([':', ';'], ",");
    if why.is_empty() { by.to_owned() } else { format!("{by} – {why}") }
}

#[cfg(test)]
mod tests {
    use crds::WorkloadPhase::{self, Failed, Pending, Rendering, Resolving, Terminating};
    use machine::Rule;

    use super::*;

    const TABLE: &[Edge<WorkloadPhase>] = &[
        Edge::rule(EdgeFrom::Nothing, Pending, Rule::Admit, "first sight"),
        Edge::new(Pending, Resolving, "accept", "valid; or so: it seems"),
        Edge::rule(EdgeFrom::In(Pending), Failed, Rule::Fail, ""),
        Edge::rule(EdgeFrom::In(Resolving), Failed, Rule::Fail, ""),
        Edge::rule(EdgeFrom::In(Rendering), Failed, Rule::Fail, ""),
        Edge::rule(EdgeFrom::Any, Pending, Rule::SpecChanged, "the spec changed"),
        Edge::rule(EdgeFrom::Any, Terminating, Rule::Delete, "deletionTimestamp set"),
    ];

    #[test]
    fn the_data_is_the_table() {
        let data = data(ApiKind::find("agent").unwrap());
        assert_eq!(data["phases"][0], "Pending");
        let edges = data["edges"].as_array().unwrap();
        assert_eq!(edges.len(), actions::workload::EDGES.len());
        assert_eq!(
            (&edges[0]["from"], &edges[0]["to"], &edges[0]["by"]),
            (&json!(""), &json!("Pending"), &json!("Admit"))
        );
    }

    #[test]
    fn a_table_reads_as_a_diagram() {
        let expected = "stateDiagram-v2
    state \"Pending, Resolving, Rendering\" as fail
    state \"any phase but Terminating\" as any
    [*] --> Pending: Admit – first sight
    Pending --> Resolving: accept – valid, or so, it seems
    fail --> Failed: Fail
    any --> Pending: SpecChanged – the spec changed
    any --> Terminating: Delete – deletionTimestamp set
    Terminating --> [*]
";
        assert_eq!(mermaid(TABLE), expected);
    }
}
