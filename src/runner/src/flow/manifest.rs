//! Manifest of a set of flows: `manifest.json`, `{"flows":[{"name","entrypoint","dir"}]}`.
//!
//! An invalid entry affects only its own flow, as long as it has a name, under which the flow reports its problem.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    folder::{Folder, is_name, line_after},
    problem::FlowProblem,
};

/// Name of the file.
pub(crate) const MANIFEST: &str = "manifest.json";

#[derive(Deserialize)]
#[serde(expecting = "struct Manifest")]
struct FlowManifest<'a> {
    #[serde(borrow)]
    flows: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(expecting = "struct Entry")]
struct ManifestEntry {
    name: String,
    entrypoint: Option<String>,
    dir: Option<String>,
}

/// Location of a flow's files.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FlowLocation {
    /// Path of the folder, relative to the contract's.
    pub(super) folder: String,
    /// Name of the entry prompt; when unset, that of the flow's `config.json`.
    pub(super) entrypoint: Option<String>,
}

/// Flows by name, in the manifest's order: the location of each, or the reasons why it cannot be served.
pub(super) type Flows = Vec<(String, Result<FlowLocation, Vec<FlowProblem>>)>;

/// Reads the manifest.
///
/// # Errors
/// Not even the names of the flows can be read.
pub(super) fn read(contract: &Folder) -> Result<Flows, Vec<FlowProblem>> {
    let text = contract.read(MANIFEST).map_err(|problem| vec![problem])?;
    parse(contract, &text)
}

fn parse(contract: &Folder, text: &str) -> Result<Flows, Vec<FlowProblem>> {
    let manifest: FlowManifest =
        serde_json::from_str(text).map_err(|error| vec![FlowProblem::json(MANIFEST, &error)])?;
    let mut entries: Vec<(usize, ManifestEntry)> = Vec::new();
    let mut problems = Vec::new();
    for raw in manifest.flows {
        // A raw value is a slice of the text, so its address gives its line.
        let line = line_after(&text.as_bytes()[..raw.get().as_ptr().addr() - text.as_ptr().addr()]);
        match serde_json::from_str::<ManifestEntry>(raw.get()) {
            Ok(entry) => entries.push((line, entry)),
            Err(error) => {
                let problem = FlowProblem::json(MANIFEST, &error);
                problems.push(FlowProblem { line: Some(line + problem.line.unwrap_or(1) - 1), ..problem });
            }
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    if entries.is_empty() {
        return Err(vec![FlowProblem::new(MANIFEST, "it has no flow; a set needs one")]);
    }

    let mut lines: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (line, entry) in &entries {
        lines.entry(&entry.name).or_default().push(*line);
    }
    let mut flows = Flows::new();
    for (line, entry) in &entries {
        if !flows.iter().any(|(name, _)| *name == entry.name) {
            let twice = lines.get(&*entry.name).filter(|lines| lines.len() > 1);
            flows.push((entry.name.clone(), locate(contract, *line, entry, twice.map(Vec::as_slice))));
        }
    }
    Ok(flows)
}

fn locate(
    contract: &Folder,
    line: usize,
    entry: &ManifestEntry,
    twice: Option<&[usize]>,
) -> Result<FlowLocation, Vec<FlowProblem>> {
    let name = &entry.name;
    let mut problems = Vec::new();
    let mut wrong = |text: String| problems.push(FlowProblem::at(MANIFEST, line, text));
    if !is_name(name) {
        wrong(format!("{name:?} cannot be a flow's name: use letters, digits and `-`"));
    }
    if RESERVED.contains(&name.as_str()) {
        wrong(format!("`{name}` is a route of the runtime's own; rename the flow"));
    }
    if let Some(lines) = twice {
        let lines = lines.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
        wrong(format!(
            "several flows are named `{name}` (lines {lines}); none of them is served until they are renamed"
        ));
    }
    let folder = match &entry.dir {
        // The name was validated above; an invalid one has been reported already.
        None => Some(format!("flows/{name}")),
        Some(dir) => contract.resolve("", dir),
    };
    if folder.is_none() {
        wrong(format!("the `dir` of `{name}` leads out of the contract's folder"));
    }
    match folder {
        Some(folder) if problems.is_empty() => Ok(FlowLocation { folder, entrypoint: entry.entrypoint.clone() }),
        _ => Err(problems),
    }
}

/// Names of the runtime's own routes in any of its modes, which no flow may have.
pub(super) const RESERVED: [&str; 5] = ["chat", "healthz", "metrics", "readyz", "v1"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::problem::join_problems;

    fn parsed(text: &str) -> Result<Flows, String> {
        parse(&Folder::new("/genkit"), text).map_err(|problems| join_problems(&problems))
    }

    #[test]
    fn a_bad_entry_costs_only_its_flow() {
        let text = r#"{"flows": [
            {"name": "a", "entrypoint": "p", "dir": "flows/a"},
            {"name": "b", "dir": "/genkit/flows/x"},
            {"name": "..", "dir": "flows/.."},
            {"name": "a/b"},
            {"name": "chat"},
            {"name": "out", "dir": "/etc"}, {"name": "twice"},
            {"name": "twice"}
        ]}"#;
        let flows = parsed(text).unwrap();
        let found = flows.iter().map(|(name, place)| match place {
            Ok(place) => (name.as_str(), format!("{} {:?}", place.folder, place.entrypoint)),
            Err(problems) => (name.as_str(), join_problems(problems)),
        });
        assert_eq!(
            found.collect::<Vec<_>>(),
            [
                ("a", r#"flows/a Some("p")"#.to_owned()),
                ("b", "flows/x None".into()),
                (
                    "..",
                    "manifest.json:4: \"..\" cannot be a flow's name: use letters, digits and `-`; manifest.json:4: the \
                     `dir` of `..` leads out of the contract's folder"
                        .into()
                ),
                ("a/b", "manifest.json:5: \"a/b\" cannot be a flow's name: use letters, digits and `-`".into()),
                ("chat", "manifest.json:6: `chat` is a route of the runtime's own; rename the flow".into()),
                ("out", "manifest.json:7: the `dir` of `out` leads out of the contract's folder".into()),
                (
                    "twice",
                    "manifest.json:7: several flows are named `twice` (lines 7 and 8); none of them is served until they \
                     are renamed"
                        .into()
                ),
            ]
        );
    }

    #[test]
    fn what_names_no_flow_is_a_problem_of_the_set() {
        for (text, problem) in [
            ("{", "manifest.json:1: EOF while parsing an object"),
            ("{\n\"flows\": 3}", "manifest.json:2: invalid type: integer `3`, expected a sequence"),
            ("{\"flows\": []}", "manifest.json: it has no flow; a set needs one"),
            (
                "{\"flows\": [\n{\"dir\": \"x\"},\n3]}",
                "manifest.json:2: missing field `name`; manifest.json:3: invalid type",
            ),
        ] {
            let found = parsed(text).unwrap_err();
            assert!(found.starts_with(problem), "{found}");
        }
    }
}
