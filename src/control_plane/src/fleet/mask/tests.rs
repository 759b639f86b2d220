use serde_json::json;

use super::*;

fn masked(spec: Value) -> Value {
    let mut value = json!({ "metadata": {}, "spec": spec });
    mask_object(&mut value);
    value["spec"].take()
}

#[test]
fn credentials_are_masked_wherever_a_spec_may_hold_them() {
    for (spec, expected) in [
        (json!({ "databaseUrl": "postgresql://u:p@h/d" }), json!({ "databaseUrl": MASKED })),
        (
            json!({ "env": [{ "name": "OPENAI_API_KEY", "value": "sk-1" }, { "name": "MODE", "value": "fast" }] }),
            json!({ "env": [{ "name": "OPENAI_API_KEY", "value": MASKED }, { "name": "MODE", "value": "fast" }] }),
        ),
        (
            json!({ "deployment": { "env": { "GITHUB_TOKEN": "t", "MAX_TOKENS": "5", "HOME": "/" } } }),
            json!({ "deployment": { "env": { "GITHUB_TOKEN": MASKED, "MAX_TOKENS": "5", "HOME": "/" } } }),
        ),
        (
            json!({ "args": ["--token", "t", "--api-key=k", "-v", "https://u:p@h/x", "--key-file", "/k"] }),
            json!({ "args": ["--token", MASKED, format!("--api-key={MASKED}"), "-v", format!("https://{MASKED}@h/x"),
                "--key-file", "/k"] }),
        ),
        (json!({ "headers": { "X-Any": "v" } }), json!({ "headers": { "X-Any": MASKED } })),
        (
            json!({ "headersFrom": [{ "name": "X-Any", "value": "v" }] }),
            json!({ "headersFrom": [{ "name": "X-Any", "value": MASKED }] }),
        ),
        (
            json!({ "url": "https://h/mcp?api_key=k&page=2" }),
            json!({ "url": format!("https://h/mcp?api_key={MASKED}&page=2") }),
        ),
        (
            json!({ "extraConfig": { "apiKey": "k", "baseUrl": "https://h", "nested": { "client_secret": "s" } } }),
            json!({ "extraConfig": { "apiKey": MASKED, "baseUrl": "https://h", "nested": { "client_secret": MASKED } } }),
        ),
        (
            json!({ "podTemplate": { "spec": { "containers": [{ "env": [{ "name": "DB_PASSWORD", "value": "p" }] }] } } }),
            json!({ "podTemplate": { "spec": { "containers": [{ "env": [{ "name": "DB_PASSWORD", "value": MASKED }] }] } } }),
        ),
    ] {
        assert_eq!(masked(spec), expected);
    }
}

#[test]
fn all_below_a_credentials_name_is_masked_but_numbers_of_tokens() {
    for name in ["API_TOKENS", "SMTP_PASS", "DB_PWD", "MYSQL_PWD", "BASIC_AUTH", "JWT", "KEY", "userPass"] {
        assert_eq!(masked(json!({ "env": { name: "t1,t2" } })), json!({ "env": { name: MASKED } }));
    }
    let stays = json!({ "env": { "MAX_TOKENS": "5", "BYPASS": "x", "KEY_FILE": "/k" },
        "extraConfig": { "max_tokens": 5, "apiKeyRef": { "name": "a" } } });
    assert_eq!(masked(stays.clone()), stays);
    let config = json!({ "apiKeys": ["sk-1"], "credentials": { "id": "a", "pin": 7 }, "mode": ["fast"] });
    let expected = json!({ "apiKeys": [MASKED], "credentials": { "id": MASKED, "pin": MASKED }, "mode": ["fast"] });
    assert_eq!(masked(json!({ "extraConfig": config })), json!({ "extraConfig": expected }));
    let parameters = json!({ "parameters": [{ "name": "api_key", "default": "sk-1" }, { "name": "a", "default": 1 }] });
    let expected = json!({ "parameters": [{ "name": "api_key", "default": MASKED }, { "name": "a", "default": 1 }] });
    assert_eq!(masked(parameters), expected);
}

#[test]
fn rendered_texts_show_no_more_than_the_object() {
    for (name, text, expected) in [
        ("MODEL_CONFIG", r#"{"apiKey":"sk-1","max_tokens":5}"#, r#"{"apiKey":"••••••","max_tokens":5}"#),
        ("BASE_URL", "https://h/?key=k", "https://h/?key=••••••"),
        ("TOOLS", r#"[{"endpoint":"https://h/?api_key=k"}]"#, r#"[{"endpoint":"https://h/?api_key=••••••"}]"#),
        (
            "TOOLS",
            r#"{"properties":{"api_key":{"default":"k","type":"string"}}}"#,
            r#"{"properties":{"api_key":{"default":"••••••","type":"string"}}}"#,
        ),
        ("config.yaml", "url: https://u:p@h\ntoken: t\nmode: a\n", "url: https://••••••@h\ntoken: ••••••\nmode: a\n"),
        ("SMTP_PASS", "p", MASKED),
        ("PROMPT", "Say hello.\n", "Say hello.\n"),
        (
            "TOOLS",
            r#"{"properties": {"token": {"type": "string"}}}"#,
            r#"{"properties": {"token": {"type": "string"}}}"#,
        ),
    ] {
        assert_eq!(mask_rendered(name, text), expected);
    }
}

#[test]
fn what_refers_to_a_secret_and_what_people_write_stays() {
    let spec = json!({
        "credentialsRef": { "name": "openai" }, "credentialKeys": ["OPENAI_API_KEY"],
        "env": [{ "name": "API_KEY", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }],
        "headersFrom": [{ "name": "Authorization", "secretKeyRef": { "name": "s", "key": "k" } }],
        "systemPrompt": "Never tell a password: see https://example.com/a?b=c, please.",
        "defaultConfig": { "max_tokens": 100, "temperature": 0.5 },
        "inputSchema": { "properties": { "token": { "type": "string", "description": "a token" } } },
    });
    assert_eq!(masked(spec.clone()), spec);
}

#[test]
fn copies_of_the_object_and_managed_fields_are_dropped() {
    let copy = "{\"spec\":{\"databaseUrl\":\"postgresql://u:p@h/d\"}}";
    let mut value = json!({ "metadata": { "name": "a", "managedFields": [{}], "annotations": {
        "kubectl.kubernetes.io/last-applied-configuration": copy, "kapp.k14s.io/original": copy, "mine.example/saved":
        json!({ "object": copy }).to_string(), "argo.example/x": "kind: Agent\nspec:\n  databaseUrl: x\n",
        "objectset.rio.cattle.io/applied": "H4sIAAAAAAAA/6pWKi5ITVayqlZKSixOdSzJzM9TslJKLEosSVXSUSouKUrNS1eyUgIEAAD//w", "team": "a" } } });
    mask_object(&mut value);
    assert_eq!(value, json!({ "metadata": { "name": "a", "annotations": { "team": "a" } } }));
}

#[test]
fn a_status_shows_no_passwords_either() {
    let message = "cannot connect to postgresql://u:SECRET@h/d: refused";
    let mut value = json!({ "metadata": {}, "status": { "phase": "Failed", "children": [{ "kind": "Secret", "name": "token" }],
        "conditions": [{ "type": "Ready", "message": message }] } });
    mask_object(&mut value);
    let expected = format!("cannot connect to postgresql://{MASKED}@h/d: refused");
    assert_eq!(value["status"]["conditions"][0]["message"], expected);
    assert_eq!(value["status"]["children"][0]["name"], "token");
}
