//! `docs/api.md`: the fields of every kind, from the schemas of the CRDs.

use std::fmt::Write as _;

use serde_json::Value;

use super::{GENERATED, renew};

const INTRO: &str = "# API

The kinds of `agents.recif.dev/v1` with all their fields, as `kubectl explain` shows them. `[]` stands for the items of a list, `{}` for the
values of a map. The rules below a table are checked by the API server, too.
";

/// Fields whose types are those of Kubernetes: `kubectl explain` and its documentation describe them.
const OF_KUBERNETES: [&str; 6] = ["env", "envFrom", "resources", "conditions", "selector", "podTemplate"];

/// Returns a text for a cell of a table.
fn cell(text: &str) -> String {
    let escape = |char: char| match char {
        '<' => "&lt;".into(),
        '|' | '*' | '_' | '`' => format!("\\{char}"),
        char => char.to_string(),
    };
    text.chars().map(escape).collect()
}

fn type_of(schema: &Value) -> String {
    let name = schema["type"].as_str();
    let of_items = schema.get("items").map(type_of);
    let of_values = schema.get("additionalProperties").filter(|values| values.is_object()).map(type_of);
    match (of_items, of_values) {
        (Some(items), _) => format!("list of {items}"),
        (_, Some(values)) => format!("map of {values}"),
        _ if schema["x-kubernetes-int-or-string"] == true => "integer or string".into(),
        _ => name.unwrap_or("any").into(),
    }
}

/// Appends the rows of the fields of a schema, and collects the rules on them.
fn rows(path: &str, schema: &Value, page: &mut String, rules: &mut Vec<String>) {
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        rules.push(format!("- `{path}`: {}\n", cell(rule["message"].as_str().unwrap_or_default())));
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let is_required = schema["required"].as_array().is_some_and(|names| names.contains(&name.as_str().into()));
        let required = if is_required { ", required" } else { "" };
        let description = cell(field["description"].as_str().unwrap_or_default());
        let _ = writeln!(page, "| `{path}` | {}{required} | {description} |", type_of(field));
        if !OF_KUBERNETES.contains(&name.as_str()) {
            rows(&path, field, page, rules);
        }
    }
    for (key, suffix) in [("items", "[]"), ("additionalProperties", "{}")] {
        if let Some(inner) = schema.get(key).filter(|inner| inner.is_object()) {
            rows(&format!("{path}{suffix}"), inner, page, rules);
        }
    }
}

fn page() -> String {
    let mut page = format!("{GENERATED}{INTRO}");
    for kind in crds::KINDS {
        let definition = serde_json::to_value(kind.definition()).unwrap();
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let description = cell(schema["description"].as_str().unwrap());
        let _ = write!(page, "\n## {}\n\n{description} Short name: `{}`.\n", kind.name, kind.short);
        for part in ["spec", "status"] {
            let mut rules = Vec::new();
            page += "\n| field | type | |\n|---|---|---|\n";
            rows(part, &schema["properties"][part], &mut page, &mut rules);
            if !rules.is_empty() {
                let _ = write!(page, "\nRules:\n\n{}", rules.concat());
            }
        }
    }
    page
}

#[test]
fn the_page_of_the_api_is_what_the_crds_say() {
    let page = page();
    for row in ["| `spec.scaling.minReplicas` |", "| `spec.flows[].name` | string, required |", "| `status.phase` |"] {
        assert!(page.contains(row), "no {row}");
    }
    renew("docs/api.md", &page);
}
