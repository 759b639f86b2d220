//! Label selectors and field selectors of lists and watches.

use crate::{
    builtin,
    errors::StatusError,
    kinds::{Kind, Shape},
    selectable::{METADATA, of_kind},
    snapshot::Snapshot,
};

/// Selects objects of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    /// Dotted name of a field of the stored object, value, and whether the field has it or not.
    fields: Vec<(String, String, bool)>,
}

/// One condition on a label.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Missing,
    Above(i64),
    Below(i64),
}

impl Selector {
    /// Reads the query parameters `labelSelector` and `fieldSelector`.
    ///
    /// # Errors
    /// 400 for a text that is no selector, or a field by which objects of this kind are not selected.
    pub(crate) fn parse(kind: &Kind, labels: &str, fields: &str) -> Result<Self, StatusError> {
        let label = |part| {
            requirement(part).ok_or_else(|| {
                StatusError::bad_request(format!("unable to parse requirement: {part:?} is no condition on a label"))
            })
        };
        let labels = split_outside_parentheses(labels).into_iter().map(label).collect::<Result<_, _>>()?;
        let fields =
            split_unescaped(fields, ',').into_iter().map(|part| field(kind, &part)).collect::<Result<_, _>>()?;
        Ok(Self { labels, fields })
    }

    /// Reports whether an object is selected.
    pub(crate) fn matches(&self, object: &Snapshot) -> bool {
        let label = |key: &str| object.labels.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
        let field = |key: &str| object.fields.iter().find(|(name, _)| *name == key).map_or("", |(_, value)| value);
        self.labels.iter().all(|requirement| requirement.test.passes(label(&requirement.key)))
            && self.fields.iter().all(|(name, value, wanted)| (field(name) == value) == *wanted)
    }
}

impl Test {
    fn passes(&self, value: Option<&str>) -> bool {
        let has = |values: &[String]| value.is_some_and(|value| values.iter().any(|other| other == value));
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::In(values) => has(values),
            Self::NotIn(values) => !has(values),
            Self::Exists => value.is_some(),
            Self::Missing => value.is_none(),
            Self::Above(bound) => number().is_some_and(|number| number > *bound),
            Self::Below(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

/// Reads one condition on a label.
fn requirement(part: &str) -> Option<Requirement> {
    let part = part.trim();
    let is_key = |key: &str| {
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        !key.is_empty() && key.chars().all(is_name) && key.starts_with(|c: char| c.is_ascii_alphanumeric())
    };
    let is_value = |value: &str| value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    let make = |key: &str, test| is_key(key.trim()).then(|| Requirement { key: key.trim().to_owned(), test });
    if let Some(key) = part.strip_prefix('!') {
        return make(key, Test::Missing);
    }
    if let Some((head, values)) = part.strip_suffix(')').and_then(|part| part.split_once('(')) {
        let values: Vec<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
        let (key, word) = head.trim().split_once(char::is_whitespace)?;
        return match word.trim() {
            _ if !values.iter().all(|value| is_value(value)) => None,
            "in" => make(key, Test::In(values)),
            "notin" => make(key, Test::NotIn(values)),
            _ => None,
        };
    }
    let is_one = |value: &str| is_value(value.trim()).then(|| vec![value.trim().to_owned()]);
    if let Some((key, value)) = part.split_once("!=") {
        return make(key, Test::NotIn(is_one(value)?));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return make(key, Test::In(is_one(value)?));
    }
    if let Some((key, value)) = part.split_once('>') {
        return make(key, Test::Above(value.trim().parse().ok()?));
    }
    if let Some((key, value)) = part.split_once('<') {
        return make(key, Test::Below(value.trim().parse().ok()?));
    }
    make(part, Test::Exists)
}

/// Splits at commas that are in no parentheses; an empty text has no parts.
fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let is_separator = |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    };
    if text.trim().is_empty() { Vec::new() } else { text.split(is_separator).collect() }
}

/// Reads one condition on a field: `a=b`, `a==b` or `a!=b`.
fn field(kind: &Kind, part: &str) -> Result<(String, String, bool), StatusError> {
    let condition = part.split_once("!=").map(|(name, value)| (name, value, false));
    let condition = condition.or_else(|| {
        let (name, value) = part.split_once("==").or_else(|| part.split_once('='))?;
        Some((name, value, true))
    });
    let Some((name, value, wanted)) = condition else {
        return Err(StatusError::bad_request(format!("invalid selector: '{part}'; can't understand '{part}'")));
    };
    let of_kind = of_kind(kind);
    // An event has one name for it in each group.
    let is_here = |field: &&&str| {
        kind.name != "Event"
            || field.starts_with("regarding") == kind.group.contains("events")
            || !(field.starts_with("regarding") || field.starts_with("involvedObject"))
    };
    let known = METADATA.iter().chain(of_kind.iter().filter(is_here)).any(|field| *field == name);
    if !known {
        let has_own = !of_kind.is_empty() || matches!(kind.shape, Shape::Custom { .. });
        let message = if has_own {
            format!("field label not supported: {name}")
        } else {
            format!("{name:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        };
        return Err(StatusError::bad_request(message));
    }
    Ok((builtin::stored_field(kind, name), unescaped(value), wanted))
}

/// Splits at a character that is not escaped by a backslash; an empty text has no parts.
fn split_unescaped(text: &str, separator: char) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        if c == separator && !escaped {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(c);
        }
        escaped = c == '\\' && !escaped;
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Removes the backslashes that escape.
fn unescaped(value: &str) -> String {
    let mut escaped = false;
    let keep = |c: &char| {
        let drop = *c == '\\' && !escaped;
        escaped = drop;
        !drop
    };
    value.chars().filter(keep).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kinds::all;

    fn kind(name: &str) -> &'static Kind {
        all().iter().find(|found| found.name == name).unwrap()
    }

    fn parse(name: &str, labels: &str, fields: &str) -> Result<Selector, StatusError> {
        Selector::parse(kind(name), labels, fields)
    }

    fn matches(name: &str, labels: &str, fields: &str, object: &Value) -> bool {
        parse(name, labels, fields).unwrap().matches(&Snapshot::of(kind(name), &mut object.clone()))
    }

    #[test]
    fn labels_are_selected_by_each_operator() {
        let object = json!({ "metadata": { "labels": { "a": "x", "b/c": "", "n": "5" } } });
        let cases = [
            ("", true),
            ("a", true),
            ("!a", false),
            ("!z", true),
            ("z", false),
            ("a=x", true),
            ("a==x", true),
            ("a = x , n", true),
            ("a=y", false),
            ("a!=y", true),
            ("z!=y", true),
            ("a!=x", false),
            ("a in (w, x)", true),
            ("a in (w)", false),
            ("a notin (w,y)", true),
            ("z notin (w)", true),
            ("a notin (x)", false),
            ("b/c=", true),
            ("n>4", true),
            ("n>5", false),
            ("n<6", true),
            ("a<6", false),
            ("a in (x,y),n=5,!z", true),
        ];
        for (labels, expected) in cases {
            assert_eq!(matches("ConfigMap", labels, "", &object), expected, "{labels}");
        }
    }

    #[test]
    fn fields_are_selected_by_name() {
        let object = json!({ "metadata": { "name": "a", "namespace": "n" }, "status": { "phase": "x,y" } });
        let cases = [
            ("metadata.name=a,metadata.namespace==n", true),
            ("metadata.name!=a", false),
            ("status.phase=x\\,y", true),
            ("status.phase!=x", true),
        ];
        for (fields, expected) in cases {
            assert_eq!(matches("Pod", "", fields, &object), expected, "{fields}");
        }
    }

    #[test]
    fn events_of_the_newer_group_are_selected_as_they_are_stored() {
        let view = all().iter().find(|found| found.is_event_view()).unwrap();
        let mut object =
            json!({ "type": "Warning", "reportingComponent": "kubelet", "involvedObject": { "uid": "u" } });
        let kubelet = Snapshot::of(kind("Event"), &mut object);
        let nameless = Snapshot::of(kind("Event"), &mut json!({ "type": "Warning" }));
        for (fields, expected) in [
            ("type=Warning,reportingController!=recif-operator", (true, true)),
            ("type=Warning,reportingController!=kubelet", (false, true)),
            ("reportingController=kubelet,regarding.uid=u", (true, false)),
            ("type=Normal", (false, false)),
        ] {
            let selector = Selector::parse(view, "", fields).unwrap();
            assert_eq!((selector.matches(&kubelet), selector.matches(&nameless)), expected, "{fields}");
        }
    }

    #[test]
    fn what_is_no_selector_is_refused() {
        for labels in ["=", "a b", "a in x", "a in", "a,", "a in (x", "a>b", "-a", "a=b=c", "a on (b)"] {
            assert!(parse("ConfigMap", labels, "").is_err(), "{labels}");
        }
        for fields in ["metadata.name", "status.phase=x", "involvedObject.name=x"] {
            assert!(parse("ConfigMap", "", fields).is_err(), "{fields}");
        }
        assert!(parse("Event", "", "regarding.name=x").is_err(), "the core group has another name for it");
    }
}
