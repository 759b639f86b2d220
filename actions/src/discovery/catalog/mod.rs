//! Catalog of a server's tools: the text of the ConfigMap, and the list in the status.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use crds::{digest, hidden_text::hidden_text, json_schema, reason, tool_server::DiscoveredTool};

use super::{
    definitions::{Definitions, MAX_TOOLS, McpToolDefinition},
    status_size::limit_descriptions,
};

/// Most bytes of a server's definitions in its ConfigMap.
const MAX_BYTES: usize = 900 * 1024;
/// Longest description in the status, in characters.
const MAX_DESCRIPTION: usize = 256;
/// Longest name of a tool, in bytes; the protocol's own limit.
const MAX_NAME: usize = 128;

/// Tools of a server in the form in which they are stored. Equal tools in whatever order give the same bytes: canonical JSON,
/// sorted by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Catalog {
    /// Definitions as canonical JSON, sorted by name: of all that are listed, or of those that are used and fit into the ConfigMap.
    pub definitions: Arc<Definitions>,
    /// SHA-256 (hex) of their text.
    pub digest: String,
    /// All tools, sorted by name.
    pub tools: Vec<DiscoveredTool>,
    /// Deviation from the server's list, if there is one: reason and sentence.
    pub problem: Option<(&'static str, String)>,
    /// Cause of hidden text in the definition of a tool, by its name.
    pub hidden: BTreeMap<String, String>,
}

/// Tool reduced to what a catalog needs: a text takes a fraction of the memory that its JSON values take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactTool {
    name: String,
    description: String,
    definition: String,
    /// Reason why its schemas are not accepted.
    rejection: Option<String>,
    /// Cause of hidden text in its definition.
    hides: Option<String>,
}

impl From<&McpToolDefinition> for CompactTool {
    fn from(tool: &McpToolDefinition) -> Self {
        // Strings and JSON values under string keys: this cannot fail.
        let value = serde_json::to_value(tool).unwrap_or_default();
        let definition = digest::canonical_json(&value);
        let description = short_description(&tool.description);
        let schemas = [Some(&tool.input_schema), tool.output_schema.as_ref()];
        let unfit = schemas.into_iter().flatten().find_map(|schema| json_schema::evaluate_cost(schema).err());
        let hides = hidden_text(&value, definition.len());
        Self { name: tool.name.clone(), description, definition, rejection: unfit, hides }
    }
}

impl Catalog {
    /// Builds the catalog of a server's tools; `more` if the server has more than were taken.
    pub fn of(listed: impl IntoIterator<Item = CompactTool>, more: bool) -> Self {
        let (mut tools, mut refused) = (BTreeMap::<String, CompactTool>::new(), Vec::new());
        let mut unfit = Vec::new();
        for mut tool in listed {
            if let Some(why) = tool.rejection.take() {
                unfit.push(format!("{} ({why})", tool.name));
                continue;
            }
            let name = tool.name.clone();
            let is_name = (1..=MAX_NAME).contains(&name.len()) && !name.chars().any(char::is_control);
            match tools.entry(name) {
                Entry::Vacant(place) if is_name => {
                    place.insert(tool);
                }
                // Of several tools of one name the same one is kept in whatever order the server lists them.
                Entry::Occupied(mut known) => {
                    refused.push(tool.name.clone());
                    if tool.definition < known.get().definition {
                        known.insert(tool);
                    }
                }
                Entry::Vacant(_) => refused.push(tool.name),
            }
        }
        let (mut listed, mut texts, mut hidden) = (Vec::new(), Vec::new(), BTreeMap::new());
        for (name, tool) in &tools {
            let (description, digest) = (tool.description.clone(), digest::sha256_hex(tool.definition.as_bytes()));
            listed.push(DiscoveredTool { name: name.clone(), description, digest, ..DiscoveredTool::default() });
            texts.push((name.as_str(), tool.definition.as_str()));
            hidden.extend(tool.hides.iter().map(|what| (name.clone(), what.clone())));
        }
        limit_descriptions(&mut listed);
        let definitions = Definitions::join(texts);
        let digest = digest::sha256_hex(definitions.text().as_bytes());
        let problem = problem(more, &refused, &unfit);
        Self { definitions: Arc::new(definitions), digest, tools: listed, problem, hidden }
    }

    /// Reports whether all definitions fit into the ConfigMap.
    pub(super) fn fits(&self) -> bool {
        self.definitions.text().len() <= MAX_BYTES
    }

    /// Returns the catalog with these tools and definitions, each by its name and sorted, in place of those that the server lists.
    /// Only definitions that fit into the ConfigMap are in it, first those that are there already (`kept`): what a server adds takes
    /// no room from what is in use.
    pub(super) fn with_definitions(
        &self,
        mut tools: Vec<DiscoveredTool>,
        texts: Vec<(&str, &str)>,
        kept: Option<&Definitions>,
    ) -> Self {
        limit_descriptions(&mut tools);
        let (definitions, left_out) = join_fitting(texts, kept);
        let digest = digest::sha256_hex(definitions.text().as_bytes());
        let problem = too_large(&left_out).or_else(|| self.problem.clone());
        Self { definitions: Arc::new(definitions), digest, tools, problem, hidden: self.hidden.clone() }
    }
}

/// Returns the description of a tool as the status has it.
pub(super) fn short_description(description: &str) -> String {
    description.chars().take(MAX_DESCRIPTION).collect()
}

/// Joins definitions, each by its name, first those that are kept, and returns the names of those for which there is no room.
fn join_fitting<'a>(texts: Vec<(&'a str, &'a str)>, kept: Option<&Definitions>) -> (Definitions, Vec<&'a str>) {
    let (first, others): (Vec<_>, Vec<_>) =
        texts.into_iter().partition(|(name, _)| kept.is_some_and(|kept| kept.contains(name)));
    let (mut fitting, mut left_out, mut length) = (BTreeMap::new(), Vec::new(), 1);
    for (name, text) in first.into_iter().chain(others) {
        if length + text.len() + 1 > MAX_BYTES {
            left_out.push(name);
            continue;
        }
        length += text.len() + 1;
        fitting.insert(name, text);
    }
    left_out.sort_unstable();
    (Definitions::join(fitting), left_out)
}

/// Returns the problem that definitions are left out, if any is.
fn too_large(left_out: &[&str]) -> Option<(&'static str, String)> {
    let problem = || format!("more than 900 KiB of definitions: {} cannot be used", quote_names(left_out));
    (!left_out.is_empty()).then(|| ("DefinitionsTooLarge", problem()))
}

fn problem(more: bool, refused: &[String], unfit: &[String]) -> Option<(&'static str, String)> {
    if more {
        return Some((
            reason::TOO_MANY_TOOLS,
            format!("the server has more than {MAX_TOOLS} tools: the others are not known"),
        ));
    }
    if !unfit.is_empty() {
        return Some((
            "BadSchemas",
            format!("tools whose schema is not taken are left out: {}", quote_texts(unfit, 256)),
        ));
    }
    let what = "tools whose name is taken, empty, longer than 128 bytes or no text are left out";
    (!refused.is_empty()).then(|| ("BadNames", format!("{what}: {}", quote_names(refused))))
}

/// Joins the first few names, quoted.
fn quote_names(names: &[impl AsRef<str>]) -> String {
    quote_texts(names, 64)
}

/// Joins the first few texts, quoted, each cut to `most` bytes.
fn quote_texts(names: &[impl AsRef<str>], most: usize) -> String {
    const FEW: usize = 5;
    let first =
        names.iter().map(AsRef::as_ref).take(FEW).map(|name| format!("{:?}", &name[..name.floor_char_boundary(most)]));
    let rest = names.len().saturating_sub(FEW);
    let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    first.collect::<Vec<_>>().join(", ") + &more
}

#[cfg(test)]
mod tests;
