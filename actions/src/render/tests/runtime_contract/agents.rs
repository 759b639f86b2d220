//! Compares the variables of an agent, and the keys of its tools.

use std::collections::{BTreeMap, BTreeSet};

use crds::PluginConfigSpec;
use serde_json::{Value, json};

use super::{
    PAGE, PROXY, agent_container, code, fallback, general, keys, model, plugin, running, table, tools, variables,
};
use crate::render::{
    AgentParts, RenderSettings, ToolSlot, agent_config, agent_workload_children,
    sizes::MAX_VARIABLE,
    tests::{OPERATORS, agent, images, settings, tool},
};

#[test]
fn the_page_names_every_variable_of_an_agent_where_it_is_and_no_other() {
    let rows = table("### Variables", "");
    let mut documented = BTreeMap::new();
    for row in &rows {
        for name in code(row[0]) {
            documented.insert(name.to_owned(), row[1]);
        }
    }
    let (tools, model, plugin) = (tools(), model(), plugin());
    let fallbacks = [fallback()];
    let slots: Vec<_> = tools.iter().map(ToolSlot::Object).collect();
    let parts = AgentParts {
        tools: slots,
        model: Some((&model, &plugin)),
        fallbacks: &fallbacks,
        prompt: Some("Be brief."),
        ..AgentParts::default()
    };
    let full = agent(json!({
        "port": 9000, "backgroundModel": "openai:mini", "knowledgeBases": ["docs"], "databaseUrl": OPERATORS,
        "description": "Sells.", "modelRef": { "name": "m" }, "promptRef": { "name": "p" },
    }));
    let big = tool("big", json!({ "description": "x".repeat(MAX_VARIABLE) }));
    let oversized = AgentParts { tools: vec![ToolSlot::Object(&big)], ..parts.clone() };
    let azure: PluginConfigSpec = serde_json::from_value(json!({
        "type": "azure-openai", "extraConfig": { "endpoint": "https://a.openai.azure.com", "apiVersion": "2024-10-21" },
        "credentialsRef": { "name": "keys" }, "credentialKeys": ["AZURE_OPENAI_API_KEY"],
    }))
    .unwrap();
    let at_azure = AgentParts { model: Some((&model, &azure)), ..parts.clone() };
    let mut rendered = BTreeSet::new();
    for parts in [&parts, &oversized, &at_azure] {
        let config = agent_config(&full, parts, &settings()).unwrap();
        let (container, _) = running(agent_workload_children(&full, &config, images(&full, PROXY), Some(1)).unwrap());
        let in_pod: BTreeSet<_> =
            variables(&container).into_iter().filter(|name| !name.ends_with("OPENAI_API_KEY")).collect();
        for (place, names) in [
            ("ConfigMap", config.plain.keys().cloned().collect::<BTreeSet<_>>()),
            ("Secret", config.secret.keys().cloned().collect()),
            ("Pod", in_pod),
        ] {
            for name in names.iter().map(|name| general(name)) {
                let told = documented.get(&name).unwrap_or_else(|| panic!("the page does not name {name}"));
                assert!(told.contains(place), "{name} comes by {place}, and the page says {told}");
                rendered.insert(name);
            }
        }
        let file = config.plain.get("CORAIL_TOOLS_FILE");
        assert!(file.is_none_or(|path| PAGE.contains(&format!("`{path}`"))), "{file:?}");
    }
    for name in documented.keys() {
        assert!(rendered.contains(name), "the page names {name}, which is not rendered");
    }
    // Without headers and with a user in the URL they change places, as the page says.
    let plain = agent_config(&full, &AgentParts { tools: vec![ToolSlot::Builtin("datetime")], ..parts }, &settings());
    assert!(plain.unwrap().plain.contains_key("CORAIL_TOOLS"));
    let with_user = RenderSettings { ollama_base_url: Some("http://u:p@ollama:1".to_owned()), ..settings() };
    let config = agent_config(&agent(json!({})), &AgentParts::default(), &with_user).unwrap();
    assert!(config.secret.contains_key("OLLAMA_BASE_URL"));
    let prompt = json!({ "systemPromptFrom": { "configMapKeyRef": { "name": "c", "key": "k" } } });
    assert!(variables(&agent_container(prompt).0).contains("CORAIL_SYSTEM_PROMPT"));
}

#[test]
fn the_page_names_every_key_of_a_tool_of_an_agent_and_no_other() {
    let rows = table("### Tools", "");
    let of = |type_: &str| {
        let row = rows.iter().find(|row| row[0].trim_matches('`') == type_).unwrap_or_else(|| panic!("no {type_}"));
        let text = row[1].split("{name, type").next().unwrap();
        let rest = row[1].split_once("default}").map_or("", |(_, rest)| &rest[1..]);
        let words: Vec<_> = code(text).into_iter().chain(code(rest)).collect();
        words
            .into_iter()
            .filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase()) && !["sse", "a2a"].contains(word))
            .map(str::to_owned)
            .collect::<BTreeSet<_>>()
    };
    let mut seen: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for tool in &tools() {
        let slot = match tool.spec.type_.as_str() {
            "flow" | "agent" => ToolSlot::Caller(tool, "http://w"),
            _ => ToolSlot::Object(tool),
        };
        let parts = AgentParts { tools: vec![slot], ..AgentParts::default() };
        let config = agent_config(&agent(json!({})), &parts, &settings()).unwrap();
        let text = config.plain.get("CORAIL_TOOLS").or(config.secret.get("CORAIL_TOOLS")).unwrap();
        let mut element: Value = serde_json::from_str(text).unwrap();
        seen.entry(tool.spec.type_.clone()).or_default().extend(keys(&element[0].take()));
    }
    let common = of("all");
    assert_eq!(rows.len(), seen.len() + 1, "a row for each type");
    for (type_, found) in seen {
        let own: BTreeSet<_> = found.difference(&common).cloned().collect();
        assert_eq!(own, of(&type_), "keys of a tool of type {type_}");
    }
}
