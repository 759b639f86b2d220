//! Checks the import of manifests.

use import::{ImportOptions, Source, SourceObject, import};
use serde_json::{Deserializer, Value};

/// Checks that the order of the objects changes nothing. The input is one JSON value after another.
pub fn import_objects(bytes: &[u8]) {
    let values = Deserializer::from_slice(bytes).into_iter::<Value>().map_while(Result::ok);
    let object =
        |(number, value): (usize, Value)| SourceObject { value, at: format!("input:{number}"), is_context: false };
    let mut objects: Vec<SourceObject> = values.enumerate().map(object).collect();
    for from in [None, Some(Source::Recif)] {
        let options = ImportOptions { from, live: false, operator_namespace: "recif-system".into() };
        let found = import(&objects, &options);
        objects.reverse();
        let other = import(&objects, &options);
        assert_eq!(found.is_ok(), other.is_ok(), "{found:?} {other:?}");
        if let (Ok(found), Ok(other)) = (found, other) {
            assert_eq!(found, other);
        }
    }
}
