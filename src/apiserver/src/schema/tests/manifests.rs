//! The CRDs that are shipped, and the good manifests of the end-to-end tests. That the bad ones are refused is tested through the
//! server, in `tests/manifests.rs`.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use proptest::prelude::*;
use serde::Deserialize as _;

use super::{admission::values, *};

/// Returns the YAML files of a folder in the repository, sorted, with their texts.
fn files(folder: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let entries = fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|end| end == "yaml")).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{folder} has no manifests");
    paths.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

fn documents(text: &str) -> Vec<Value> {
    let documents = serde_yaml::Deserializer::from_str(text).map(|document| Value::deserialize(document).unwrap());
    documents.filter(|document| !document.is_null()).collect()
}

/// Returns the schemas of the CRDs that are shipped, by kind. Each rule in them compiles.
fn schemas() -> BTreeMap<String, Schema> {
    let definitions = files("config/crd").into_iter().flat_map(|(_, text)| documents(&text));
    let definitions = definitions.filter(|document| document["kind"] == "CustomResourceDefinition");
    let schemas = definitions.map(|definition| {
        let kind = definition["spec"]["names"]["kind"].as_str().unwrap().to_owned();
        let schema = Schema::compile(&definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]);
        (kind.clone(), schema.unwrap_or_else(|error| panic!("{kind}: {error}")))
    });
    let schemas: BTreeMap<String, Schema> = schemas.collect();
    assert_eq!(schemas.len(), 9, "one per kind");
    schemas
}

/// An accepted object is stored, and a later write that does not change it must pass too.
#[test]
fn every_good_manifest_is_accepted_again_as_it_was_stored() {
    let schemas = schemas();
    for (path, text) in files("e2e/manifests/accept") {
        for mut object in documents(&text) {
            let schema = &schemas[object["kind"].as_str().unwrap()];
            schema.admit(&mut object);
            let mut again = object.clone();
            assert_eq!(schema.admit(&mut again), [""; 0], "{}", path.display());
            assert_eq!(again, object, "{}", path.display());
            assert_eq!(texts(schema, &again, Some(&object)), [""; 0], "{}", path.display());
        }
    }
}

/// Returns the JSON pointers of a value and of all its parts.
fn pointers(value: &Value, path: &str, found: &mut Vec<String>) {
    found.push(path.to_owned());
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, field)| {
            let name = name.replace('~', "~0").replace('/', "~1");
            pointers(field, &format!("{path}/{name}"), found);
        }),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| pointers(item, &format!("{path}/{index}"), found));
        }
        _ => {}
    }
}

/// The merge and the pruning read the schema each in its own way, and must agree on what is unknown.
#[test]
fn what_can_be_merged_has_no_unknown_fields_and_stays_as_it_was_admitted() {
    let schemas = schemas();
    let manifests: Vec<Value> =
        files("e2e/manifests/accept").into_iter().flat_map(|(_, text)| documents(&text)).collect();
    let manifest = prop::sample::select(manifests);
    proptest!(|(mut object in manifest, place in any::<prop::sample::Index>(), part in values())| {
        let schema = &schemas[object["kind"].as_str().unwrap()];
        let mut places = Vec::new();
        pointers(&object["spec"], "/spec", &mut places);
        let place: &String = place.get(&places);
        *object.pointer_mut(place).unwrap() = part;
        let errors = schema.check_types(&object);
        let removed = schema.admit(&mut object);
        prop_assert!(!errors.is_empty() || removed.is_empty(), "{:?} in {}", removed, object);
        let mut again = object.clone();
        prop_assert_eq!(schema.admit(&mut again), [""; 0]);
        prop_assert_eq!(&again, &object);
        let blocked = schema.validate(&object, None).iter().any(|error| error.message.contains("were not checked"));
        prop_assert!(!blocked || schema.validate(&object, None).len() > 1, "the reason is reported too");
    });
}
