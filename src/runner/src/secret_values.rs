//! Values that no span may hold where spans hold content: credentials of models, headers, and variables of the process.
//!
//! A value is known by where it comes from, not by how it looks: what the process gets besides its own settings counts as a secret.
//! The operator names those of its own settings that come from a Secret.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::HeaderMap;
use percent_encoding::percent_decode_str;
use serde_json::Value;
use telemetry::TelemetryConfig;
use url::Url;

use super::Lookup;

/// Variable with the names of variables whose values come from Secrets; `PREFIX*` stands for all that begin so.
const SECRET_VARIABLES: &str = "RECIF_SECRET_VARIABLES";
/// Variable with knowledge bases, whose addresses hold passwords.
const KNOWLEDGE_BASES: &str = "CORAIL_KNOWLEDGE_BASES";
/// Settings of the runtime that hold a credential and nothing else.
const SECRET_SETTINGS: [&str; 1] = ["CORAIL_DATABASE_URL"];
/// Beginnings of the names of settings: of the runtime, of Kubernetes and of the system.
const SETTING_PREFIXES: [&str; 6] = ["CORAIL_", "KUBERNETES_", "LC_", "OTEL_", "RECIF_", "RUST_"];
/// Names of further settings.
const SETTINGS: [&str; 12] =
    ["HOME", "HOSTNAME", "LANG", "LOGNAME", "PATH", "PORT", "PWD", "SHELL", "SHLVL", "TERM", "TZ", "USER"];
/// Headers of requests whose values are the protocol's, or the gateway's to say how and for whom the request came.
const PLAIN_HEADERS: [&str; 23] = [
    "cache-control",
    "connection",
    "dnt",
    "expect",
    "host",
    "origin",
    "pragma",
    "priority",
    "range",
    "te",
    "traceparent",
    "tracestate",
    "transfer-encoding",
    "upgrade-insecure-requests",
    "user-agent",
    "x-forwarded-host",
    "x-forwarded-prefix",
    "x-forwarded-proto",
    "x-recif-left",
    "x-recif-left-cost",
    "x-recif-prices",
    "x-recif-user",
    "x-recif-via",
];
/// Beginnings of the names of further ones.
const PLAIN_PREFIXES: [&str; 4] = ["accept", "content-", "if-", "sec-"];
/// Shortest value that counts, in bytes: a shorter one is part of many words.
const SHORTEST: usize = 4;
/// Shortest value of a header, or of a variable, of which it is not known whether it is a secret, such as a level of logs.
const SHORTEST_UNLISTED: usize = 8;
/// Shortest text in a credential that is a JSON object, in bytes: shorter ones are its settings.
const SHORTEST_FIELD: usize = 16;
/// Largest file of a credential, in bytes.
const MAX_FILE: u64 = 64 << 10;

/// Values that no span may hold. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct SecretValues(Arc<Mutex<Arc<[String]>>>);

impl SecretValues {
    /// Returns the values of this process, whose variables `lookup` reads, and of the headers for its collector.
    pub(crate) fn of_process(config: &TelemetryConfig, lookup: &Lookup) -> Self {
        let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let secrets = Self::of_variables(names, lookup);
        secrets.add(config.headers.values().filter_map(|value| value.to_str().ok().map(str::to_owned)));
        secrets
    }

    /// Returns the values of those of the named variables that are no settings, and of those that [`SECRET_VARIABLES`] names.
    fn of_variables(names: impl IntoIterator<Item = String>, lookup: &Lookup) -> Self {
        let listed = lookup(SECRET_VARIABLES).unwrap_or_default();
        let listed: BTreeSet<&str> = listed.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        let prefixes: Vec<&str> = listed.iter().filter_map(|entry| entry.strip_suffix('*')).collect();
        let secrets = Self::default();
        let others = names.into_iter().filter_map(|name| {
            let prefix = prefixes.iter().copied().filter(|prefix| name.starts_with(*prefix)).map(str::len).max();
            let shortest = match prefix {
                Some(1..) => SHORTEST,
                // A Secret without a prefix may have any key, and most settings come from elsewhere.
                _ if is_setting(&name) => return None,
                Some(_) => SHORTEST,
                None => SHORTEST_UNLISTED,
            };
            lookup(&name).filter(|value| value.trim().len() >= shortest)
        });
        secrets.add(others);
        secrets.add(listed.iter().copied().chain(SECRET_SETTINGS).filter_map(lookup));
        let bases = lookup(KNOWLEDGE_BASES).and_then(|json| serde_json::from_str::<Vec<Value>>(&json).ok());
        let urls = bases.into_iter().flatten();
        secrets.add(urls.filter_map(|base| base["connection_url"].as_str().map(str::to_owned)));
        secrets
    }

    /// Adds values.
    pub(crate) fn add(&self, values: impl IntoIterator<Item = String>) {
        let added: Vec<String> = values.into_iter().flat_map(|value| forms(&value)).collect();
        if !added.is_empty() {
            let mut kept = self.kept();
            let all = sorted(kept.iter().cloned().chain(added));
            *kept = all;
        }
    }

    /// Adds the files of a folder, the form of a mounted Secret.
    pub(crate) fn add_folder(&self, folder: &Path) {
        let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let is_small = |path: &Path| fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() <= MAX_FILE);
        // One that is not text can be in no message.
        self.add(files.filter(|path| is_small(path)).filter_map(|path| fs::read_to_string(path).ok()));
    }

    /// Returns all values, the longest first, with those of a request's headers.
    pub(crate) fn with_headers(&self, headers: &HeaderMap) -> Arc<[String]> {
        let kept = self.kept().clone();
        let sent =
            headers.iter().filter(|(name, _)| !is_plain(name.as_str())).filter_map(|(_, value)| value.to_str().ok());
        let sent: Vec<String> = sent.filter(|value| value.len() >= SHORTEST_UNLISTED).flat_map(forms).collect();
        if sent.is_empty() { kept } else { sorted(kept.iter().cloned().chain(sent)) }
    }

    fn kept(&self) -> MutexGuard<'_, Arc<[String]>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports whether the variable is a setting of the runtime, of Kubernetes or of the system.
fn is_setting(name: &str) -> bool {
    SETTINGS.contains(&name) || SETTING_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Reports whether the values of a header of requests are no secrets.
fn is_plain(name: &str) -> bool {
    PLAIN_HEADERS.contains(&name) || PLAIN_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns the values, each once, the longest first.
fn sorted(values: impl Iterator<Item = String>) -> Arc<[String]> {
    let mut values: Vec<String> = values.collect();
    values.sort_unstable_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
    values.dedup();
    values.into()
}

/// Returns the forms in which a value can be part of a text: as it is, without the scheme before a token, the password of a URL, the
/// texts of a JSON object, and each as JSON writes it.
fn forms(value: &str) -> Vec<String> {
    let value = value.trim();
    let mut forms = vec![value.to_owned()];
    forms.extend(value.split_once(' ').map(|(_, token)| token.trim_start().to_owned()).filter(|it| !it.contains(' ')));
    if let Ok(url) = Url::parse(value)
        && let Some(password) = url.password()
    {
        forms.push(password.to_owned());
        forms.push(percent_decode_str(password).decode_utf8_lossy().into_owned());
    }
    if let Ok(Value::Object(fields)) = serde_json::from_str(value) {
        let texts = fields.values().filter_map(Value::as_str).filter(|text| text.len() >= SHORTEST_FIELD);
        forms.extend(texts.map(|text| text.trim().to_owned()));
    }
    forms.retain(|form| form.len() >= SHORTEST && !matches!(form.as_str(), "true" | "false"));
    let escaped = |form: &String| {
        let json = Value::from(form.as_str()).to_string();
        json.strip_prefix('"').and_then(|json| json.strip_suffix('"')).map(str::to_owned)
    };
    let escaped: Vec<String> = forms.iter().filter_map(escaped).filter(|form| !forms.contains(form)).collect();
    forms.extend(escaped);
    forms
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn variables_other_than_settings_are_secret_and_those_that_the_operator_names() {
        let lookup = |name: &str| {
            let value = match name {
                "OPENAI_API_KEY" => "key-of-openai",
                "TOOL_SHOP_X_KEY" => "Bearer key-of-shop",
                "MINE" => "of-envFrom",
                "SHORT" => "abc",
                "SWITCH" => "true",
                "LOG_LEVEL" => "info",
                "DB_PIN" => "4711x",
                "CORAIL_MODEL_ID" => "gpt-model",
                "CORAIL_SYSTEM_PROMPT" => "prompt-of-secret",
                "CORAIL_DATABASE_URL" => "postgres://ada:pa%20ss@db/x",
                "CORAIL_KNOWLEDGE_BASES" => r#"[{"name": "docs", "connection_url": "postgres://ada:other-pass@db/y"}]"#,
                "HOSTNAME" => "pod-name",
                "RUST_LOG" => "debug",
                "RECIF_SECRET_VARIABLES" => "CORAIL_SYSTEM_PROMPT, NOT_SET, DB_*",
                _ => return None,
            };
            Some(value.to_owned())
        };
        let names = [
            "OPENAI_API_KEY",
            "TOOL_SHOP_X_KEY",
            "MINE",
            "SHORT",
            "SWITCH",
            "LOG_LEVEL",
            "DB_PIN",
            "CORAIL_MODEL_ID",
            "HOSTNAME",
            "RUST_LOG",
        ];
        let secrets = SecretValues::of_variables(names.map(str::to_owned), &lookup);
        let found = secrets.with_headers(&HeaderMap::new());
        let mut expected = vec![
            "postgres://ada:other-pass@db/y",
            "postgres://ada:pa%20ss@db/x",
            "Bearer key-of-shop",
            "prompt-of-secret",
            "key-of-openai",
            "key-of-shop",
            "other-pass",
            "of-envFrom",
            "pa%20ss",
            "pa ss",
            "4711x",
        ];
        expected.sort_unstable_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        assert_eq!(&*found, expected);
    }

    #[test]
    fn a_prefix_is_for_all_variables_that_begin_so_and_an_empty_one_for_no_setting() {
        let found = |listed: &'static str| {
            let lookup = move |name: &str| {
                let value = match name {
                    "LC_KEY" => "key1",
                    "PIN" => "key2",
                    "RECIF_SECRET_VARIABLES" => listed,
                    _ => return None,
                };
                Some(value.to_owned())
            };
            let names = ["LC_KEY", "PIN", "RECIF_SECRET_VARIABLES", "UNSET"].map(str::to_owned);
            SecretValues::of_variables(names, &lookup).with_headers(&HeaderMap::new()).to_vec()
        };
        for (listed, expected) in [
            ("*", &["key2"][..]),
            ("LC_*", &["key1"]),
            ("P*, LC_*", &["key1", "key2"]),
            ("PIN,NOT_SET,", &["key2"]),
            ("PI", &[]),
            ("", &[]),
        ] {
            assert_eq!(found(listed), expected, "{listed:?}");
        }
    }

    #[test]
    fn headers_of_a_request_are_secret_for_that_request_alone() {
        let secrets = SecretValues::default();
        let sent = [
            ("authorization", "Bearer key-of-ada"),
            ("x-tenant", "blue-team"),
            ("x-recif-user", "ada@example.com"),
            ("content-type", "application/json"),
            ("x-forwarded-proto", "http"),
            ("x-forwarded-prefix", "/v1/agents/team/shop"),
            ("sec-fetch-site", "same-origin"),
            ("x-flag", "agent"),
        ];
        let sent = sent.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let found = secrets.with_headers(&sent.into_iter().collect());
        assert_eq!(&*found, ["Bearer key-of-ada", "key-of-ada", "blue-team"]);
        assert!(secrets.with_headers(&HeaderMap::new()).is_empty());
    }

    #[test]
    fn a_value_is_known_as_json_writes_it_and_an_object_by_its_texts() {
        let object = r#"{"type": "service_account", "private_key": "-----BEGIN\nkey-of-google\n-----END"}"#;
        for (value, expected) in [
            ("line-one\nline-two\n", &["line-one\nline-two", r"line-one\nline-two"][..]),
            (object, &["-----BEGIN\nkey-of-google\n-----END", r"-----BEGIN\nkey-of-google\n-----END"]),
            ("hello big world", &["hello big world"]),
        ] {
            let found = forms(value);
            for form in expected {
                assert!(found.iter().any(|found| found == form), "{form:?} is not in {found:?}");
            }
            assert!(!found.iter().any(|form| form == "world" || form == "service_account"), "{found:?}");
        }
    }

    #[test]
    fn files_of_a_mounted_secret_are_secret() {
        let folder = std::env::temp_dir().join(format!("recif-secret-values-{}", std::process::id()));
        fs::create_dir_all(folder.join("inside")).unwrap();
        fs::write(folder.join("KEY"), "key-of-file\n").unwrap();
        let secrets = SecretValues::default();
        secrets.add_folder(&folder);
        fs::remove_dir_all(&folder).unwrap();
        secrets.add_folder(&folder);
        assert_eq!(&*secrets.with_headers(&HeaderMap::new()), ["key-of-file"]);
    }
}
