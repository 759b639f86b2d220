//! Tests of nulls, unknown fields and missing ones.

use proptest::prelude::*;

use super::*;

/// Returns the schema that the tests below use: of each thing one.
fn schema() -> Schema {
    let item = json!({
        "type": "object", "properties": {"x": {"type": "integer", "default": 1}, "note": {"type": "string"}},
    });
    of_spec(json!({
        "type": "object", "default": {}, "properties": {
            "plain": {"type": "string"},
            "nullable": {"type": "string", "nullable": true},
            "set": {"type": "integer", "default": 3},
            "nullset": {"type": "integer", "default": 3, "nullable": true},
            "part": {"type": "object", "default": {}, "properties": {"deep": {"type": "string", "default": "d"}}},
            "list": {"type": "array", "items": item},
            "map": {"type": "object", "additionalProperties": item},
            "texts": {"type": "object", "additionalProperties": {"type": "string", "default": "t"}},
            "open": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"known": {"type": "object"}},
            },
            "lists": {"type": "array", "x-kubernetes-preserve-unknown-fields": true, "items": {"type": "object"}},
            "any": {"x-kubernetes-preserve-unknown-fields": true},
            "pod": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}},
        },
    }))
}

#[test]
fn objects_are_completed_and_reduced() {
    let always = json!({"set": 3, "nullset": 3, "part": {"deep": "d"}});
    let rows: Vec<(Value, Value, &[&str])> = vec![
        (json!({}), json!({}), &[]),
        (json!({"plain": null}), json!({}), &[]),
        (json!({"nullable": null}), json!({"nullable": null}), &[]),
        (json!({"set": null, "nullset": null}), json!({"set": 3, "nullset": null}), &[]),
        (json!({"set": 5}), json!({"set": 5}), &[]),
        (json!({"part": {"deep": "e"}}), json!({"part": {"deep": "e"}}), &[]),
        (json!({"part": null}), json!({}), &[]),
        (json!({"list": [{}, {"x": 2, "y": 3}]}), json!({"list": [{"x": 1}, {"x": 2}]}), &["spec.list[1].y"]),
        (json!({"list": [{"x": null, "note": null}]}), json!({"list": [{"x": 1}]}), &[]),
        (json!({"list": [null]}), json!({"list": [null]}), &[]),
        (json!({"map": {"a": {}, "b": null}}), json!({"map": {"a": {"x": 1}}}), &[]),
        (json!({"map": {"a": {"z": 1}}}), json!({"map": {"a": {"x": 1}}}), &["spec.map.a.z"]),
        (json!({"texts": {"a": null}}), json!({"texts": {"a": "t"}}), &[]),
        (
            json!({"open": {"a": {"b": null}, "known": {"c": 1}}}),
            json!({"open": {"a": {"b": null}, "known": {}}}),
            &["spec.open.known.c"],
        ),
        (json!({"lists": [{"a": 1}]}), json!({"lists": [{"a": 1}]}), &[]),
        (json!({"any": [{"a": null}]}), json!({"any": [{"a": null}]}), &[]),
        (
            json!({"pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"b": 1}, "c": 1}}),
            json!({"pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}}}),
            &["spec.pod.c", "spec.pod.spec.b"],
        ),
        (json!({"zz": {"a": 1}, "aa": 1}), json!({}), &["spec.aa", "spec.zz"]),
    ];
    for (spec, expected, unknown) in rows {
        let mut object =
            json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "a", "labels": {}}, "spec": spec.clone()});
        assert_eq!(schema().admit(&mut object), unknown, "{spec}");
        let mut whole = always.clone();
        whole.as_object_mut().unwrap().extend(expected.as_object().unwrap().clone());
        assert_eq!(object["spec"], whole, "{spec}");
        assert_eq!(object["metadata"], json!({"name": "a", "labels": {}}), "metadata is not the schema's");
    }
}

#[test]
fn a_missing_spec_gets_its_default_and_an_unknown_field_at_the_root_goes() {
    let mut object = json!({"kind": "K", "data": 1});
    assert_eq!(schema().admit(&mut object), ["data"]);
    assert_eq!(object, json!({"kind": "K", "spec": {"set": 3, "nullset": 3, "part": {"deep": "d"}}}));
}

/// Returns objects of all shapes, with names that the schema knows at one level or another.
pub(super) fn values() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i8>().prop_map(Value::from),
        "[a-c]{0,2}".prop_map(Value::from),
    ];
    let names = vec![
        "spec", "plain", "nullable", "set", "nullset", "part", "deep", "list", "x", "map", "texts", "open", "known",
        "lists", "any", "pod", "metadata", "kind", "other",
    ];
    scalar.prop_recursive(5, 64, 6, move |inner| {
        let name = prop::sample::select(names.clone()).prop_map(str::to_owned);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name, inner, 0..6).prop_map(|fields| fields.into_iter().collect::<Value>()),
        ]
    })
}

proptest! {
    #[test]
    fn an_object_that_was_admitted_stays_as_it_is(spec in values(), other in values()) {
        let schema = schema();
        let mut object = json!({"spec": spec, "other": other});
        schema.admit(&mut object);
        let mut again = object.clone();
        prop_assert_eq!(schema.admit(&mut again), [""; 0]);
        prop_assert_eq!(&again, &object);
        prop_assert!(object.get("other").is_none());
    }

    #[test]
    fn an_update_that_changes_nothing_passes(spec in values()) {
        let object = json!({"spec": spec});
        let mut errors = texts(&schema(), &object, Some(&object));
        errors.retain(|error| !error.starts_with("spec.pod.")); // objects that are embedded are always judged
        prop_assert_eq!(errors, [""; 0]);
    }
}
