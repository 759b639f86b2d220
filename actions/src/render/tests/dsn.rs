//! Tests database URLs: the documented cases, and properties that hold for any input.

use proptest::prelude::*;
use serde::Deserialize;

use crate::render::dsn::{DsnError, expand, expand_http, knowledge_base, mask};

const NAMESPACE: &str = "recif-system";
const DOMAIN: &str = "cluster.local";

#[derive(Deserialize)]
struct Vectors {
    cases: Vec<DsnCase>,
}

#[derive(Deserialize)]
struct DsnCase {
    name: String,
    input: String,
    expanded: Option<String>,
    knowledge_base: Option<String>,
}

#[test]
fn documented_cases() {
    let vectors: Vectors = serde_json::from_str(include_str!("../testdata/dsn.json")).unwrap();
    for DsnCase { name, input, expanded, knowledge_base: derived } in vectors.cases {
        assert_eq!(expand(&input, NAMESPACE, DOMAIN).ok(), expanded, "{name}: expanded");
        assert_eq!(knowledge_base(&input, NAMESPACE, DOMAIN).ok(), derived, "{name}: knowledge base");
    }
}

#[test]
fn other_hosts_stay_as_they_are() {
    for dsn in [
        "postgres:///recif?host=/var/run/postgresql",
        "postgres://u:p@/recif?host=/var/run/postgresql",
        "postgres://u:p@%2Fvar%2Frun%2Fpostgresql/recif",
        "postgres://u:p@LOCALHOST/recif",
        "postgres://u:p@db.:5432/recif",
        "postgres://u:p@db.example.com",
        "postgres://u:p@[::1]/recif",
        "postgres://u:p@a,b:5433,c/recif",
    ] {
        assert_eq!(expand(dsn, NAMESPACE, DOMAIN).as_deref(), Ok(dsn));
    }
}

#[test]
fn an_at_sign_in_a_password_is_escaped_whatever_the_host() {
    for (dsn, expanded) in [
        ("postgres://u:p@ss@db/r", "postgres://u:p%40ss@db.recif-system.svc.cluster.local/r"),
        ("postgres://u:@@db.example.com:5432/r", "postgres://u:%40@db.example.com:5432/r"),
        ("postgres://u:p@s@s@a,b:5433/r", "postgres://u:p%40s%40s@a,b:5433/r"),
        ("postgres://u:p%40ss@[::1]/r", "postgres://u:p%40ss@[::1]/r"),
    ] {
        assert_eq!(expand(dsn, NAMESPACE, DOMAIN).as_deref(), Ok(expanded));
    }
    let derived = knowledge_base("postgres://u:p@ss@db/r", NAMESPACE, DOMAIN);
    assert_eq!(derived.unwrap(), "postgresql://u:p%40ss@db.recif-system.svc.cluster.local/corail_storage");
}

#[test]
fn everything_but_a_single_label_host_is_kept() {
    for (dsn, expanded) in [
        ("postgres://db", "postgres://db.recif-system.svc.cluster.local"),
        ("postgres://db?a=b", "postgres://db.recif-system.svc.cluster.local?a=b"),
        ("postgres://u@db:/", "postgres://u@db.recif-system.svc.cluster.local:/"),
        ("postgres://db/r?user=a@b.c", "postgres://db.recif-system.svc.cluster.local/r?user=a@b.c"),
    ] {
        assert_eq!(expand(dsn, NAMESPACE, DOMAIN).as_deref(), Ok(expanded));
    }
}

#[test]
fn a_knowledge_base_keeps_no_sslmode_and_no_empty_query() {
    for (dsn, derived) in [
        ("postgres://db.x", "postgresql://db.x/corail_storage"),
        ("postgres://db.x/r?sslmode=require", "postgresql://db.x/corail_storage"),
        ("postgres://db.x/r?", "postgresql://db.x/corail_storage"),
        ("postgres://db.x/r?a=1&sslmode=x&b=2", "postgresql://db.x/corail_storage?a=1&b=2"),
        ("postgres://db.x/r?sslmodes=1", "postgresql://db.x/corail_storage?sslmodes=1"),
    ] {
        assert_eq!(knowledge_base(dsn, NAMESPACE, DOMAIN).as_deref(), Ok(derived));
    }
}

#[test]
fn what_can_be_read_in_two_ways_is_refused_without_the_password() {
    for (dsn, shown) in [
        ("", "***"),
        ("db", "***"),
        ("host=db password=secret", "***"),
        ("host=db password=s://ecret", "***"),
        ("mysql://u:secret@db/r", "mysql://u:***@db/r"),
        ("postgresql+://u:secret@db/r", "postgresql+://u:***@db/r"),
        ("postgres://u:sec/ret@db:5432/r", "postgres://u:***@db:5432/r"),
        ("postgres://u:1/secret@db/r", "postgres://u:***@db/r"),
        ("postgres://u:1?secret@db/r", "postgres://u:***@***"),
        ("postgres://u:sec?ret@db/r", "postgres://u:***@***"),
        ("postgres://u:sec#ret@db/r", "postgres://u:***@***"),
        ("postgres://u:sec%ret@db/r", "postgres://u:***@db/r"),
        ("postgres://u:sec ret@db/r", "postgres://u:***@db/r"),
        ("postgres://u:secret@db:port/r?password=secret", "postgres://u:***@db:port/r***"),
        ("postgres://u:secret@db:0/r", "postgres://u:***@db:0/r"),
        ("postgres://u:secret@db:65536/r", "postgres://u:***@db:65536/r"),
        ("postgres://u:secret@[::1/r", "postgres://u:***@[::1/r"),
        ("postgres://u:secret@fd00::10/r", "postgres://u:***@fd00::10/r"),
        ("postgres://u:secret", "postgres://u***"),
        ("postgres://u:secret@db/r\n", "postgres://u:***@db/r\n"),
    ] {
        let error = expand(dsn, NAMESPACE, DOMAIN).expect_err(dsn);
        assert_eq!(mask(dsn), shown);
        assert!(error.to_string().starts_with(shown), "{dsn}: {error}");
        assert_eq!(knowledge_base(dsn, NAMESPACE, DOMAIN), Err(error));
    }
}

#[test]
fn an_http_url_gains_a_host_and_nothing_else() {
    for (url, expanded) in [
        ("http://ollama:11434", "http://ollama.recif-system.svc.cluster.local:11434"),
        ("http://ollama:11434/", "http://ollama.recif-system.svc.cluster.local:11434/"),
        ("https://u:p@ollama/v1?a=b#c", "https://u:p@ollama.recif-system.svc.cluster.local/v1?a=b#c"),
        ("http://localhost:11434", "http://localhost:11434"),
        ("http://10.0.0.1:11434", "http://10.0.0.1:11434"),
        ("http://[::1]:11434", "http://[::1]:11434"),
        ("http://ollama.ai", "http://ollama.ai"),
        ("ollama:11434", "ollama:11434"),
    ] {
        assert_eq!(expand_http(url, NAMESPACE, DOMAIN), expanded);
    }
}

/// Generates any text, and texts that look like a DSN.
fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "(postgres(ql)?(\\+[a-z]{0,3})?|http)://[a-z:/?#@%,.&=é\\[\\] ]{0,30}",
        "postgres://[a-z]{1,3}:\\PC{0,10}@[a-z.\\[\\]:0-9]{0,10}[/?#]?\\PC{0,10}",
    ]
}

proptest! {
    #[test]
    fn no_input_panics(text in texts()) {
        let _ = expand(&text, NAMESPACE, DOMAIN);
        let _ = knowledge_base(&text, NAMESPACE, DOMAIN);
        let _ = expand_http(&text, NAMESPACE, DOMAIN);
        let _ = mask(&text);
    }

    #[test]
    fn expanding_twice_is_expanding_once(text in texts()) {
        if let Ok(once) = expand(&text, NAMESPACE, DOMAIN) {
            prop_assert_eq!(expand(&once, NAMESPACE, DOMAIN), Ok(once.clone()));
            prop_assert!(knowledge_base(&once, NAMESPACE, DOMAIN).is_ok());
        }
    }

    #[test]
    fn no_error_shows_a_password(password in "Zq\\PC{1,12}qZ", scheme in "postgres|mysql|", host in "db|db:x|\\[|") {
        for dsn in [
            format!("{scheme}://u:{password}@{host}/r"),
            format!("{scheme}://u:{password}"),
            format!("{scheme}://u@{host}/r?password={password}"),
            format!("{scheme}://u:p@{host}/r?sslpassword={password}&a=b"),
            format!("host={host} password={password}"),
        ] {
            let errors = [expand(&dsn, NAMESPACE, DOMAIN).err(), knowledge_base(&dsn, NAMESPACE, DOMAIN).err()];
            for error in errors.iter().flatten().map(DsnError::to_string).chain([mask(&dsn)]) {
                prop_assert!(!error.contains(&password), "{error}");
            }
        }
    }
}
