//! Values, places and errors of documents.

use serde_json::{Value, json};

use super::{document::Position, pointer_of, read};

fn one(text: &str) -> Value {
    let documents = read(text).unwrap();
    assert_eq!(documents.len(), 1, "{text}");
    documents.into_iter().next().unwrap().value
}

#[test]
fn values_are_those_of_yaml() {
    let cases = [
        ("a: 1", json!({ "a": 1 })),
        ("a: -1.5e3", json!({ "a": -1500.0 })),
        ("a: '1'\nb: \"true\"", json!({ "a": "1", "b": "true" })),
        ("a: true\nb: null\nc: ~\nd:", json!({ "a": true, "b": null, "c": null, "d": null })),
        ("a: no\nb: 1.2.3\nc: 2026-01-01\nd: 10m", json!({ "a": "no", "b": "1.2.3", "c": "2026-01-01", "d": "10m" })),
        ("a: .inf", json!({ "a": ".inf" })),
        ("a: !!str 5\nb: !!int 5", json!({ "a": "5", "b": 5 })),
        ("8080: x", json!({ "8080": "x" })),
        ("- a\n- [b, {c: d}]\n- []", json!(["a", ["b", { "c": "d" }], []])),
        ("a: |\n  x\n  y\nb: >-\n  x\n  y", json!({ "a": "x\ny\n", "b": "x y" })),
        ("a: &one {b: 1}\nc: *one", json!({ "a": { "b": 1 }, "c": { "b": 1 } })),
        ("a: &one {b: 1, d: 1}\nc:\n  <<: *one\n  b: 2", json!({ "a": { "b": 1, "d": 1 }, "c": { "b": 2, "d": 1 } })),
        ("{\"a\": [1, \"b\"]}", json!({ "a": [1, "b"] })),
    ];
    for (text, expected) in cases {
        assert_eq!(one(text), expected, "{text}");
    }
}

#[test]
fn a_text_may_have_several_documents_and_empty_ones() {
    let values: Vec<_> = read("# first\na: 1\n---\n---\n# nothing\n---\nb: 2\n...\n")
        .unwrap()
        .into_iter()
        .map(|found| found.value)
        .collect();
    assert_eq!(values, [json!({ "a": 1 }), json!({ "b": 2 })]);
    assert_eq!(read("").unwrap(), []);
    assert_eq!(read("# nothing\n").unwrap(), []);
}

#[test]
fn each_field_has_its_place() {
    let text = "a: 1\n---\nkind: Agent\nspec:\n  replicas: 11\n  flows:\n    - name: x\n    - {name: y}\n";
    let documents = read(text).unwrap();
    let places = &documents[1].places;
    let cases = [
        ("", (3, 1)),
        ("/spec/replicas", (5, 13)),
        ("/spec/flows/0/name", (7, 13)),
        ("/spec/flows/1/name", (8, 14)),
        // What is missing is where it should be.
        ("/spec/model", (4, 1)),
        ("/spec/flows/0/prompts/0", (7, 7)),
        ("/status/phase", (3, 1)),
    ];
    for (pointer, (line, column)) in cases {
        assert_eq!(places.of(pointer), Position { line, column }, "{pointer}");
    }
    assert_eq!(places.of_key("/spec/replicas"), Position { line: 5, column: 3 });
    assert_eq!(places.start().to_string(), "3:1");
}

#[test]
fn the_place_of_an_error_is_named() {
    let cases = [
        ("a: 1\n  b: 2", (2, 4), ""),
        ("spec:\n  a: 1\n c: 2\n", (3, 2), ""),
        ("a: [1, 2", (1, 4), ""),
        ("a: 1\na: 2", (2, 1), "the key \"a\" is there twice"),
        ("a: 1\n---\nb: *x", (3, 4), ""),
        ("a: !secret x", (1, 12), "the tag !secret is unknown"),
        ("? [a]\n: b", (1, 3), "a key has to be a text"),
        ("a:\n\tb: 1", (2, 1), ""),
    ];
    for (text, (line, column), message) in cases {
        let error = read(text).unwrap_err();
        assert_eq!(error.at.line, line, "{text:?}: {error:?}");
        assert!(error.at.column.abs_diff(column) <= 1, "{text:?}: {error:?}");
        assert!(!error.message.is_empty() && error.message.contains(message), "{text:?}: {error:?}");
    }
}

#[test]
fn a_document_that_repeats_itself_is_bounded() {
    let mut text = "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for pair in ["ab", "bc", "cd", "de", "ef", "fg"] {
        let (old, new) = pair.split_at(1);
        let aliases = vec![format!("*{old}"); 10].join(", ");
        text += &format!("{new}: &{new} [{aliases}]\n");
    }
    assert!(read(&text).unwrap_err().message.contains("more than"));
}

#[test]
fn fields_are_named_as_an_api_server_does() {
    let cases = [
        ("spec.replicas", "/spec/replicas"),
        (".spec.flows[0].name", "/spec/flows/0/name"),
        ("metadata.labels[a.b/c]", "/metadata/labels/a.b~1c"),
        ("spec", "/spec"),
        ("", ""),
    ];
    for (field, pointer) in cases {
        assert_eq!(pointer_of(field), pointer);
    }
}
