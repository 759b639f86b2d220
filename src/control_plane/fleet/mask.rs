//! Takes credentials out of an object before it is kept.
//!
//! The operator splits what it renders into ConfigMaps and Secrets; what it would put into a Secret is masked here: a
//! database's URL, headers of tools, URLs with a password. A spec may hold more, by mistake: values of variables and settings
//! whose names say that they are credentials, wherever they stand. What refers to a Secret is not masked; it is no secret.

use serde_json::{Map, Value};

/// What stands in the place of a credential.
pub const MASKED: &str = "••••••";

/// Annotations that repeat a whole object, as `kubectl apply` writes them.
const COPIES: &[&str] = &["kubectl.kubernetes.io/last-applied-configuration"];

/// Words in the name of a variable, header or setting whose value is a credential.
const WORDS: &[&str] = &[
    "password",
    "passwd",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "credential",
    "authorization",
    "cookie",
    "databaseurl",
    "dsn",
    "connectionstring",
    "passphrase",
];

/// Masks an object, and drops what nobody reads.
pub(super) fn object(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            COPIES.iter().for_each(|copy| drop(annotations.remove(*copy)));
        }
    }
    if let Some(spec) = object.get_mut("spec") {
        inside("", spec);
    }
}

/// Masks a value that stands under this field.
fn inside(field: &str, value: &mut Value) {
    match value {
        Value::Object(fields) => fields_of(field, fields),
        Value::Array(elements) if matches!(field, "args" | "command") => arguments(elements),
        Value::Array(elements) => elements.iter_mut().for_each(|element| inside(field, element)),
        Value::String(text) => *text = line(text),
        _ => {}
    }
}

fn fields_of(field: &str, fields: &mut Map<String, Value>) {
    // `{name, value}`: a variable or a header. What is beside a value, such as valueFrom, only refers to one.
    let named = fields.get("name").and_then(Value::as_str).is_some_and(is_credential);
    let header = field == "headersFrom";
    for (name, value) in fields.iter_mut() {
        let whole = match name.as_str() {
            "value" => named || header,
            "databaseUrl" => true,
            _ if field == "headers" => true,
            // A map of variables or settings, whose keys are their names.
            _ => is_settings(field) && is_credential(name),
        };
        match value {
            Value::String(text) if whole && !text.is_empty() => *text = MASKED.to_owned(),
            // Settings may be nested.
            Value::Object(_) | Value::Array(_) if is_settings(field) && !is_reference(name) => inside(field, value),
            _ => inside(name, value),
        }
    }
}

/// Fields whose keys are chosen by the user.
fn is_settings(field: &str) -> bool {
    matches!(field, "env" | "extraConfig" | "defaultConfig" | "info")
}

fn is_reference(field: &str) -> bool {
    field.ends_with("Ref") || field == "valueFrom"
}

/// Whether something of this name is a credential. Numbers of tokens are none.
fn is_credential(name: &str) -> bool {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    let ends_with_key = name.len() > 3 && plain.ends_with("key");
    !plain.ends_with("tokens") && (ends_with_key || WORDS.iter().any(|word| plain.contains(word)))
}

/// Arguments of a program: `--token=x`, and what follows `--token`.
fn arguments(elements: &mut [Value]) {
    let mut follows = false;
    for element in elements {
        let Value::String(text) = element else { continue };
        let flag = text.starts_with('-');
        *text = match text.split_once('=') {
            Some((name, value)) if !value.is_empty() && is_credential(name) => format!("{name}={MASKED}"),
            _ if follows && !flag => MASKED.to_owned(),
            _ => line(text),
        };
        follows = flag && !text.contains('=') && is_credential(text);
    }
}

/// A text without the passwords of the URLs in it.
fn line(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        masked.push_str(before);
        let end = after.find(|c: char| c.is_whitespace() || "\"'<>".contains(c)).unwrap_or(after.len());
        let (url, next) = after.split_at(end);
        masked.push_str(&without_password(url));
        rest = next;
    }
    masked.push_str(rest);
    masked
}

/// What follows `://`, without what may be a password: in front of the host, or as a parameter.
fn without_password(url: &str) -> String {
    let authority = url.find(['/', '?', '#']).unwrap_or(url.len());
    let (authority, path) = url.split_at(authority);
    let authority = match authority.rsplit_once('@') {
        // A token may be given as the user alone.
        Some((_, host)) => format!("{MASKED}@{host}"),
        None => authority.to_owned(),
    };
    let Some((path, query)) = path.split_once('?') else { return authority + path };
    let parameter = |pair: &str| match pair.split_once('=') {
        Some((name, value)) if !value.is_empty() && (is_credential(name) || name == "key") => {
            format!("{name}={MASKED}")
        }
        _ => pair.to_owned(),
    };
    let query = query.split('&').map(parameter).collect::<Vec<_>>().join("&");
    format!("{authority}{path}?{query}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn masked(spec: Value) -> Value {
        let mut value = json!({ "metadata": {}, "spec": spec });
        object(&mut value);
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
            "kubectl.kubernetes.io/last-applied-configuration": copy, "team": "a" } } });
        object(&mut value);
        assert_eq!(value, json!({ "metadata": { "name": "a", "annotations": { "team": "a" } } }));
    }
}
