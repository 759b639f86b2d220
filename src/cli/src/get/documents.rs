//! Prints objects as JSON or YAML: one document each, or one list that is written while it is read.

use serde_json::Value;

use crate::{
    cluster::{ObjectTable, TableRow},
    error::CliError,
    output::{PrintFormat, json, yaml},
};

/// Writer of objects, one after the other.
#[derive(Debug)]
pub(super) struct Documents {
    output: PrintFormat,
    single: bool,
    written: usize,
}

impl Documents {
    /// Returns a writer. With `single` each object is a document of its own.
    pub(super) fn new(output: PrintFormat, single: bool) -> Self {
        Self { output, single, written: 0 }
    }

    /// Returns the text of the objects of a table.
    ///
    /// # Errors
    /// [`CliError::Encode`], which would be a defect.
    pub(super) fn page(&mut self, table: &ObjectTable) -> Result<String, CliError> {
        let mut text = String::new();
        for row in &table.rows {
            text += &self.object(&shown(row))?;
            self.written += 1;
        }
        Ok(text)
    }

    fn object(&self, object: &Value) -> Result<String, CliError> {
        let first = self.written == 0;
        Ok(match (self.output, self.single) {
            (PrintFormat::Yaml, true) if first => yaml("an object", object)?,
            (output, true) => output.document("an object", object)?,
            (PrintFormat::Yaml, false) => {
                let head = if first { "apiVersion: v1\nkind: List\nitems:\n" } else { "" };
                head.to_owned() + &yaml("an object", &[object])?
            }
            (_, false) => {
                let before = if first { JSON_HEAD } else { ",\n" };
                let text = json("an object", object)?.replace('\n', "\n    ");
                format!("{before}    {text}")
            }
        })
    }

    /// Returns the end of the list, or a whole empty list if there were no objects.
    pub(super) fn end(&self) -> String {
        match (self.output, self.single, self.written) {
            (_, true, _) => String::new(),
            (PrintFormat::Json, _, 0) => format!("{}]\n}}\n", JSON_HEAD.trim_end()),
            (PrintFormat::Json, ..) => "\n  ]\n}\n".into(),
            (PrintFormat::Yaml, _, 0) => "apiVersion: v1\nkind: List\nitems: []\n".into(),
            _ => String::new(),
        }
    }
}

const JSON_HEAD: &str = "{\n  \"apiVersion\": \"v1\",\n  \"kind\": \"List\",\n  \"items\": [\n";

/// Returns the object without the fields that only machines read, as kubectl shows it.
fn shown(row: &TableRow) -> Value {
    let mut object = row.object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn table(names: &[&str]) -> ObjectTable {
        let rows: Vec<_> = names
            .iter()
            .map(|name| {
                json!({ "cells": [], "object": { "kind": "Agent", "metadata": { "name": name, "managedFields": [{}] },
                    "spec": { "text": "a\nb" } } })
            })
            .collect();
        serde_json::from_value(json!({ "rows": rows })).unwrap()
    }

    fn read(output: PrintFormat, text: &str) -> Value {
        if output == PrintFormat::Json {
            serde_json::from_str(text).unwrap()
        } else {
            serde_yaml::from_str(text).unwrap()
        }
    }

    #[test]
    fn pages_make_one_list_that_can_be_read() {
        for output in [PrintFormat::Json, PrintFormat::Yaml] {
            for pages in [&[][..], &[&["a"][..]], &[&["a", "b"], &["c"]]] {
                let mut documents = Documents::new(output, false);
                let mut text: String = pages.iter().map(|names| documents.page(&table(names)).unwrap()).collect();
                text += &documents.end();
                let list = read(output, &text);
                let names: Vec<_> =
                    list["items"].as_array().unwrap().iter().map(|item| &item["metadata"]["name"]).collect();
                assert_eq!(names, pages.concat(), "{text}");
                assert_eq!(list["kind"], "List");
                assert!(!text.contains("managedFields"));
            }
        }
    }

    #[test]
    fn a_single_object_is_a_document() {
        for output in [PrintFormat::Json, PrintFormat::Yaml] {
            let mut documents = Documents::new(output, true);
            let text = documents.page(&table(&["a"])).unwrap() + &documents.end();
            assert_eq!(read(output, &text)["spec"]["text"], "a\nb");
            let next = documents.page(&table(&["b"])).unwrap();
            assert_eq!(next.starts_with("---\n"), output == PrintFormat::Yaml, "{next}");
        }
    }
}
