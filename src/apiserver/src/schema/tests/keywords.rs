//! Each keyword: what it accepts, and how it refuses.

use super::*;
use crate::schema::{ListType, error::FieldErrorKind};

#[test]
fn each_keyword_refuses_in_the_words_of_the_api_server() {
    let list = |limits: Value| {
        let mut schema = json!({"type": "array", "items": {"type": "string"}});
        schema.as_object_mut().unwrap().extend(limits.as_object().unwrap().clone());
        schema
    };
    let map = |limits: Value| {
        let mut schema = json!({"type": "object", "additionalProperties": {"type": "string"}});
        schema.as_object_mut().unwrap().extend(limits.as_object().unwrap().clone());
        schema
    };
    let int_or_string = json!({"x-kubernetes-int-or-string": true, "pattern": "^[0-9]+%$"});
    let rows: Vec<(Value, Value, &str)> = vec![
        (
            json!({"type": "string"}),
            json!(1),
            r#"Invalid value: "integer": spec.f in body must be of type string: "integer""#,
        ),
        (
            json!({"type": "string"}),
            json!(null),
            r#"Invalid value: "null": spec.f in body must be of type string: "null""#,
        ),
        (
            json!({"type": "integer"}),
            json!("1"),
            r#"Invalid value: "string": spec.f in body must be of type integer: "string""#,
        ),
        (
            json!({"type": "integer"}),
            json!(1.5),
            r#"Invalid value: "number": spec.f in body must be of type integer: "number""#,
        ),
        (
            json!({"type": "integer", "format": "int32"}),
            json!(true),
            r#"Invalid value: "boolean": spec.f in body must be of type integer: "boolean""#,
        ),
        (
            json!({"type": "number"}),
            json!([]),
            r#"Invalid value: "array": spec.f in body must be of type number: "array""#,
        ),
        (
            json!({"type": "boolean"}),
            json!({}),
            r#"Invalid value: "object": spec.f in body must be of type boolean: "object""#,
        ),
        (list(json!({})), json!("a"), r#"Invalid value: "string": spec.f in body must be of type array: "string""#),
        (map(json!({})), json!([]), r#"Invalid value: "array": spec.f in body must be of type object: "array""#),
        (
            int_or_string.clone(),
            json!(true),
            r#"Invalid value: "boolean": spec.f in body must be of type integer,string: "boolean""#,
        ),
        (
            int_or_string.clone(),
            json!(1.5),
            r#"Invalid value: "number": spec.f in body must be of type integer,string: "number""#,
        ),
        (int_or_string, json!("5"), r#"Invalid value: "5": spec.f in body should match '^[0-9]+%$'"#),
        (
            json!({"type": "integer", "maximum": 10}),
            json!(11),
            "Invalid value: 11: spec.f in body should be less than or equal to 10",
        ),
        (
            json!({"type": "integer", "minimum": 0}),
            json!(-1),
            "Invalid value: -1: spec.f in body should be greater than or equal to 0",
        ),
        (
            json!({"type": "number", "minimum": 0.5}),
            json!(0.25),
            "Invalid value: 0.25: spec.f in body should be greater than or equal to 0.5",
        ),
        (
            json!({"type": "integer", "maximum": 10, "exclusiveMaximum": true}),
            json!(10),
            "Invalid value: 10: spec.f in body should be less than 10",
        ),
        (
            json!({"type": "integer", "minimum": 1, "exclusiveMinimum": true}),
            json!(1),
            "Invalid value: 1: spec.f in body should be greater than 1",
        ),
        (
            json!({"type": "integer", "multipleOf": 5}),
            json!(7),
            "Invalid value: 7: spec.f in body should be a multiple of 5",
        ),
        (
            json!({"type": "number", "multipleOf": 0.1}),
            json!(0.25),
            "Invalid value: 0.25: spec.f in body should be a multiple of 0.1",
        ),
        (json!({"type": "string", "maxLength": 2}), json!("abc"), "Too long: may not be more than 2 bytes"),
        (json!({"type": "string", "maxLength": 1}), json!("ab"), "Too long: may not be more than 1 byte"),
        (
            json!({"type": "string", "minLength": 1}),
            json!(""),
            r#"Invalid value: "": spec.f in body should be at least 1 chars long"#,
        ),
        (
            json!({"type": "string", "pattern": "^a"}),
            json!("b\n"),
            r#"Invalid value: "b\n": spec.f in body should match '^a'"#,
        ),
        (
            json!({"type": "string", "format": "date-time"}),
            json!("soon"),
            r#"Invalid value: "soon": spec.f in body must be of type date-time: "soon""#,
        ),
        (
            json!({"type": "string", "format": "date-time"}),
            json!(1),
            r#"Invalid value: "int64": spec.f in body must be of type date-time: "int64""#,
        ),
        (
            json!({"type": "string", "enum": ["a", "b"]}),
            json!("c"),
            r#"Unsupported value: "c": supported values: "a", "b""#,
        ),
        (json!({"type": "integer", "enum": [1, 2]}), json!(3), r#"Unsupported value: 3: supported values: "1", "2""#),
        (list(json!({"minItems": 1})), json!([]), "Invalid value: 0: spec.f in body should have at least 1 items"),
        (list(json!({"maxItems": 1})), json!(["a", "b"]), "Too many: 2: must have at most 1 item"),
        (
            list(json!({"uniqueItems": true})),
            json!(["a", "a"]),
            r#"Invalid value: "": spec.f in body shouldn't contain duplicates"#,
        ),
        (
            map(json!({"minProperties": 2})),
            json!({"a": "1"}),
            "Invalid value: 1: spec.f in body should have at least 2 properties",
        ),
        (map(json!({"maxProperties": 0})), json!({"a": "1"}), "Too many: 1: must have at most 0 items"),
    ];
    for (schema, value, expected) in rows {
        assert_eq!(violations(&schema, value.clone()), [format!("spec.f: {expected}")], "{schema} {value}");
    }
}

#[test]
fn values_within_the_limits_are_accepted() {
    let rows = [
        (json!({"type": "integer", "minimum": 1, "maximum": 10}), json!([1, 10, 5.0])),
        (json!({"type": "number"}), json!([1, 1.5])),
        (json!({"type": "number", "multipleOf": 0.5}), json!([1, 1.5, 0])),
        (json!({"type": "string", "minLength": 1, "maxLength": 2}), json!(["é", "éé"])),
        (json!({"type": "string", "format": "date-time"}), json!(["2026-01-02T03:04:05Z"])),
        (json!({"type": "string", "nullable": true}), json!([null, ""])),
        (json!({"type": "integer", "format": "int32"}), json!([2_147_483_648_u64])),
        (json!({"x-kubernetes-int-or-string": true}), json!([1, "1"])),
        (json!({"x-kubernetes-preserve-unknown-fields": true}), json!([1, "1", null, {"a": []}])),
        (
            json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
            json!([[], ["a", "b"]]),
        ),
    ];
    for (schema, values) in rows {
        for value in values.as_array().unwrap() {
            assert_eq!(violations(&schema, value.clone()), [""; 0], "{schema} {value}");
        }
    }
}

#[test]
fn one_value_may_break_several_limits() {
    let text = json!({"type": "string", "maxLength": 2, "minLength": 1, "pattern": "^a", "enum": ["a"]});
    let unsupported = |value: &str| format!("spec.f: Unsupported value: {value:?}: supported values: \"a\"");
    let rows = [
        ("bbb", "spec.f: Too long: may not be more than 2 bytes"),
        ("", r#"spec.f: Invalid value: "": spec.f in body should be at least 1 chars long"#),
        ("b", r#"spec.f: Invalid value: "b": spec.f in body should match '^a'"#),
    ];
    for (value, first) in rows {
        assert_eq!(
            violations(&text, json!(value)),
            [first.to_owned(), unsupported(value)],
            "one of length and pattern"
        );
    }
    let number = json!({"type": "integer", "multipleOf": 2, "maximum": 5, "minimum": 6});
    let words = violations(&number, json!(7)).concat() + &violations(&number, json!(3)).concat();
    let order = ["a multiple of 2", "less than or equal to 5", "a multiple of 2", "greater than or equal to 6"];
    let found: Vec<&str> = words.split("should be ").skip(1).collect();
    assert!(found.len() == 4 && found.iter().zip(order).all(|(found, words)| found.starts_with(words)), "{words}");
    let object = json!({
        "type": "object", "required": ["a", "b"], "minProperties": 1, "additionalProperties": {"type": "string"},
    });
    assert_eq!(
        violations(&object, json!({})),
        ["spec.f: Invalid value: 0: spec.f in body should have at least 1 properties"],
        "it has no further violation"
    );
}

#[test]
fn a_kind_is_named_as_in_the_causes_of_a_status() {
    use FieldErrorKind::{Duplicate, Forbidden, Invalid, NotSupported, Required, TooLong, TooMany, TypeInvalid};
    for kind in [Duplicate, Forbidden, Invalid, NotSupported, Required, TooLong, TooMany, TypeInvalid] {
        assert_eq!(kind.reason(), format!("FieldValue{kind:?}"));
    }
}

#[test]
fn a_null_is_none_of_the_listed_values() {
    let schema = json!({"type": "string", "nullable": true, "enum": ["a"]});
    assert_eq!(violations(&schema, json!(null)), [r#"spec.f: Unsupported value: "null": supported values: "a""#]);
}

#[test]
fn paths_lead_through_lists_and_maps() {
    let text = json!({"type": "string", "minLength": 1});
    let schema = json!({"type": "array", "items": {"type": "object", "additionalProperties": text}});
    let expected = r#"spec.f[1].k: Invalid value: "": spec.f[1].k in body should be at least 1 chars long"#;
    assert_eq!(violations(&schema, json!([{"k": "a"}, {"k": ""}])), [expected]);
}

#[test]
fn a_required_field_is_told_after_the_fields_that_are_there() {
    let schema = of_spec(json!({
        "type": "object", "required": ["z", "a"], "properties": {
            "a": {"type": "string"}, "m": {"type": "string", "minLength": 1}, "z": {"type": "string"},
        },
    }));
    let errors = schema.validate(&json!({"spec": {"m": ""}}), None);
    let kinds: Vec<_> = errors.iter().map(|error| (error.field.as_str(), error.kind)).collect();
    assert_eq!(
        kinds,
        [
            ("spec.m", FieldErrorKind::Invalid),
            ("spec.z", FieldErrorKind::Required),
            ("spec.a", FieldErrorKind::Required)
        ]
    );
    assert_eq!(errors[1].to_string(), "spec.z: Required value");
}

#[test]
fn items_of_sets_and_maps_occur_once() {
    let set = json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"});
    assert_eq!(violations(&set, json!(["a", "b", "a", "a"])), [r#"spec.f[2]: Duplicate value: "a""#]);
    let sets = json!({"type": "object", "additionalProperties": set});
    assert_eq!(violations(&sets, json!({"k": ["a", "a"]})), [r#"spec.f[k][1]: Duplicate value: "a""#]);
    let item = json!({"type": "object", "properties": {"n": {"type": "string"}, "p": {"type": "integer"}}});
    let map = |keys: Value| {
        json!({
            "type": "array", "items": item,
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys,
        })
    };
    let twice = json!([{"n": "a", "p": 1}, {"n": "a", "p": 2}]);
    assert_eq!(violations(&map(json!(["n"])), twice.clone()), [r#"spec.f[1]: Duplicate value: {"n":"a"}"#]);
    assert_eq!(violations(&map(json!(["n", "p"])), twice), [""; 0]);
    assert_eq!(violations(&map(json!(["n"])), json!([{"p": 1}, {}])), ["spec.f[1]: Duplicate value: {}"]);
}

#[test]
fn an_embedded_object_has_a_version_and_a_kind() {
    let schema = json!({
        "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
    });
    assert_eq!(violations(&schema, json!({"apiVersion": "v1", "kind": "Pod"})), [""; 0]);
    assert_eq!(
        violations(&schema, json!({"apiVersion": ""})),
        ["spec.f.apiVersion: Required value", "spec.f.kind: Required value"]
    );
    assert_eq!(
        violations(&schema, json!({"apiVersion": "v1", "kind": 1})),
        ["spec.f.kind: Invalid value: 1: must be a string"]
    );
}

#[test]
fn what_is_not_supported_does_not_compile() {
    let rows = [
        (json!({"type": "text"}), "spec.f: type is unknown"),
        (json!({"anyOf": [{"type": "string"}]}), "spec.f: keyword anyOf"),
        (json!({"type": "string", "format": "ipv4"}), "spec.f: keyword format"),
        (json!({"type": "string", "pattern": "("}), "spec.f: pattern: "),
        (json!({"type": "string", "maxLength": -1}), "spec.f: maxLength must be a count"),
        (json!({"type": "object", "additionalProperties": true}), "spec.f[*]: a schema must be an object"),
        (json!({"type": "array", "items": {"$ref": "#/a"}}), "spec.f[]: keyword $ref"),
        (json!({"type": "object", "x-kubernetes-map-type": "atomic"}), "spec.f: keyword x-kubernetes-map-type"),
        (json!({"type": "array", "x-kubernetes-list-type": "map"}), "spec.f: x-kubernetes-list-type must be"),
    ];
    for (schema, expected) in rows {
        let whole = json!({"properties": {"spec": {"properties": {"f": schema}}}});
        let error = Schema::compile(&whole).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn the_list_type_is_found_by_names_alone() {
    let schema = of_spec(json!({
        "type": "object", "properties": {
            "plain": {"type": "array", "items": {"type": "string"}},
            "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "flows": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {
                    "type": "object", "properties": {
                        "name": {"type": "string"},
                        "ports": {
                            "type": "array", "items": {"type": "object", "properties": {}},
                            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
                        },
                    },
                },
            },
        },
    }));
    let keys = |keys: &[&str]| Some(ListType::Map(keys.iter().map(|key| (*key).to_owned()).collect()));
    assert_eq!(schema.list_keys(&["spec", "plain"]), Some(ListType::Atomic));
    assert_eq!(schema.list_keys(&["spec", "set"]), Some(ListType::Set));
    assert_eq!(schema.list_keys(&["spec", "flows"]), keys(&["name"]));
    assert_eq!(schema.list_keys(&["spec", "flows", "ports"]), keys(&["port", "protocol"]));
    for path in [&["spec"][..], &["spec", "flows", "name"], &["spec", "missing"], &["spec", "missing", "x"], &[]] {
        assert_eq!(schema.list_keys(path), None, "{path:?}");
    }
}

#[test]
fn a_schema_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Schema>();
}
