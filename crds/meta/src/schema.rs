//! Shortens the schemas of Kubernetes' own types for `kubectl explain`, and gives lists their merge key.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::{JsonSchema, Schema, SchemaGenerator, transform::RecursiveTransform, transform::Transform};
use serde_json::Value;

pub(crate) fn conditions(generator: &mut SchemaGenerator) -> Schema {
    list_map::<Condition>(generator, "type")
}

/// Returns the schema of a list whose items are merged by `key`, as server-side apply does (`x-kubernetes-list-type: map`).
pub fn list_map<T: JsonSchema>(generator: &mut SchemaGenerator, key: &str) -> Schema {
    let mut schema = brief::<Vec<T>>(generator);
    let object = schema.ensure_object();
    object.insert("x-kubernetes-list-type".into(), "map".into());
    object.insert("x-kubernetes-list-map-keys".into(), vec![key].into());
    schema
}

/// Pattern of a quantity (`apimachinery/pkg/api/resource`), as in the definitions of other projects.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// Returns the schema of a type of Kubernetes, each description cut to its first sentence.
pub fn brief<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = generator.subschema_for::<T>();
    RecursiveTransform(|schema: &mut Schema| {
        if let Some(Value::String(text)) = schema.get_mut("description")
            && let Some(end) = text.find(". ").or_else(|| text.find(".\n"))
        {
            text.truncate(end + 1);
        }
        if schema.get("x-kubernetes-int-or-string").is_some() {
            schema.insert("pattern".into(), QUANTITY.into());
        }
    })
    .transform(&mut schema);
    schema
}
