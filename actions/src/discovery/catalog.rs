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
mod tests {
    use serde_json::json;

    use super::*;
    use crate::discovery::status_size::{MAX_DESCRIPTIONS, stored_size};

    fn tool(name: &str, description: &str) -> McpToolDefinition {
        let input_schema = json!({"type": "object", "properties": {"b": {}, "a": {}}});
        McpToolDefinition { name: name.into(), description: description.into(), input_schema, output_schema: None }
    }

    fn catalogue(tools: Vec<McpToolDefinition>) -> Catalog {
        Catalog::of(tools.iter().map(CompactTool::from), false)
    }

    #[test]
    fn equal_tools_in_another_order_are_the_same_bytes() {
        let one = catalogue(vec![tool("b", "B"), tool("a", "A")]);
        assert_eq!(one, catalogue(vec![tool("a", "A"), tool("b", "B")]));
        let expected =
            r#"[{"description":"A","inputSchema":{"properties":{"a":{},"b":{}},"type":"object"},"name":"a"},"#;
        assert!(one.definitions.text().starts_with(expected), "{:?}", one.definitions.text());
        assert_eq!((one.tools[0].name.as_str(), one.problem), ("a", None));
    }

    #[test]
    fn a_schema_that_is_nested_deeply_is_kept_as_it_is() {
        let schema = (0..100).fold(json!({"type": "string"}), |schema, _| json!({ "items": schema }));
        let nested = McpToolDefinition { input_schema: schema, ..tool("a", "") };
        let kept = Definitions::read(catalogue(vec![nested.clone()]).definitions.text());
        assert_eq!(kept.get("a"), Some(nested));
    }

    #[test]
    fn a_tool_whose_schema_would_keep_a_runner_busy_for_ever_is_left_out_and_named() {
        let level = |n: usize| {
            let next = json!({ "$ref": format!("#/$defs/a{}", n + 1) });
            (format!("a{n}"), json!({ "anyOf": [next, next] }))
        };
        let defs: serde_json::Map<_, _> = (0..60).map(level).chain([("a60".into(), json!({}))]).collect();
        let endless =
            McpToolDefinition { input_schema: json!({ "$ref": "#/$defs/a0", "$defs": defs }), ..tool("a", "") };
        let remote = McpToolDefinition { output_schema: Some(json!({ "$ref": "https://x/s.json" })), ..tool("b", "") };
        let one = catalogue(vec![endless, remote, tool("c", "")]);
        assert_eq!(one.tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["c"]);
        let (reason, message) = one.problem.unwrap();
        assert_eq!(reason, "BadSchemas");
        assert!(message.contains("\"a (a check of it has more than 10000 branches)\", \"b (it refers"), "{message}");
    }

    #[test]
    fn a_description_is_cut_to_256_characters_in_the_status_alone() {
        let one = catalogue(vec![tool("a", &"ä".repeat(300))]);
        assert_eq!(one.tools[0].description.chars().count(), 256);
        assert!(one.definitions.text().contains(&"ä".repeat(300)));
    }

    #[test]
    fn what_does_not_fit_is_listed_and_named_but_not_kept() {
        let large = |name| tool(name, &"x".repeat(400 * 1024));
        let all = catalogue(vec![large("a"), large("b"), large("c"), tool("d", "")]);
        let listed = &all.definitions;
        let texts: Vec<_> = listed.names().map(|name| (name, listed.text_of(name).unwrap())).collect();
        assert_eq!((texts.len(), all.fits()), (4, false));
        let one = all.with_definitions(all.tools.clone(), texts.clone(), None);
        let names: Vec<_> = one.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c", "d"]);
        assert!(one.fits() && one.definitions.contains("d"));
        let (reason, message) = one.problem.unwrap();
        assert_eq!(reason, "DefinitionsTooLarge");
        assert!(message.contains("\"c\"") && !message.contains("\"a\""), "{message}");

        let kept = Definitions::join(texts[1..3].iter().copied());
        let next = all.with_definitions(all.tools.clone(), texts, Some(&kept));
        assert_eq!(next.definitions.names().collect::<Vec<_>>(), ["b", "c", "d"], "what is kept goes first");
    }

    #[test]
    fn a_thousand_long_descriptions_leave_a_status_that_can_be_stored() {
        let tools = (0..1000).map(|n| tool(&format!("{n}{}", "n".repeat(120)), &"€".repeat(400))).collect();
        let one = catalogue(tools);
        let bytes = serde_json::to_string(&one.tools).unwrap().len();
        assert!(bytes < 700 * 1024, "{bytes}");
        assert_eq!(one.tools.len(), 1000);
        let tools = (0..1000).map(|n| tool(&n.to_string(), &"<".repeat(300))).collect();
        let described: usize = catalogue(tools).tools.iter().map(|tool| stored_size(&tool.description)).sum();
        assert!(described <= MAX_DESCRIPTIONS, "{described}");
    }

    #[test]
    fn what_hides_text_is_named_wherever_it_stands() {
        let in_schema = json!({"type": "object", "properties": {"a": {"description": "A file.\u{202e}"}}});
        let one = catalogue(vec![
            tool("plain", "Adds."),
            tool("hides", "Adds.\u{200b}"),
            tool("orders", "Adds.\u{1b}[2J"),
            tool("long", &"x".repeat(21 * 1024)),
            McpToolDefinition { input_schema: in_schema, ..tool("schema", "") },
        ]);
        let hidden: Vec<_> = one.hidden.iter().map(|(name, what)| format!("{name} {what}")).collect();
        let expected = [
            "hides has the invisible character U+200B",
            "long is longer than 20 KiB",
            "orders has the control character U+001B",
            "schema has the bidirectional character U+202E",
        ];
        assert_eq!(hidden, expected);
        assert_eq!(one.tools.len(), 5, "they are listed all the same");
    }

    #[test]
    fn the_digest_of_a_definition_is_that_of_its_canonical_json() {
        let one = catalogue(vec![tool("a", "A")]);
        let text = r#"{"description":"A","inputSchema":{"properties":{"a":{},"b":{}},"type":"object"},"name":"a"}"#;
        assert_eq!(one.tools[0].digest, digest::sha256_hex(text.as_bytes()));
    }

    #[test]
    fn names_that_are_none_are_left_out_and_said() {
        let one = catalogue(vec![tool("a", ""), tool("a", "again"), tool("", ""), tool(&"n".repeat(129), "")]);
        assert_eq!(one.tools.len(), 1);
        assert_eq!(one.problem.unwrap().0, "BadNames");
        let twice = |one: &str, other: &str| catalogue(vec![tool("a", one), tool("a", other)]);
        assert_eq!(twice("x", "y").digest, twice("y", "x").digest);
    }
}
