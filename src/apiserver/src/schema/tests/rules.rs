//! Rules in CEL: what they can read, what they answer, and what is refused when they are compiled.

use super::*;
use crate::schema::error::FieldErrorKind;

/// Returns the schema of a spec with fields of each type, and with one rule.
fn with_rule(rule: Value) -> Value {
    json!({
        "type": "object", "x-kubernetes-validations": [rule], "properties": {
            "text": {"type": "string"},
            "other": {"type": "string", "nullable": true},
            "int": {"type": "integer"},
            "double": {"type": "number"},
            "either": {"x-kubernetes-int-or-string": true},
            "flag": {"type": "boolean"},
            "namespace": {"type": "string"},
            "x-y.z": {"type": "string"},
            "list": {"type": "array", "items": {"type": "string"}},
            "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
            "part": {"type": "object", "properties": {"a": {"type": "string"}}},
            "parts": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
            "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "any": {"x-kubernetes-preserve-unknown-fields": true},
            "since": {"type": "string", "format": "date-time"},
        },
    })
}

fn answer(rule: &str, spec: Value) -> Vec<String> {
    let schema = of_spec(with_rule(json!({"rule": rule, "message": "no"})));
    texts(&schema, &json!({"spec": spec}), None)
}

#[test]
fn rules_see_values_by_their_types() {
    let spec = json!({
        "text": "Abc", "other": null, "int": 2, "double": 2, "either": "5%", "flag": true, "namespace": "n", "x-y.z": "q",
        "list": ["a", "b"], "set": ["s"], "map": {"in": 1, "b": 2}, "part": {"a": "x"}, "parts": [{"n": 1}, {"n": 2}],
        "open": {"hidden": 1}, "any": 1,
    });
    let holds = [
        "self.text == 'Abc' && size(self.text) == 3 && self.text.size() == 3",
        "self.text.matches('^[A-Z]') && matches(self.text, 'b') && !self.text.matches('^b')",
        "self.text.startsWith('Ab') && self.text.endsWith('bc') && self.text.contains('b')",
        "self.text.lowerAscii().replace('a', 'x') == 'xbc' && self.text.upperAscii() == 'ABC'",
        "self.text.split('b') == ['A', 'c'] && self.list.join('-') == 'a-b' && self.text.substring(1) == 'bc'",
        "self.text.charAt(1) == 'b' && self.text.indexOf('c') == 2 && self.text.lastIndexOf('A') == 0 && ' a '.trim() == 'a'",
        "bool('true') && dyn(self.int) == 2 && self.text != 'a' && self.int + 1 == 3 && self.int - 1 == 1 && self.int * 2 == 4",
        "has(self.other) && self.other == null",
        "self.int / 4 == 0 && self.double / 4.0 == 0.5 && double(self.int) == self.double",
        "self.int < 3 && self.int <= 2 && self.int > 1 && self.int >= 2 && -self.int == -2 && self.int % 2 == 0",
        "self.either == '5%' && string(self.int) == '2' && int('7') == 7",
        "self.flag ? self.int == 2 : self.int == 3",
        "self.__namespace__ == 'n' && self.x__dash__y__dot__z == 'q'",
        "'a' in self.list && self.list[1] == 'b' && self.list.all(x, size(x) == 1) && self.list.exists(x, x == 'b')",
        "self.list.exists_one(x, x == 'a') && self.list.map(x, x + x) == ['aa', 'bb'] && self.list.filter(x, x > 'a') == ['b']",
        "self.map['in'] == 1 && 'in' in self.map && self.map.all(k, self.map[k] > 0) && size(self.map) == 2 && self.map.b == 2",
        "has(self.part.a) && self.parts.exists(p, p.n == 2) && self.parts[0].n == 1",
        "has(self.open) && size(self.open) == 0",
        "self.set.all(a, self.set.exists_one(b, a == b))",
        "duration('90s') == duration('1m30s') && duration('1h') > duration('59m') && duration('-1s') < duration('0')",
        "{'a': 1}['a'] == 1 && [1, 2].size() == 2",
    ];
    for rule in holds {
        assert_eq!(answer(rule, spec.clone()), [""; 0], "{rule}");
        assert_eq!(answer(&format!("!({rule})"), spec.clone()), ["spec: Invalid value: no"], "{rule}");
    }
}

#[test]
fn a_field_that_is_missing_is_told_by_has_and_fails_otherwise() {
    assert_eq!(answer("!has(self.text) && !has(self.part)", json!({})), [""; 0]);
    assert_eq!(answer("has(self.part.a)", json!({})), ["spec: Invalid value: no such key: part evaluating rule: no"]);
    assert_eq!(answer("self.int == 1", json!({})), ["spec: Invalid value: no such key: int evaluating rule: no"]);
    assert_eq!(answer("!has(self.int) || self.int == 1", json!({})), [""; 0]);
}

#[test]
fn a_number_has_the_type_that_the_schema_says() {
    for (int, double) in [(json!(2), json!(2)), (json!(2.0), json!(2.0))] {
        let spec = json!({"int": int, "double": double, "either": 2});
        let rule = "self.int % 2 == 0 && self.double * 0.5 == 1.0 && self.either % 2 == 0";
        assert_eq!(answer(rule, spec), [""; 0], "{int} {double}");
    }
}

#[test]
fn errors_of_evaluation_are_in_the_words_of_cel_go() {
    let spec = json!({"int": 0, "either": "a"});
    let rows = [
        ("1 / self.int == 1", "division by zero evaluating rule: no"),
        ("1 % self.int == 1", "modulus by zero evaluating rule: no"),
        ("9223372036854775807 + 1 + self.int > 0", "integer overflow evaluating rule: no"),
        ("duration('1 d') > duration('1s')", "time: invalid duration \"1 d\" evaluating rule: no"),
        (
            "self.either > 1",
            "'no such overload': call arguments did not match a supported operator, function or macro signature for rule: no",
        ),
    ];
    for (rule, expected) in rows {
        assert_eq!(answer(rule, spec.clone()), [format!("spec: Invalid value: {expected}")], "{rule}");
    }
}

#[test]
fn an_error_shows_a_scalar_and_leaves_out_an_object_or_a_list() {
    let rule = json!([{"rule": "size(self) > 2", "message": "too short"}]);
    let text = json!({"type": "string", "x-kubernetes-validations": rule});
    assert_eq!(violations(&text, json!("ab")), [r#"spec.f: Invalid value: "ab": too short"#]);
    let list = json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-validations": rule});
    assert_eq!(violations(&list, json!(["ab"])), ["spec.f: Invalid value: too short"]);
    let map = json!({"type": "object", "additionalProperties": text});
    assert_eq!(violations(&map, json!({"k": "ab"})), [r#"spec.f[k]: Invalid value: "ab": too short"#]);
    let nullable = json!({"type": "string", "nullable": true, "x-kubernetes-validations": rule});
    assert_eq!(violations(&nullable, json!(null)), [""; 0], "a null is not judged");
}

#[test]
fn a_rule_says_message_reason_and_path() {
    let rows = [
        (json!({"rule": " self.flag "}), "spec: Invalid value: failed rule: self.flag", FieldErrorKind::Invalid),
        (json!({"rule": "self.flag", "message": " no "}), "spec: Invalid value: no", FieldErrorKind::Invalid),
        (
            json!({"rule": "self.flag", "message": "no", "messageExpression": "'not ' + self.text"}),
            "spec: Invalid value: not Abc",
            FieldErrorKind::Invalid,
        ),
        (
            json!({"rule": "self.flag", "message": "no", "messageExpression": "self.part.a"}),
            "spec: Invalid value: no",
            FieldErrorKind::Invalid,
        ),
        (
            json!({"rule": "self.flag", "message": "no", "messageExpression": "'  '"}),
            "spec: Invalid value: no",
            FieldErrorKind::Invalid,
        ),
        (
            json!({"rule": "self.flag", "message": "no", "messageExpression": "'a\\nb'"}),
            "spec: Invalid value: no",
            FieldErrorKind::Invalid,
        ),
        (
            json!({"rule": "self.flag", "message": "no", "fieldPath": ".part.a"}),
            "spec.part.a: Invalid value: no",
            FieldErrorKind::Invalid,
        ),
        (
            json!({"rule": "self.flag", "message": "no", "reason": "FieldValueForbidden"}),
            "spec: Forbidden: no",
            FieldErrorKind::Forbidden,
        ),
        (
            json!({"rule": "self.flag", "message": "no", "reason": "FieldValueRequired"}),
            "spec: Required value: no",
            FieldErrorKind::Required,
        ),
        (
            json!({"rule": "self.flag", "message": "no", "reason": "FieldValueDuplicate"}),
            "spec: Duplicate value",
            FieldErrorKind::Duplicate,
        ),
    ];
    for (rule, expected, kind) in rows {
        let errors = of_spec(with_rule(rule.clone())).validate(&json!({"spec": {"flag": false, "text": "Abc"}}), None);
        let found: Vec<_> = errors.iter().map(|error| (error.to_string(), error.kind)).collect();
        assert_eq!(found, [(expected.to_owned(), kind)], "{rule}");
    }
}

#[test]
fn a_rule_on_the_object_reads_the_names_in_its_metadata() {
    let schema = |rule: &str, path: &str| {
        let rules = json!([{"rule": rule, "message": "no", "fieldPath": path}]);
        Schema::compile(&json!({"type": "object", "properties": {}, "x-kubernetes-validations": rules}))
    };
    let object = json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "abc", "labels": {"a": "b"}}});
    let schema_of_name = schema("size(self.metadata.name) <= 2", ".metadata.name").unwrap();
    assert_eq!(texts(&schema_of_name, &object, None), ["metadata.name: Invalid value: no"]);
    let of_kind =
        schema("self.kind == 'K' && self.apiVersion == 'g/v1' && !has(self.metadata.generateName)", "").unwrap();
    assert_eq!(texts(&of_kind, &object, None), [""; 0]);
    let of_object = schema("self.kind == 'L'", "").unwrap();
    assert_eq!(texts(&of_object, &object, None), ["<nil>: Invalid value: no"]);
    assert_eq!(
        schema("has(self.metadata.labels)", "").unwrap_err(),
        "schema: rule has(self.metadata.labels): undefined field 'labels'"
    );
}

#[test]
fn rules_wait_until_types_and_counts_are_right() {
    let schema = of_spec(json!({
        "type": "object", "properties": {"int": {"type": "integer"}, "text": {"type": "string", "pattern": "^a"}},
        "x-kubernetes-validations": [{"rule": "self.int > 5", "message": "no"}],
    }));
    let unchecked = "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; \
                     correct the existing errors to complete validation";
    let limits = [
        (json!({"type": "array", "items": {"type": "string"}, "maxItems": 0}), json!(["a"])),
        (json!({"type": "string", "maxLength": 0}), json!("a")),
        (json!({"type": "string", "enum": ["b"]}), json!("a")),
        (json!({"type": "object", "properties": {}, "required": ["a"]}), json!({})),
    ];
    for (limited, value) in limits {
        let failing = json!([{"rule": "size(self) > 5", "message": "no"}]);
        let ruled = json!({"type": "string", "x-kubernetes-validations": failing});
        let schema = of_spec(json!({"type": "object", "properties": {"f": limited, "ruled": ruled}}));
        let errors = texts(&schema, &json!({"spec": {"f": value, "ruled": "a"}}), None);
        assert_eq!(errors.len(), 2, "{errors:?}");
        assert_eq!(errors[1], unchecked);
    }
    assert_eq!(
        texts(&schema, &json!({"spec": {"int": "1"}}), None),
        [r#"spec.int: Invalid value: "string": spec.int in body must be of type integer: "string""#, unchecked]
    );
    assert_eq!(
        texts(&schema, &json!({"spec": {"int": 1, "text": "b"}}), None),
        [r#"spec.text: Invalid value: "b": spec.text in body should match '^a'"#, "spec: Invalid value: no"]
    );
}

#[test]
fn a_rule_that_is_wrong_or_not_supported_does_not_compile() {
    let rows = [
        (json!({"rule": "self.misspelt == 1"}), "undefined field 'misspelt'"),
        (json!({"rule": "has(self.part.b)"}), "undefined field 'b'"),
        (json!({"rule": "self.namespace == ''"}), ""),
        (json!({"rule": "self.parts.all(p, p.m == 1)"}), "undefined field 'm'"),
        (json!({"rule": "self.parts[0].m == 1"}), "undefined field 'm'"),
        (json!({"rule": "self.open.hidden == 1"}), "undefined field 'hidden'"),
        (json!({"rule": "has(self.any)"}), "undefined field 'any'"),
        (json!({"rule": "self.text.a == ''"}), "undefined field 'a'"),
        (json!({"rule": "other == 1"}), "undeclared reference to 'other'"),
        (json!({"rule": "[1].all(x, true) && x == 1"}), "undeclared reference to 'x'"),
        (json!({"rule": "quantity(self.text).isInteger()"}), "function isInteger is not supported"),
        (json!({"rule": "isURL(self.text)"}), "function isURL is not supported"),
        (json!({"rule": "self.text.reverse() == ''"}), "function reverse is not supported"),
        (json!({"rule": "optional.of(1).hasValue()"}), "function of is not supported"),
        (json!({"rule": "self.?text.hasValue()"}), "function _?._ is not supported"),
        (json!({"rule": "self.since == self.since"}), "timestamps are not supported"),
        (json!({"rule": "self.set == self.list"}), "of a list that is a set or a map is not supported"),
        (json!({"rule": "self == oldSelf"}), "of a list that is a set or a map is not supported"),
        (json!({"rule": "self.text.matches('(')"}), "unclosed group"),
        (json!({"rule": "self.text =="}), ""),
        (json!({"rule": ""}), ""),
        (json!({"rule": "true", "messageExpression": "self.misspelt"}), "undefined field 'misspelt'"),
        (json!({"rule": "true", "fieldPath": ".misspelt"}), "fieldPath .misspelt does not refer to a valid field"),
        (json!({"rule": "true", "fieldPath": "['text']"}), "fieldPath ['text'] is not supported"),
        (json!({"rule": "true", "reason": "FieldValueOdd"}), "reason FieldValueOdd is unknown"),
        (json!({"rule": "true", "when": "always"}), "when is not supported"),
    ];
    for (rule, expected) in rows {
        let whole = json!({"type": "object", "properties": {"spec": with_rule(rule.clone())}});
        let error = Schema::compile(&whole).unwrap_err();
        assert!(error.starts_with("spec: rule ") && error.contains(expected), "{rule}: {error}");
    }
}
