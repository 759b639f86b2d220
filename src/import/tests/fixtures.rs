//! The fixtures of each source: an API server takes what they become, and the lines keep their rules.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;

use common::{imported, lines, object, objects, options, refusals, shown};
use import::{Class, Source, import};

const FIXTURES: [(&str, &str); 5] = [
    ("kagent", include_str!("fixtures/kagent.yaml")),
    ("kagent-v1alpha1", include_str!("fixtures/kagent-v1alpha1.yaml")),
    ("genkit", include_str!("fixtures/genkit.yaml")),
    ("krypton", include_str!("fixtures/krypton.yaml")),
    ("recif", include_str!("fixtures/recif.yaml")),
];

#[test]
fn the_source_of_each_form_is_named() {
    let sources = include_str!("fixtures/SOURCES.md");
    for (name, _) in FIXTURES {
        assert!(sources.contains(&format!("| `{name}.yaml` | ")), "{name}");
    }
}

#[tokio::test]
async fn an_api_server_takes_every_object_of_the_fixtures() {
    for (name, text) in FIXTURES {
        let imported = imported(text);
        assert!(!imported.objects.is_empty(), "{name}");
        assert_eq!(refusals(&imported).await, Vec::<String>::new(), "{name}");
    }
}

#[test]
fn no_value_that_may_be_a_credential_is_printed() {
    for (name, text) in FIXTURES {
        let printed = lines(&imported(text)).join("\n");
        for secret in ["hunter2", "aHVudGVyMg", "Bearer"] {
            assert!(!printed.contains(secret), "{name}: {printed}");
        }
    }
}

#[test]
fn the_order_of_the_input_changes_no_byte() {
    for (name, text) in FIXTURES {
        let mut objects = objects(text);
        let expected = shown(&import(&objects, &options(None)).unwrap());
        for _ in 0..objects.len() {
            objects.rotate_left(1);
            assert_eq!(shown(&import(&objects, &options(None)).unwrap()), expected, "{name}");
        }
        objects.reverse();
        assert_eq!(shown(&import(&objects, &options(None)).unwrap()), expected, "{name}");
    }
}

#[test]
fn each_field_has_one_line() {
    for (name, text) in FIXTURES {
        let mut seen = BTreeSet::new();
        for line in imported(text).lines {
            assert!(
                seen.insert((line.object.clone(), line.field.clone())),
                "{name}: another line on this field: {line}"
            );
        }
    }
}

#[test]
fn all_sources_together_are_the_sum_of_each() {
    let all = FIXTURES.map(|(_, text)| text).join("\n---\n");
    let together = imported(&all);
    assert!(together.summary.starts_with("kagent, genkit, krypton, recif: "), "{}", together.summary);
    let from = |source| import(&objects(&all), &options(Some(source))).unwrap();
    let krypton = from(Source::Krypton);
    assert!(krypton.summary.starts_with("krypton: "), "{}", krypton.summary);
    let dropped = krypton.lines.iter().filter(|line| line.text == "another source than --from names").count();
    assert!(dropped > 20 && krypton.objects.len() < together.objects.len());
    assert!(krypton.lines.iter().any(|line| line.class == Class::Loss && line.object == "Agent zoo/night"));
}

#[test]
fn upstream_is_completed_only_where_it_is_meant() {
    let text = include_str!("fixtures/recif.yaml");
    let ours = |imported| object(imported, "Agent", "ours");
    let plain = imported(text);
    assert_eq!(ours(&plain)["spec"], serde_json::json!({ "name": "Ours", "framework": "corail" }));
    assert_eq!(ours(&plain)["status"], serde_json::Value::Null, "a status cannot be applied");
    assert!(lines(&plain).contains(
        &"skip Agent office/ours: is ours already; --from recif adds what upstream's operator would".to_owned()
    ));
    let all = import(&objects(text), &options(Some(Source::Recif))).unwrap();
    assert_eq!(ours(&all)["spec"]["envFrom"][0]["secretRef"]["name"], "agent-env");
}
