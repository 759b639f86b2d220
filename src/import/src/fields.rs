//! Reads the fields of an object leniently. A field that the importer does not read is reported as unknown; one of another type is
//! left out and reported.

use std::{cell::RefCell, collections::BTreeSet};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::{line::Notes, period};

/// Fields of an object or of a part of it. When it goes out of scope, the fields that were not read are reported.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    map: Option<&'a Map<String, Value>>,
    path: String,
    /// `apiVersion KIND` of the object.
    of: &'a str,
    notes: &'a Notes,
    read: RefCell<BTreeSet<&'a str>>,
}

impl<'a> Fields<'a> {
    /// Returns the fields of an object.
    pub(crate) fn new(object: &'a Value, of: &'a str, notes: &'a Notes) -> Self {
        Self { map: object.as_object(), path: String::new(), of, notes, read: RefCell::default() }
    }

    /// Returns the path of a field.
    pub(crate) fn path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Returns the path of these fields.
    pub(crate) fn own_path(&self) -> &str {
        &self.path
    }

    /// Returns a value; `null` is none.
    pub(crate) fn value(&self, key: &str) -> Option<&'a Value> {
        let (key, value) = self.map?.get_key_value(key)?;
        self.read.borrow_mut().insert(key);
        Some(value).filter(|value| !value.is_null())
    }

    /// Reports whether a field is set, without reading it.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.map.and_then(|map| map.get(key)).is_some_and(|value| !value.is_null())
    }

    /// Reports whether no field is set.
    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_none_or(Map::is_empty)
    }

    /// Takes all fields as read.
    pub(crate) fn ignore(&self) {
        self.read.borrow_mut().extend(self.map.into_iter().flat_map(Map::keys).map(String::as_str));
    }

    /// Returns a text; an empty one is none.
    pub(crate) fn text(&self, key: &str) -> Option<&'a str> {
        let value = self.value(key)?;
        let text = value.as_str();
        if text.is_none() {
            self.refuse(key, "text");
        }
        text.filter(|text| !text.is_empty())
    }

    /// Returns a text, or a number as text.
    pub(crate) fn text_or_number(&self, key: &str) -> Option<String> {
        match self.value(key)? {
            Value::Number(number) => Some(number.to_string()),
            _ => self.text(key).map(str::to_owned),
        }
    }

    /// Returns a whole number.
    pub(crate) fn int(&self, key: &str) -> Option<i64> {
        let value = self.value(key)?;
        let number = value.as_i64();
        if number.is_none() {
            self.refuse(key, "whole number");
        }
        number
    }

    /// Returns whether a field is true.
    pub(crate) fn flag(&self, key: &str) -> bool {
        let Some(value) = self.value(key) else { return false };
        if !value.is_boolean() {
            self.refuse(key, "boolean");
        }
        value == true
    }

    /// Returns the fields of a part; none if it is not there.
    pub(crate) fn part(&self, key: &str) -> Fields<'a> {
        let value = self.value(key);
        if value.is_some_and(|value| !value.is_object()) {
            self.refuse(key, "object");
        }
        self.inner(value, self.path(key))
    }

    /// Returns the items of a list, each as fields.
    pub(crate) fn parts(&self, key: &str) -> Vec<Fields<'a>> {
        let items = self.items(key).iter().enumerate();
        items.map(|(index, item)| self.inner(Some(item), format!("{}[{index}]", self.path(key)))).collect()
    }

    /// Returns the texts of a list.
    pub(crate) fn texts(&self, key: &str) -> Vec<&'a str> {
        let items = self.items(key);
        let texts: Vec<_> = items.iter().filter_map(Value::as_str).collect();
        if texts.len() < items.len() {
            self.refuse(key, "list of texts");
        }
        texts
    }

    /// Returns the entries of a map.
    pub(crate) fn entries(&self, key: &str) -> Vec<(&'a str, &'a Value)> {
        let Some(value) = self.value(key) else { return Vec::new() };
        match value.as_object() {
            Some(map) => map.iter().map(|(key, value)| (key.as_str(), value)).collect(),
            None => {
                self.refuse(key, "object");
                Vec::new()
            }
        }
    }

    /// Returns the items of a list.
    pub(crate) fn items(&self, key: &str) -> &'a [Value] {
        match self.value(key) {
            None => &[],
            Some(Value::Array(items)) => items,
            Some(_) => {
                self.refuse(key, "list");
                &[]
            }
        }
    }

    /// Returns a value that a type takes, as it is written; `what` says what the type is.
    pub(crate) fn typed<T: DeserializeOwned + Serialize>(&self, key: &str, what: &str) -> Option<Value> {
        let value = quantities(self.value(key)?);
        // The text of the error may repeat the value, so it is not printed.
        if serde_json::from_value::<T>(value.clone()).is_err() {
            self.refuse(key, what);
            return None;
        }
        Some(value)
    }

    /// Returns a length of time that a field of ours takes, between two numbers of seconds; reports a change.
    pub(crate) fn period(&self, key: &str, least: u64, most: u64) -> Option<String> {
        let text = self.text(key)?;
        let Some(fixed) = period::fixed(text, least, most) else {
            self.refuse(key, "length of time");
            return None;
        };
        if fixed != text {
            self.notes.change(&self.path(key), format!("is now {fixed:?}"));
        }
        Some(fixed)
    }

    fn refuse(&self, key: &str, what: &str) {
        self.notes.skip(&self.path(key), format!("is no {what}"));
    }

    fn inner(&self, value: Option<&'a Value>, path: String) -> Self {
        let map = value.and_then(Value::as_object);
        Self { map, path, of: self.of, notes: self.notes, read: RefCell::default() }
    }
}

impl Drop for Fields<'_> {
    fn drop(&mut self) {
        let read = self.read.borrow();
        let keys = self.map.into_iter().flat_map(Map::keys);
        for key in keys.filter(|key| !read.contains(key.as_str())) {
            self.notes.skip(&self.path(key), format!("is no field of {}", self.of));
        }
    }
}

/// Returns a value in which numbers that stand for quantities (`cpu: 1`) are texts, as the API server stores them.
pub(crate) fn quantities(value: &Value) -> Value {
    const LISTS: [&str; 2] = ["limits", "requests"];
    match value {
        Value::Object(map) => Value::Object(
            map.iter()
                .map(|(key, value)| match value {
                    Value::Object(amounts) if LISTS.contains(&key.as_str()) => {
                        let text =
                            |value: &Value| if value.is_number() { value.to_string().into() } else { value.clone() };
                        (key.clone(), Value::Object(amounts.iter().map(|(key, it)| (key.clone(), text(it))).collect()))
                    }
                    value => (key.clone(), quantities(value)),
                })
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(quantities).collect()),
        other => other.clone(),
    }
}
