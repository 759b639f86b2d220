//! JSON of the user in a fixed order.

use serde::{Serialize, Serializer};
use serde_json::Value;

/// Value from the user that is serialized with the keys of its objects in byte order, independent of the map type.
#[derive(Debug)]
pub(super) struct Sorted<'a>(pub(super) &'a Value);

impl Serialize for Sorted<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(fields) => {
                let mut fields: Vec<_> = fields.iter().collect();
                fields.sort_unstable_by_key(|(key, _)| *key);
                serializer.collect_map(fields.into_iter().map(|(key, field)| (key, Sorted(field))))
            }
            Value::Array(items) => serializer.collect_seq(items.iter().map(Sorted)),
            scalar => scalar.serialize(serializer),
        }
    }
}
