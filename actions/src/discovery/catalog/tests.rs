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
    let expected = r#"[{"description":"A","inputSchema":{"properties":{"a":{},"b":{}},"type":"object"},"name":"a"},"#;
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
    let endless = McpToolDefinition { input_schema: json!({ "$ref": "#/$defs/a0", "$defs": defs }), ..tool("a", "") };
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
