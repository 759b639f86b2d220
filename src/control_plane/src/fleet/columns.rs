//! Printer columns of a kind, read from its CustomResourceDefinition and evaluated on objects as `kubectl get` does.

use crds::{ApiKind, agent_model};
use serde_json::Value;

/// Columns that a summary has as fields of their own.
const SUMMARY_COLUMNS: &[&str] = &["Phase", "Age", "Ready", "Reason", "Replicas", "Desired"];

/// Most characters of an agent's description that lists show.
const MAX_DESCRIPTION: usize = 120;

/// Printer column (`additionalPrinterColumns`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its title, such as `Model`.
    pub title: String,
    source: ColumnSource,
}

/// Source of a column's text.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ColumnSource {
    /// The field at this path.
    Path(Vec<ColumnPathStep>),
    /// The model of an agent, which may stand in several fields.
    AgentModel,
    /// The description of an agent, cut: `kubectl get` would show the whole text, so that the definition has no such column.
    AgentDescription,
}

/// Step of a [JSONPath](https://kubernetes.io/docs/reference/kubectl/jsonpath/), as far as the definitions use it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ColumnPathStep {
    /// `.field`
    Field(String),
    /// `[?(@.field=="value")]`: the first element for which the filter is true.
    First { field: String, value: String },
}

impl Column {
    /// Returns the columns of a kind that are not fields of a summary.
    pub fn of(kind: &ApiKind) -> Vec<Self> {
        let versions = kind.definition().spec.versions;
        let columns = versions.into_iter().flat_map(|version| version.additional_printer_columns.unwrap_or_default());
        let others = columns.filter(|column| !SUMMARY_COLUMNS.contains(&column.name.as_str()));
        let others = others.filter_map(|column| {
            let source = match (kind.name, column.name.as_str()) {
                ("Agent", "Model") => ColumnSource::AgentModel,
                _ => ColumnSource::Path(parse(&column.json_path)?),
            };
            Some(Self { title: column.name, source })
        });
        let description = Self { title: "Description".to_owned(), source: ColumnSource::AgentDescription };
        others.chain((kind.name == "Agent").then_some(description)).collect()
    }

    /// Returns its text for an object; `None`: the object does not have it.
    pub fn text(&self, object: &Value) -> Option<String> {
        let path = match &self.source {
            ColumnSource::AgentModel => return agent_model(object),
            ColumnSource::AgentDescription => return agent_description(object),
            ColumnSource::Path(path) => path,
        };
        let found = path.iter().try_fold(object, |value, step| match step {
            ColumnPathStep::Field(name) => value.get(name),
            ColumnPathStep::First { field, value: wanted } => {
                value.as_array()?.iter().find(|element| element.get(field).and_then(Value::as_str) == Some(wanted))
            }
        })?;
        match found {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        }
    }
}

/// Returns the first line of an agent's description, cut where it is long.
fn agent_description(agent: &Value) -> Option<String> {
    let line = agent.pointer("/spec/description")?.as_str()?.trim().lines().next()?;
    Some(match line.char_indices().nth(MAX_DESCRIPTION) {
        Some((end, _)) => format!("{}…", line[..end].trim_end()),
        None => line.to_owned(),
    })
}

fn parse(path: &str) -> Option<Vec<ColumnPathStep>> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(filter) = rest.strip_prefix("[?(@.") {
            let (condition, after) = filter.split_once(")]")?;
            let (field, value) = condition.split_once("==")?;
            steps.push(ColumnPathStep::First { field: field.to_owned(), value: value.trim_matches('"').to_owned() });
            rest = after;
        } else {
            let name = rest.strip_prefix('.')?;
            let end = name.find(['.', '[']).unwrap_or(name.len());
            steps.push(ColumnPathStep::Field(name[..end].to_owned()));
            rest = &name[end..];
        }
    }
    Some(steps)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_column_of_every_kind_is_understood() {
        for kind in crds::KINDS {
            let versions = kind.definition().spec.versions;
            for column in versions.iter().flat_map(|version| version.additional_printer_columns.iter().flatten()) {
                assert!(parse(&column.json_path).is_some(), "{}: {}", kind.name, column.json_path);
            }
        }
    }

    #[test]
    fn a_kinds_columns_are_those_that_are_no_fields_of_a_summary() {
        let titles = |kind: &str| -> Vec<String> {
            Column::of(ApiKind::find(kind).unwrap()).into_iter().map(|column| column.title).collect()
        };
        assert_eq!(titles("Flow"), ["Available", "Endpoint"]);
        assert_eq!(titles("Agent"), ["Endpoint", "Model", "Approvals", "Description"]);
    }

    #[test]
    fn a_path_finds_fields_and_elements() {
        let object =
            json!({ "status": { "n": 3, "conditions": [{ "type": "A" }, { "type": "Ready", "reason": "R" }] } });
        let text = |path: &str| {
            Column { title: String::new(), source: ColumnSource::Path(parse(path).unwrap()) }.text(&object)
        };
        assert_eq!(text(".status.n").as_deref(), Some("3"));
        assert_eq!(text(".status.conditions[?(@.type==\"Ready\")].reason").as_deref(), Some("R"));
        assert_eq!(text(".status.missing.n"), None);
        assert_eq!(parse("status[0]"), None);
    }

    #[test]
    fn an_agents_description_is_its_first_line_and_not_all_of_a_long_one() {
        let long = format!("{} {}", "é".repeat(MAX_DESCRIPTION - 1), "x".repeat(9));
        for (description, expected) in [
            (json!("\nSells pens.\nAnd ink."), Some("Sells pens.".to_owned())),
            (json!(long), Some(format!("{}…", "é".repeat(MAX_DESCRIPTION - 1)))),
            (json!("é".repeat(MAX_DESCRIPTION)), Some("é".repeat(MAX_DESCRIPTION))),
            (json!(""), None),
            (Value::Null, None),
        ] {
            assert_eq!(agent_description(&json!({ "spec": { "description": description } })), expected);
        }
        let columns = Column::of(ApiKind::find("Agent").unwrap());
        let description = columns.iter().find(|column| column.title == "Description").unwrap();
        assert_eq!(description.text(&json!({ "spec": { "description": "Sells." } })).as_deref(), Some("Sells."));
    }

    #[test]
    fn an_agents_model_is_the_one_that_it_asks() {
        let columns = Column::of(ApiKind::find("Agent").unwrap());
        let model = columns.iter().find(|column| column.title == "Model").unwrap();
        let spec = json!({ "modelId": "stub-echo", "modelRef": { "name": "seller" } });
        let of = |status: Value| model.text(&json!({ "spec": spec, "status": status }));
        assert_eq!(of(json!({ "model": "openai/seller" })).as_deref(), Some("openai/seller"));
        assert_eq!(of(json!({})).as_deref(), Some("seller"));
    }
}
