//! What is kept of a server's tools: the text of the ConfigMap, and the list in the status.

use std::collections::{BTreeMap, btree_map::Entry};

use crds::{digest, tool_server::DiscoveredTool};

use super::{Discovered, MOST_TOOLS};

/// The most that the definitions of a server take in its ConfigMap, in bytes.
const MOST_BYTES: usize = 900 * 1024;
/// The most of a description that the status repeats, in characters; and of all names and descriptions, in bytes as they are
/// stored: an object that is much larger is more than the API server stores.
const DESCRIPTION: usize = 256;
const DESCRIPTIONS: usize = 384 * 1024;
/// The longest name of a tool, in bytes; the protocol's own limit.
const NAME: usize = 128;

/// A server's tools, ready to be kept. Equal tools in whatever order make the same bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Catalogue {
    /// The definitions as canonical JSON, sorted by name.
    pub text: String,
    /// SHA-256 (hex) of it.
    pub digest: String,
    /// Every tool, by name.
    pub tools: Vec<DiscoveredTool>,
    /// What is not as the server told it, if anything: reason and sentence.
    pub flaw: Option<(&'static str, String)>,
}

impl Catalogue {
    /// The tools of a server.
    pub fn of(found: &Discovered) -> Self {
        let (mut tools, mut refused) = (BTreeMap::new(), Vec::new());
        for tool in &found.tools {
            let is_name = (1..=NAME).contains(&tool.name.len()) && !tool.name.chars().any(char::is_control);
            // Texts and JSON values under text keys: this cannot fail.
            let definition = digest::canonical_json(&serde_json::to_value(tool).unwrap_or_default());
            match tools.entry(tool.name.as_str()) {
                Entry::Vacant(place) if is_name => {
                    place.insert((definition, tool));
                }
                // Of several the same one is kept in whatever order the server tells them.
                Entry::Occupied(mut known) if definition < known.get().0 => {
                    known.insert((definition, tool));
                    refused.push(tool.name.as_str());
                }
                _ => refused.push(tool.name.as_str()),
            }
        }
        let (mut text, mut listed, mut left_out) = ("[".to_owned(), Vec::new(), Vec::new());
        let mut described = 0;
        for (name, (definition, tool)) in tools {
            let mut description: String = tool.description.chars().take(DESCRIPTION).collect();
            described += stored(name) + stored(&description);
            if described > DESCRIPTIONS {
                description.clear();
            }
            let digest = digest::sha256_hex(definition.as_bytes());
            listed.push(DiscoveredTool { name: name.to_owned(), description, digest });
            if text.len() + definition.len() + 2 > MOST_BYTES {
                left_out.push(name);
                continue;
            }
            if text.len() > 1 {
                text.push(',');
            }
            text.push_str(&definition);
        }
        text.push(']');
        let digest = digest::sha256_hex(text.as_bytes());
        Self { text, digest, flaw: flaw(found.more, &left_out, &refused), tools: listed }
    }
}

/// The bytes that a text takes where objects are stored, as JSON with every character escaped that may be.
fn stored(text: &str) -> usize {
    let escaped = |c: char| c.is_control() || "<>&\"\\\u{2028}\u{2029}".contains(c);
    text.chars().map(|c| if escaped(c) { 6 } else { c.len_utf8() }).sum()
}

fn flaw(more: bool, left_out: &[&str], refused: &[&str]) -> Option<(&'static str, String)> {
    if !left_out.is_empty() {
        let names = some(left_out);
        return Some(("DefinitionsTooLarge", format!("more than 900 KiB of definitions: {names} cannot be used")));
    }
    if more {
        return Some((
            "TooManyTools",
            format!("the server has more than {MOST_TOOLS} tools: the others are not known"),
        ));
    }
    let what = "tools whose name is taken, empty, longer than 128 bytes or no text are left out";
    (!refused.is_empty()).then(|| ("BadNames", format!("{what}: {}", some(refused))))
}

/// The first few names.
fn some(names: &[&str]) -> String {
    const FEW: usize = 5;
    let first: Vec<_> =
        names.iter().take(FEW).map(|name| format!("{:?}", &name[..name.floor_char_boundary(64)])).collect();
    let rest = names.len().saturating_sub(FEW);
    let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    first.join(", ") + &more
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::discovery::Definition;

    fn tool(name: &str, description: &str) -> Definition {
        let input_schema = json!({"type": "object", "properties": {"b": {}, "a": {}}});
        Definition { name: name.into(), description: description.into(), input_schema, output_schema: None }
    }

    fn catalogue(tools: Vec<Definition>) -> Catalogue {
        Catalogue::of(&Discovered { tools, ..Discovered::default() })
    }

    #[test]
    fn equal_tools_in_another_order_are_the_same_bytes() {
        let one = catalogue(vec![tool("b", "B"), tool("a", "A")]);
        assert_eq!(one, catalogue(vec![tool("a", "A"), tool("b", "B")]));
        let expected =
            r#"[{"description":"A","inputSchema":{"properties":{"a":{},"b":{}},"type":"object"},"name":"a"},"#;
        assert!(one.text.starts_with(expected), "{}", one.text);
        assert_eq!((one.tools[0].name.as_str(), one.flaw), ("a", None));
    }

    #[test]
    fn a_description_is_cut_to_256_characters_in_the_status_alone() {
        let one = catalogue(vec![tool("a", &"ä".repeat(300))]);
        assert_eq!(one.tools[0].description.chars().count(), 256);
        assert!(one.text.contains(&"ä".repeat(300)));
    }

    #[test]
    fn what_does_not_fit_is_listed_and_named_but_not_kept() {
        let large = |name| tool(name, &"x".repeat(400 * 1024));
        let one = catalogue(vec![large("a"), large("b"), large("c"), tool("d", "")]);
        let names: Vec<_> = one.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c", "d"]);
        assert!(one.text.len() <= MOST_BYTES && one.text.contains(r#""name":"d""#));
        let (reason, message) = one.flaw.unwrap();
        assert_eq!(reason, "DefinitionsTooLarge");
        assert!(message.contains("\"c\"") && !message.contains("\"a\""), "{message}");
    }

    #[test]
    fn a_thousand_long_descriptions_leave_a_status_that_can_be_stored() {
        let tools = (0..1000).map(|n| tool(&format!("{n}{}", "n".repeat(120)), &"€".repeat(400))).collect();
        let one = catalogue(tools);
        let bytes = serde_json::to_string(&one.tools).unwrap().len();
        assert!(bytes < 700 * 1024, "{bytes}");
        assert_eq!(one.tools.len(), 1000);
        let tools = (0..1000).map(|n| tool(&n.to_string(), &"<".repeat(300))).collect();
        let described: usize = catalogue(tools).tools.iter().map(|tool| stored(&tool.description)).sum();
        assert!(described <= DESCRIPTIONS, "{described}");
    }

    #[test]
    fn names_that_are_none_are_left_out_and_said() {
        let one = catalogue(vec![tool("a", ""), tool("a", "again"), tool("", ""), tool(&"n".repeat(129), "")]);
        assert_eq!(one.tools.len(), 1);
        assert_eq!(one.flaw.unwrap().0, "BadNames");
        let twice = |one: &str, other: &str| catalogue(vec![tool("a", one), tool("a", other)]);
        assert_eq!(twice("x", "y").digest, twice("y", "x").digest);
    }
}
