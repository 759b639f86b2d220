//! Applies JSON Patches ([RFC 6902](https://www.rfc-editor.org/rfc/rfc6902)) as the API server does: `test` treats null and a
//! missing field alike, and a patch that cannot be applied is a 422 without causes, which the operator reads as stale.

use machine::ApiError;
use serde_json::{Map, Value};

/// Returns the patched document, or the error of the first operation that fails.
pub(crate) fn patched(document: &Value, patch: &Value) -> Result<Value, ApiError> {
    let mut document = document.clone();
    for step in patch.as_array().expect("a JSON Patch is a list") {
        let path = step["path"].as_str().expect("a path");
        let done = match step["op"].as_str() {
            Some("test") => (document.pointer(path).unwrap_or(&Value::Null) == &step["value"]).then_some(()),
            Some("add") => parent(&mut document, path).map(|(fields, key)| {
                fields.insert(key, step["value"].clone());
            }),
            Some("remove") => parent(&mut document, path).and_then(|(fields, key)| fields.remove(&key).map(drop)),
            other => panic!("the operator sends no {other:?}"),
        };
        done.ok_or(ApiError::Stale)?;
    }
    Ok(document)
}

/// Sets the value at a JSON pointer, and creates the objects on the path; `None` removes it.
pub(crate) fn set(document: &mut Value, path: &str, value: Option<Value>) {
    let mut place = document;
    let mut keys = path.split('/').skip(1).map(unescape).peekable();
    while let Some(key) = keys.next() {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        let fields = place.as_object_mut().expect("just made");
        if keys.peek().is_none() {
            match value {
                Some(value) => drop(fields.insert(key, value)),
                None => drop(fields.remove(&key)),
            }
            return;
        }
        place = fields.entry(key).or_insert(Value::Null);
    }
}

/// Asserts that times have whole seconds, except those of the history: the API server would return a time with a fraction
/// changed.
pub(crate) fn assert_whole_seconds(status: &Value) {
    match status {
        Value::Object(fields) => {
            for (key, value) in fields {
                if let (true, Some(time)) =
                    (["lastTransitionTime", "nextAttemptAt"].contains(&key.as_str()), value.as_str())
                {
                    assert!(!time.contains('.'), "{key} {time} has a fraction of a second");
                }
                assert_whole_seconds(value);
            }
        }
        Value::Array(items) => items.iter().for_each(assert_whole_seconds),
        _ => {}
    }
}

/// Escapes one key of a JSON pointer.
pub(crate) fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

fn unescape(key: &str) -> String {
    key.replace("~1", "/").replace("~0", "~")
}

fn parent<'a>(document: &'a mut Value, path: &str) -> Option<(&'a mut Map<String, Value>, String)> {
    let (above, key) = path.rsplit_once('/')?;
    Some((document.pointer_mut(above)?.as_object_mut()?, unescape(key)))
}
