//! JSON as values of CEL, typed by the schema: `1` is a double where the schema says number.

use std::collections::HashMap;

use cel::common::{
    types::{CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString},
    value::Val,
};
use serde_json::{Number, Value};

use super::names::escape;
use crate::schema::structural::{DataType, StructuralSchema};

/// Converts a value. Fields that the schema does not name are hidden.
pub(super) fn convert<'v>(node: &StructuralSchema, value: &'v Value) -> Box<dyn Val + 'v> {
    match value {
        Value::Null => Box::new(CelNull),
        Value::Bool(value) => Box::new(CelBool::from(*value)),
        Value::Number(number) => convert_number(node, number),
        Value::String(text) => Box::new(CelString::from(text.as_str())),
        Value::Array(items) => {
            let items = node.items.iter().flat_map(|schema| items.iter().map(|item| convert(schema, item)));
            Box::new(CelList::from(items.collect::<Vec<_>>()))
        }
        Value::Object(fields) => {
            let fields = fields.iter().filter_map(|(name, field)| {
                let schema = node.readable_field(name)?;
                // The keys of a map are data, which nothing escapes.
                let is_key = node.additional.is_some() && !node.properties.contains_key(name);
                let key = if is_key { CelString::from(name.as_str()) } else { CelString::from(escape(name)?) };
                Some((CelMapKey::String(key), convert(schema, field)))
            });
            Box::new(CelMap::from(fields.collect::<HashMap<_, _>>()))
        }
    }
}

fn convert_number<'v>(node: &StructuralSchema, number: &Number) -> Box<dyn Val + 'v> {
    let float = number.as_f64().unwrap_or(f64::NAN);
    match (number.as_i64(), node.data_type) {
        (Some(_), Some(DataType::Number)) => Box::new(CelDouble::from(float)),
        (Some(integer), _) => Box::new(CelInt::from(integer)),
        (None, Some(DataType::Integer | DataType::IntOrString)) if float.fract() == 0.0 => {
            Box::new(CelInt::from(float as i64))
        }
        (None, _) => Box::new(CelDouble::from(float)),
    }
}
