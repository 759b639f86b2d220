//! Validation of environment variables.

use serde_json::json;

use crate::{
    config::RunnerConfig,
    variables::{ConfigError, help},
};

fn read(variables: &[(&str, &str)]) -> Result<RunnerConfig, ConfigError> {
    let variables: Vec<(String, String)> = variables.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
    RunnerConfig::read(&move |name: &str| {
        variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    })
}

#[test]
fn an_empty_environment_is_a_stub_on_port_8000() {
    for variables in [&[][..], &[("CORAIL_PORT", ""), ("CORAIL_TOOLS", ""), ("CORAIL_STORAGE", "")]] {
        let config = read(variables).unwrap();
        assert_eq!(
            (config.address.port(), config.model.provider.as_str(), config.model.id.as_str()),
            (8000, "stub", "stub-echo")
        );
        assert!(config.tools.is_empty() && config.warnings.is_empty() && config.system_prompt.is_none());
    }
}

#[test]
fn a_bad_value_is_named() {
    for (name, value, text) in [
        ("CORAIL_PORT", "http", r#"CORAIL_PORT="http" is refused: set it to a number from 1 to 65535"#),
        ("CORAIL_PORT", "0", r#"CORAIL_PORT="0" is refused: set it to a number from 1 to 65535"#),
        (
            "RECIF_ADDRESS",
            "localhost",
            r#"RECIF_ADDRESS="localhost" is refused: set it to an IP address such as `127.0.0.1`"#,
        ),
        ("RECIF_SIDECAR_PORT", "0", r#"RECIF_SIDECAR_PORT="0" is refused: set it to a number from 1 to 65535"#),
        (
            "RECIF_CLOSED_PORTS",
            "8780,",
            r#"RECIF_CLOSED_PORTS="8780," is refused: set it to numbers from 1 to 65535, separated by commas"#,
        ),
        ("CORAIL_STORAGE", "redis", r#"CORAIL_STORAGE="redis" is refused: set it to `memory` or `postgresql`"#),
        ("CORAIL_BACKGROUND_MODEL", "m", r#"CORAIL_BACKGROUND_MODEL="m" is refused: set it to `provider:model_id`"#),
        (
            "CORAIL_CONVERSATION_DAYS",
            "-1",
            r#"CORAIL_CONVERSATION_DAYS="-1" is refused: set it to a number of days from 0 to 36500"#,
        ),
        (
            "CORAIL_MODEL_TIMEOUT",
            "1m",
            r#"CORAIL_MODEL_TIMEOUT="1m" is refused: set it to a number of seconds from 1 to 3600"#,
        ),
        ("RECIF_LOG_FORMAT", "xml", r#"RECIF_LOG_FORMAT="xml" is refused: set it to `json` or `pretty`"#),
    ] {
        assert_eq!(read(&[(name, value)]).unwrap_err().to_string(), text);
    }
}

#[test]
fn it_listens_everywhere_or_at_one_address() {
    assert_eq!(read(&[]).unwrap().address.to_string(), "[::]:8000");
    let config =
        read(&[("RECIF_ADDRESS", "127.0.0.1"), ("CORAIL_PORT", "21005"), ("RECIF_CLOSED_PORTS", "8780, 44321")]);
    assert_eq!(config.unwrap().address.to_string(), "127.0.0.1:21005");
}

#[test]
fn a_model_comes_with_its_address_its_settings_and_the_names_of_its_credentials() {
    let config = read(&[
        ("CORAIL_MODEL_TYPE", "openai"),
        ("CORAIL_MODEL_ID", "gpt"),
        ("CORAIL_MODEL_BASE_URL", "http://llm/v1"),
        ("CORAIL_MODEL_REGION", "eu"),
        ("CORAIL_MODEL_EXTRA_CONFIG", r#"{"apiVersion":"2024-10-21"}"#),
        ("CORAIL_MODEL_CONFIG", r#"{"temperature":0.5}"#),
        ("CORAIL_MODEL_CREDENTIAL_KEYS", r#"["KEY"]"#),
        ("CORAIL_MODEL_HEADERS", r#"{"X-Team":"$MODEL_P_X_TEAM"}"#),
        ("CORAIL_MODEL_TLS", r#"{"ca":"$MODEL_P_TLS_CA","systemCAs":false}"#),
        ("CORAIL_MODEL_PASSTHROUGH", "true"),
        ("CORAIL_MODEL_TIMEOUT", "90"),
    ]);
    let model = config.unwrap().model;
    assert_eq!((model.provider.as_str(), model.id.as_str()), ("openai", "gpt"));
    assert_eq!((model.base_url.as_deref(), model.region.as_deref()), (Some("http://llm/v1"), Some("eu")));
    assert_eq!((&model.config["temperature"], &model.settings["apiVersion"]), (&json!(0.5), &json!("2024-10-21")));
    assert_eq!(model.credential_keys, ["KEY"]);
    assert_eq!(model.headers["X-Team"], "$MODEL_P_X_TEAM");
    assert_eq!((model.passthrough, model.timeout.unwrap().as_secs()), (true, 90));
    let trust = model.tls.unwrap().trust_by(|name| Ok(name.to_owned()));
    assert_eq!(trust, Ok(mcp::Trust::Only(b"MODEL_P_TLS_CA".to_vec())));
}

#[test]
fn a_value_that_may_hold_a_credential_is_never_shown() {
    for (name, value) in [
        ("CORAIL_DATABASE_URL", "mysql://u:SECRET@h/d"),
        ("CORAIL_DATABASE_URL", "SECRET"),
        ("CORAIL_TOOLS", r#"["SECRET"]"#),
        ("CORAIL_TOOLS", r#"{"SECRET"#),
        ("CORAIL_TOOLS", r#"[{"name":"t","type":"http","headers":{"a":["SECRET"]}}]"#),
        ("CORAIL_TOOLS", r#"[{"name":"t","type":"http","endpoint":"http://u:SECRET@{h}/"}]"#),
        ("CORAIL_TOOLS", r#"[{"name":"t","type":"http","timeout":"SECRET"}]"#),
        ("CORAIL_KNOWLEDGE_BASES", r#"["SECRET"]"#),
        ("CORAIL_MODEL_CONFIG", r#"["SECRET"]"#),
        ("CORAIL_MODEL_EXTRA_CONFIG", r#"["SECRET"]"#),
        ("CORAIL_MODEL_CREDENTIAL_KEYS", r#"{"a":"SECRET"}"#),
        ("CORAIL_MODEL_HEADERS", r#"["SECRET"]"#),
        ("CORAIL_MODEL_TLS", r#"["SECRET"]"#),
        ("CORAIL_MODEL_FALLBACKS", r#"[{"model":"SECRET"}]"#),
        ("CORAIL_KNOWLEDGE_BASES", r#"[{"name":"a","connection_url":"SECRET"}]"#),
    ] {
        let error = read(&[(name, value)]).unwrap_err();
        assert!(error.to_string().starts_with(name), "{error}");
        assert!(!format!("{error} {error:?}").contains("SECRET"), "{error}");
    }
    let tools = r#"[{"name":"t","type":"http","endpoint":"http://h/","headers":{"a":"SECRET"}}]"#;
    assert!(!format!("{:?}", read(&[("CORAIL_TOOLS", tools)]).unwrap()).contains("SECRET"));
}

#[test]
fn tools_are_read_of_a_file_in_place_of_the_variable() {
    let file = std::env::temp_dir().join(format!("recif-tools-{}.json", std::process::id()));
    let path = file.to_string_lossy().into_owned();
    std::fs::write(&file, r#"[{"name":"calculator","type":"builtin"}]"#).unwrap();
    let tools = read(&[("CORAIL_TOOLS_FILE", path.as_str()), ("CORAIL_TOOLS", "[]")]).unwrap().tools;
    assert_eq!(tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["calculator"]);
    std::fs::write(&file, r#"[{"name":"t","type":"http","timeout":"SECRET"}]"#).unwrap();
    let error = read(&[("CORAIL_TOOLS_FILE", path.as_str())]).unwrap_err().to_string();
    assert!(error.contains("tool `t`: a field has the wrong type") && !error.contains("SECRET"), "{error}");
    std::fs::remove_file(&file).unwrap();
    let error = read(&[("CORAIL_TOOLS_FILE", path.as_str())]).unwrap_err().to_string();
    assert!(error.starts_with("CORAIL_TOOLS_FILE is refused") && error.contains("it cannot be read"), "{error}");
}

#[test]
fn what_is_served_in_another_way_is_one_warning_each() {
    let database = ("CORAIL_DATABASE_URL", "postgresql+asyncpg://u:p@a,b/d");
    for (variables, count) in [
        (&[("CORAIL_STORAGE", "postgresql"), database][..], 0),
        (&[database], 0),
        (&[("CORAIL_CHANNEL", "slack"), ("CORAIL_STRATEGY", "react")], 2),
        (&[("CORAIL_KNOWLEDGE_BASES", "[]")], 0),
        (&[("CORAIL_KNOWLEDGE_BASES", r#"[{"name":"kb","connection_url":"postgresql://h/d"}]"#)], 0),
    ] {
        assert_eq!(read(variables).unwrap().warnings.len(), count, "{variables:?}");
    }
}

#[test]
fn the_help_names_every_variable_that_is_read() {
    let asked = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let noted = asked.clone();
    RunnerConfig::read(&move |name: &str| {
        noted.lock().unwrap().push(name.to_owned());
        None
    })
    .unwrap();
    for name in asked.lock().unwrap().iter() {
        assert!(help().contains(&format!("  {name} ")), "{name}");
    }
}
