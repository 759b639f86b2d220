//! Tests the environment of an agent: each variable, its value, and the object that holds it.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{OPERATORS, agent, bare, config, config_with, settings, tool, with_tools};
use crate::render::{
    Namespaces, RenderError, RenderSettings, ToolSlot, agent_config, agent_config_children, agent_workload_children,
    env::check_sizes,
};

const OWN: &str = "postgres://u:p@db/r";
const OWN_EXPANDED: &str = "postgres://u:p@db.default.svc.cluster.local/r";
const OPERATORS_EXPANDED: &str =
    "postgres://recif:recif_dev@recif-postgresql.recif-system.svc.cluster.local:5432/recif?sslmode=disable";

#[test]
fn storage_is_what_the_spec_says_and_else_what_the_database_allows() {
    let (none, operators) = (bare(), RenderSettings { database_url: Some(OPERATORS.to_owned()), ..bare() });
    let missing = Err(RenderError::MissingDatabaseUrl);
    for (storage, own, settings, expected) in [
        (None, None, &none, Ok(("memory", None))),
        (None, None, &operators, Ok(("postgresql", Some(OPERATORS_EXPANDED)))),
        (None, Some(OWN), &none, Ok(("postgresql", Some(OWN_EXPANDED)))),
        (None, Some(OWN), &operators, Ok(("postgresql", Some(OWN_EXPANDED)))),
        (Some(""), None, &none, Ok(("memory", None))),
        (Some(""), None, &operators, Ok(("postgresql", Some(OPERATORS_EXPANDED)))),
        (Some(""), Some(""), &none, Ok(("memory", None))),
        (Some("memory"), None, &none, Ok(("memory", None))),
        (Some("memory"), None, &operators, Ok(("memory", None))),
        (Some("memory"), Some(OWN), &operators, Ok(("memory", Some(OWN_EXPANDED)))),
        (Some("postgresql"), None, &none, missing.clone()),
        (Some("postgresql"), Some(""), &none, missing),
        (Some("postgresql"), None, &operators, Ok(("postgresql", Some(OPERATORS_EXPANDED)))),
        (Some("postgresql"), Some(OWN), &none, Ok(("postgresql", Some(OWN_EXPANDED)))),
        (Some("later"), Some(OWN), &none, Err(RenderError::UnknownStorage("later".into()))),
    ] {
        let case = format!("storage {storage:?}, databaseUrl {own:?}, operator's {:?}", settings.database_url);
        let config = config(json!({ "storage": storage, "databaseUrl": own }), settings);
        let got = config.as_ref().map(|config| {
            (config.plain["CORAIL_STORAGE"].as_str(), config.secret.get("CORAIL_DATABASE_URL").map(String::as_str))
        });
        assert_eq!(got, expected.as_ref().copied(), "{case}");
    }
}

#[test]
fn the_operators_database_is_inherited_where_it_is_said_to_be() {
    let only = |names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        RenderSettings { database_namespaces: Namespaces::These(names), ..settings() }
    };
    let spec = || json!({ "knowledgeBases": ["docs"] });
    assert_eq!(config(spec(), &only(&["default"])), config(spec(), &settings()));
    let elsewhere = config(spec(), &only(&["team-a"])).unwrap();
    assert_eq!((elsewhere.plain["CORAIL_STORAGE"].as_str(), elsewhere.secret.len()), ("memory", 0));
    assert!(elsewhere.knowledge_bases_missing_dsn);
    let refused = config(json!({ "storage": "postgresql" }), &only(&[])).unwrap_err();
    assert!(refused.to_string().contains("--database-namespaces"), "{refused}");
    let own = config(json!({ "databaseUrl": OWN }), &only(&[])).unwrap();
    assert_eq!(own.secret["CORAIL_DATABASE_URL"], OWN_EXPANDED);
}

#[test]
fn an_unreadable_database_names_its_field_and_hides_its_password() {
    let bad = "postgres://u:se/cret@db/r";
    let own = config(json!({ "databaseUrl": bad }), &bare()).unwrap_err();
    assert_eq!(own.reason(), "InvalidDatabaseUrl");
    assert!(own.to_string().starts_with("spec.databaseUrl: postgres://u:***@db/r "), "{own}");

    let operators = RenderSettings { database_url: Some(bad.to_owned()), ..bare() };
    for spec in [json!({}), json!({ "storage": "memory", "knowledgeBases": ["docs"] })] {
        let error = config(spec, &operators).unwrap_err().to_string();
        assert!(error.starts_with("DATABASE_URL of the operator: postgres://u:***@db/r "), "{error}");
    }
}

#[test]
fn an_empty_text_is_no_variable() {
    let plain = config(json!({ "systemPrompt": "", "backgroundModel": "" }), &bare()).unwrap().plain;
    let names: Vec<_> = plain.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "CORAIL_AGENT_NAME",
            "CORAIL_CHANNEL",
            "CORAIL_MODEL_ID",
            "CORAIL_MODEL_TYPE",
            "CORAIL_STORAGE",
            "CORAIL_STRATEGY"
        ]
    );
}

#[test]
fn knowledge_bases_need_the_operators_database_and_not_the_agents() {
    let spec = json!({ "knowledgeBases": ["docs"], "databaseUrl": OWN });
    let without = config(spec.clone(), &bare()).unwrap();
    assert!(without.knowledge_bases_missing_dsn);
    assert!(!without.secret.contains_key("CORAIL_KNOWLEDGE_BASES"));

    let with = config(spec, &settings()).unwrap();
    assert!(!with.knowledge_bases_missing_dsn);
    let rendered: Value = serde_json::from_str(&with.secret["CORAIL_KNOWLEDGE_BASES"]).unwrap();
    assert_eq!(
        rendered,
        json!([{
            "name": "docs",
            "type": "pgvector",
            "connection_url": "postgresql://recif:recif_dev@recif-postgresql.recif-system.svc.cluster.local:5432/corail_storage",
            "kb_id": "docs",
            "description": "Search for information in the docs knowledge base.",
            "embedding_provider": "ollama",
            "embedding_model": "nomic-embed-text",
        }])
    );
    assert!(!config(json!({}), &bare()).unwrap().knowledge_bases_missing_dsn);
}

#[test]
fn tools_are_secret_exactly_when_one_that_is_rendered_has_headers() {
    let plain = tool("a", json!({ "endpoint": "http://a" }));
    let with = tool("b", json!({ "endpoint": "http://b", "headers": { "Authorization": "Bearer x" } }));
    let disabled = tool("c", json!({ "headers": { "Authorization": "Bearer x" }, "enabled": false }));

    let config = config_with(&[plain.clone(), disabled.clone()]);
    assert!(config.plain.contains_key("CORAIL_TOOLS") && config.secret.is_empty());
    let config = config_with(&[plain, with]);
    assert!(config.secret.contains_key("CORAIL_TOOLS") && !config.plain.contains_key("CORAIL_TOOLS"));
    let config = config_with(&[disabled]);
    assert!(!config.plain.contains_key("CORAIL_TOOLS") && config.secret.is_empty());
}

#[test]
fn an_env_name_of_ours_is_refused() {
    for (name, port, taken) in [
        ("CORAIL_CHANNEL", 8000, true),
        ("CORAIL_DATABASE_URL", 8000, true),
        ("OLLAMA_BASE_URL", 8000, true),
        ("CORAIL_PORT", 9000, true),
        ("CORAIL_PORT", 8000, false),
        ("CORAIL_SYSTEM_PROMPT", 8000, false),
        ("CORAIL_LOG_LEVEL", 8000, false),
    ] {
        let spec = json!({ "port": port, "env": [{ "name": name, "value": "x" }] });
        let error = config(spec, &settings()).err();
        let expected =
            taken.then(|| RenderError::EnvReserved { field: "spec.env", kind: "agent", name: name.to_owned() });
        assert_eq!(error, expected, "{name} with port {port}");
    }
}

#[test]
fn a_variable_that_comes_twice_is_refused() {
    let env = json!([{ "name": "A", "value": "1" }, { "name": "A", "value": "2" }]);
    assert_eq!(config(json!({ "env": env }), &bare()), Err(RenderError::DuplicateEnv("A".to_owned())));
}

#[test]
fn what_linux_would_not_take_is_refused_with_its_size() {
    // NAME=value and a NUL.
    let room = 128 * 1024 - "CORAIL_SYSTEM_PROMPT=".len() - 1;
    assert!(config(json!({ "systemPrompt": "x".repeat(room) }), &bare()).is_ok());
    let error = config(json!({ "systemPrompt": "x".repeat(room + 1) }), &bare()).unwrap_err();
    assert_eq!(error.reason(), "InvalidSpec");
    assert_eq!(
        error.to_string(),
        "environment variable CORAIL_SYSTEM_PROMPT has 131073 bytes with its name, Linux takes 131072: make it shorter"
    );
    let env = json!([{ "name": "BIG", "value": "x".repeat(128 * 1024) }]);
    assert!(
        matches!(config(json!({ "env": env }), &bare()), Err(RenderError::EnvTooLarge { name, .. }) if name == "BIG")
    );
}

#[test]
fn what_the_api_server_would_not_store_is_refused_with_its_size() {
    let variables = |count: usize| (0..count).map(|n| (format!("V{n}"), "x".repeat(128 * 1000))).collect();
    let (few, many, none) = (variables(8), variables(9), BTreeMap::new());
    let agent = agent(json!({}));
    assert_eq!(check_sizes(&agent, &few, &few), Ok(()));
    for (error, object) in [
        (check_sizes(&agent, &many, &none), "ConfigMap/my-agent-config"),
        (check_sizes(&agent, &none, &many), "Secret/my-agent-config"),
    ] {
        let error = error.unwrap_err();
        assert_eq!(error.reason(), "InvalidSpec");
        let begin = format!("{object} would hold 1152000 bytes, Kubernetes takes 1048576: ");
        assert!(error.to_string().starts_with(&begin), "{error}");
    }
}

proptest! {
    #[test]
    fn no_credential_ever_stands_outside_the_secret(
        password in "Zq[A-Za-z0-9]{6,20}",
        own in any::<bool>(),
        storage in prop::option::of("memory|postgresql|"),
        in_parameter in any::<bool>(),
    ) {
        let dsn = if in_parameter {
            format!("postgres://u@db/r?password={password}")
        } else {
            format!("postgres://u:{password}@db/r")
        };
        let settings = RenderSettings {
            database_url: Some(dsn.clone()),
            ollama_base_url: Some(format!("http://u:{password}@ollama:11434")),
            ..bare()
        };
        let agent = agent(json!({
            "databaseUrl": own.then_some(dsn),
            "storage": storage,
            "knowledgeBases": ["docs"],
        }));
        let tool = tool("t", json!({ "endpoint": "http://t", "headers": { "X-Key": password } }));
        let slots = [ToolSlot::Object(&tool)];
        let config = agent_config(&agent, &with_tools(&slots), &settings).unwrap();
        prop_assert!(config.secret.values().all(|value| value.contains(&password)));

        let mut children = agent_config_children(&agent, &config);
        children.extend(agent_workload_children(&agent, &config, super::images(&agent, "proxy".into()), None).unwrap());
        for child in children {
            prop_assert!(!child.body.to_string().contains(&password), "{}", child.child);
        }
    }
}
