use serde_json::{Value, json};

use super::*;

fn pod() -> Pod {
    serde_json::from_value(json!({
        "metadata": { "name": "p", "namespace": "ns", "uid": "u", "labels": { "app": "a" }, "annotations": { "x/y": "z" } },
        "spec": { "serviceAccountName": "robot", "containers": [] },
    }))
    .unwrap()
}

fn objects() -> Objects {
    let data = |pairs: &[(&str, &str)]| pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    let mut objects = Objects::default();
    objects.config_maps.insert("m".into(), data(&[("A", "1"), ("B", "$(A)"), ("a=b", "x")]));
    objects.secrets.insert("s".into(), data(&[("A", "2")]));
    objects.secrets.insert("bytes".into(), [("k".to_owned(), vec![0xff])].into());
    objects
}

fn env(container: Value) -> Result<Vec<String>, String> {
    let mut object = json!({ "name": "c" });
    object.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
    let container: Container = serde_json::from_value(object).unwrap();
    let found = variables(&pod(), &container, &objects()).map_err(|error| error.to_string())?;
    Ok(found.into_iter().map(|(name, value)| format!("{name}={value}")).collect())
}

fn from(source: Value) -> Value {
    json!({ "env": [{ "name": "X", "valueFrom": source }] })
}

#[test]
fn of_two_sources_the_later_one_wins_and_env_wins_over_all() {
    let map = json!({ "configMapRef": { "name": "m" } });
    let secret = json!({ "secretRef": { "name": "s" } });
    assert_eq!(env(json!({ "envFrom": [map, secret] })).unwrap(), ["A=2", "B=$(A)"]);
    assert_eq!(
        env(json!({ "envFrom": [secret, map] })).unwrap(),
        ["A=1", "B=$(A)"],
        "a value of an object is not expanded"
    );
    let prefixed = json!({ "envFrom": [{ "prefix": "P_", "secretRef": { "name": "s" } }], "env": [{ "name": "P_A", "value": "3" }] });
    assert_eq!(env(prefixed).unwrap(), ["P_A=3"]);
    let gone = json!({ "envFrom": [{ "secretRef": { "name": "gone", "optional": true } }] });
    assert_eq!(env(gone).unwrap(), Vec::<String>::new());
}

#[test]
fn a_variable_refers_to_those_before_it() {
    let variables = json!({ "env": [
        { "name": "A", "value": "1" }, { "name": "B", "value": "$(A)$(C)" }, { "name": "C", "value": "3" }, { "name": "D" },
    ] });
    assert_eq!(env(variables).unwrap(), ["A=1", "B=1$(C)", "C=3", "D="]);
    let known = BTreeMap::from([("A".to_owned(), "1".to_owned()), ("".to_owned(), "e".to_owned())]);
    for (text, expected) in [
        ("", ""),
        ("$(A)", "1"),
        ("x$(A)y$(A)", "x1y1"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$A $", "$A $"),
        ("$(A", "$(A"),
        ("$(B)", "$(B)"),
        ("$($(A))", "$($(A))"),
        ("$()", "e"),
        ("é$(A)é", "é1é"),
    ] {
        assert_eq!(expand(text, &known), expected, "{text}");
    }
}

#[test]
fn values_come_from_keys_and_fields() {
    for (source, expected) in [
        (json!({ "configMapKeyRef": { "name": "m", "key": "A" } }), "X=1"),
        (json!({ "secretKeyRef": { "name": "s", "key": "A" } }), "X=2"),
        (json!({ "fieldRef": { "fieldPath": "metadata.name" } }), "X=p"),
        (json!({ "fieldRef": { "fieldPath": "metadata.uid" } }), "X=u"),
        (json!({ "fieldRef": { "fieldPath": "metadata.labels['app']" } }), "X=a"),
        (json!({ "fieldRef": { "fieldPath": "metadata.annotations['x/y']" } }), "X=z"),
        (json!({ "fieldRef": { "fieldPath": "metadata.labels['gone']" } }), "X="),
        (json!({ "fieldRef": { "fieldPath": "spec.serviceAccountName" } }), "X=robot"),
        (json!({ "fieldRef": { "fieldPath": "status.podIP" } }), "X=127.0.0.1"),
    ] {
        assert_eq!(env(from(source.clone())).unwrap(), [expected], "{source}");
    }
    for source in [
        json!({ "secretKeyRef": { "name": "gone", "key": "A", "optional": true } }),
        json!({ "secretKeyRef": { "name": "s", "key": "gone", "optional": true } }),
        json!({ "resourceFieldRef": { "resource": "limits.cpu" } }),
    ] {
        assert_eq!(env(from(source.clone())).unwrap(), Vec::<String>::new(), "{source}");
    }
}

#[test]
fn what_is_missing_is_told_in_the_kubelets_words() {
    for (container, expected) in [
        (json!({ "envFrom": [{ "secretRef": { "name": "gone" } }] }), "secret \"gone\" not found"),
        (json!({ "envFrom": [{ "configMapRef": { "name": "gone" } }] }), "configmap \"gone\" not found"),
        (from(json!({ "secretKeyRef": { "name": "gone", "key": "A" } })), "secret \"gone\" not found"),
        (from(json!({ "secretKeyRef": { "name": "s", "key": "B" } })), "couldn't find key B in Secret ns/s"),
        (from(json!({ "configMapKeyRef": { "name": "m", "key": "C" } })), "couldn't find key C in ConfigMap ns/m"),
    ] {
        assert_eq!(env(container).unwrap_err(), expected);
    }
    assert!(
        env(from(json!({ "fieldRef": { "fieldPath": "spec.x" } })))
            .unwrap_err()
            .starts_with("field spec.x cannot be read")
    );
    assert!(env(from(json!({ "secretKeyRef": { "name": "bytes", "key": "k" } }))).unwrap_err().contains("no text"));
}
