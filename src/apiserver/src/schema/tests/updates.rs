//! Updates: rules that compare with the value before, and what passes because it was so before.

use super::*;

fn rules(rule: Value) -> Value {
    json!([rule])
}

#[test]
fn a_transition_rule_is_only_for_updates() {
    let schema = of_field(json!({
        "type": "integer", "x-kubernetes-validations": rules(json!({"rule": "self >= oldSelf", "message": "may not shrink"})),
    }));
    let refused = ["spec.f: Invalid value: 1: may not shrink"];
    assert_eq!(texts(&schema, &with_field(json!(1)), None), [""; 0]);
    assert_eq!(texts(&schema, &with_field(json!(1)), Some(&json!({"spec": {}}))), [""; 0], "there was no value");
    assert_eq!(texts(&schema, &with_field(json!(1)), Some(&with_field(json!(1)))), [""; 0]);
    assert_eq!(texts(&schema, &with_field(json!(1)), Some(&with_field(json!(2)))), refused);
}

#[test]
fn an_optional_old_value_has_none_when_the_object_is_new() {
    let rule = json!({"rule": "self < 5 || (oldSelf.hasValue() && oldSelf.value() == self)", "optionalOldSelf": true, "message": "no"});
    let schema = of_field(json!({"type": "integer", "x-kubernetes-validations": rules(rule)}));
    let refused = ["spec.f: Invalid value: 7: no"];
    assert_eq!(texts(&schema, &with_field(json!(7)), None), refused);
    assert_eq!(texts(&schema, &with_field(json!(7)), Some(&with_field(json!(6)))), refused);
    assert_eq!(texts(&schema, &with_field(json!(7)), Some(&with_field(json!(7)))), [""; 0]);
    let or_value = json!({"rule": "self >= oldSelf.orValue(3)", "optionalOldSelf": true, "message": "no"});
    let schema = of_field(json!({"type": "integer", "x-kubernetes-validations": rules(or_value)}));
    assert_eq!(texts(&schema, &with_field(json!(2)), None), ["spec.f: Invalid value: 2: no"]);
    assert_eq!(texts(&schema, &with_field(json!(2)), Some(&with_field(json!(1)))), [""; 0]);
}

#[test]
fn items_are_compared_with_those_of_their_key_and_only_in_maps() {
    let item = json!({
        "type": "object", "properties": {"n": {"type": "string"}, "v": {"type": "integer"}},
        "x-kubernetes-validations": rules(json!({"rule": "self.v >= oldSelf.v", "message": "may not shrink"})),
    });
    let map =
        json!({"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"]});
    let atomic = json!({"type": "array", "items": item});
    let old = with_field(json!([{"n": "a", "v": 5}, {"n": "b", "v": 1}]));
    let new = with_field(json!([{"n": "b", "v": 2}, {"n": "c", "v": 0}, {"n": "a", "v": 4}]));
    assert_eq!(texts(&of_field(map), &new, Some(&old)), ["spec.f[2]: Invalid value: may not shrink"]);
    assert_eq!(texts(&of_field(atomic), &new, Some(&old)), [""; 0]);
}

#[test]
fn an_item_of_a_list_that_is_replaced_as_a_whole_is_judged_again_with_any_change_of_the_list() {
    let rule = json!({"rule": "size(self) < 3", "message": "no"});
    let schema = of_spec(json!({
        "type": "object", "properties": {
            "list": {"type": "array", "items": {"type": "string", "x-kubernetes-validations": rules(rule)}},
            "free": {"type": "string"},
        },
    }));
    let old = json!({"spec": {"list": ["abc"]}});
    assert_eq!(texts(&schema, &json!({"spec": {"list": ["abc"], "free": "a"}}), Some(&old)), [""; 0]);
    let longer = json!({"spec": {"list": ["abc", "a"]}});
    assert_eq!(texts(&schema, &longer, Some(&old)), [r#"spec.list[0]: Invalid value: "abc": no"#]);
}

#[test]
fn what_was_stored_under_an_older_schema_passes_while_it_stays_as_it_is() {
    let schema = of_spec(json!({
        "type": "object", "properties": {
            "short": {"type": "string", "maxLength": 2},
            "ruled": {"type": "string", "x-kubernetes-validations": rules(json!({"rule": "size(self) < 3", "message": "no"}))},
            "list": {"type": "array", "items": {"type": "string", "maxLength": 2}},
            "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "free": {"type": "string"},
        },
    }));
    let old = json!({"spec": {"short": "abc", "ruled": "abc", "list": ["abc"], "set": ["a", "a"]}});
    let mut new = old.clone();
    new["spec"]["free"] = json!("changed");
    assert_eq!(texts(&schema, &new, Some(&old)), [""; 0]);
    assert_eq!(texts(&schema, &json!({"spec": {"short": "abd"}}), Some(&old)).len(), 2, "and rules were not checked");
    assert_eq!(
        texts(&schema, &json!({"spec": {"ruled": "abd"}}), Some(&old)),
        [r#"spec.ruled: Invalid value: "abd": no"#]
    );
    let longer = json!({"spec": {"list": ["abc", "d"]}});
    assert_eq!(texts(&schema, &longer, Some(&old))[0], "spec.list[0]: Too long: may not be more than 2 bytes");
    assert_eq!(
        texts(&schema, &json!({"spec": {"set": ["b", "b"]}}), Some(&old)),
        [""; 0],
        "the old list had repeated items too"
    );
    let repeated = json!({"spec": {"set": ["a", "a"]}});
    assert_eq!(
        texts(&schema, &repeated, Some(&json!({"spec": {"set": ["a"]}}))),
        [r#"spec.set[1]: Duplicate value: "a""#]
    );
}
