//! Tests of what server-side apply refuses before it merges.

use super::*;

#[test]
fn values_that_cannot_be_merged_are_refused_in_the_words_of_the_merge() {
    let map = json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "name"], "items": {
            "type": "object", "properties": {
                "name": {"type": "string"}, "port": {"type": "integer", "default": 80}, "value": {"type": "string"},
            },
        },
    });
    let set = json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"});
    let atomic = json!({"type": "array", "items": {"type": "boolean"}});
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let texts_of = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let rows: Vec<(&Value, Value, &[&str])> = vec![
        (
            &map,
            json!([{"name": "a", "value": 1}]),
            &[r#".spec.f[name="a",port=80].value: expected string, got &value.valueUnstructured{Value:1}"#],
        ),
        (
            &map,
            json!([{"name": "a"}, {"name": "a", "port": 80}]),
            &[r#".spec.f: duplicate entries for key [name="a",port=80]"#],
        ),
        (&map, json!([{"name": "a"}, {"name": "a", "port": 81}]), &[]),
        (
            &map,
            json!([{"port": 1}]),
            &[
                r#".spec.f: element 0: associative list with keys has an element that omits key field "name" (and doesn't have default value)"#,
            ],
        ),
        (&map, json!([null]), &[".spec.f: element 0: associative list with keys may not have a null element"]),
        (&map, json!(["a"]), &[".spec.f: element 0: associative list with keys may not have non-map elements"]),
        (
            &map,
            json!([{"name": "a", "odd": 1, "more": 1}]),
            &[r#".spec.f[name="a",port=80].more: field not declared in schema"#],
        ),
        (&set, json!(["a", "b", "a"]), &[r#".spec.f: duplicate entries for key [="a"]"#]),
        (&set, json!([{}]), &[".spec.f: element 0: associative list without keys has an element that's a map type"]),
        (
            &set,
            json!([null]),
            &[".spec.f: element 0: associative list without keys has an element that's an explicit null"],
        ),
        (&set, json!("a"), &[".spec.f: expected list, got &{a}"]),
        (&atomic, json!([true, true, "no"]), &[".spec.f[2]: expected boolean, got &{no}"]),
        (&open, json!({"a": [1]}), &[]),
        (&open, json!("a"), &[".spec.f: expected map, got &{a}"]),
        (&open, json!(["a", {"b": null}]), &[".spec.f: expected map, got &{[a map[b:<nil>]]}"]),
        (&texts_of, json!({"a": null, "b": "c"}), &[]),
        (
            &texts_of,
            json!({"a": {"b": ["c", 1.5]}}),
            &[
                r#".spec.f.a: expected string, got &value.valueUnstructured{Value:map[string]interface {}{"b":[]interface {}{"c", 1.5}}}"#,
            ],
        ),
    ];
    for (schema, value, expected) in rows {
        assert_eq!(of_field(schema.clone()).check_types(&with_field(value.clone())), expected, "{value}");
    }
    let number = of_field(json!({"type": "integer"}));
    assert_eq!(number.check_types(&with_field(json!("two"))), [".spec.f: expected numeric (int or float), got string"]);
    assert_eq!(number.check_types(&with_field(json!(2.5))), [""; 0], "the merge does not tell numbers apart");
    let either = of_field(json!({"x-kubernetes-int-or-string": true}));
    assert_eq!(either.check_types(&with_field(json!({}))), [".spec.f: expected any scalar, got &{map[]}"]);
    let whole = json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"labels": {"a": "b"}}, "spec": {}});
    assert_eq!(number.check_types(&whole), [""; 0], "metadata is not the schema's");
}
