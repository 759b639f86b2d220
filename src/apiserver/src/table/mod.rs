//! Tables, as kubectl prints them: the columns of a kind, and the cells of an object.

mod columns;

use jiff::Timestamp;
use serde_json::{Value, json};

use self::columns::{CellSource, Column, NONE, columns};
use crate::{
    kinds::{Kind, Shape},
    object::{name, text},
};

/// Returns the definitions of the columns of a kind.
pub(crate) fn definitions(kind: &Kind) -> Value {
    let definition = |column: &Column| {
        let is_age_of_built_in = column.kind == "date" && !matches!(kind.shape, Shape::Custom { .. });
        let shown = if is_age_of_built_in { "string" } else { &column.kind };
        json!({
            "name": column.name, "type": shown, "format": column.format, "description": column.description,
            "priority": column.priority,
        })
    };
    columns(kind).iter().map(definition).collect()
}

/// Returns the cells of an object at a time; none for an object without name, such as that of a bookmark.
pub(crate) fn cells(kind: &Kind, object: &Value, now: Timestamp) -> Value {
    if name(object).is_empty() {
        return Value::Null;
    }
    let since = |time: &str| {
        let time = time.parse::<Timestamp>().ok();
        Value::from(time.map_or("<unknown>".to_owned(), |time| age(now.as_second() - time.as_second())))
    };
    let cell = |column: &Column| match &column.source {
        CellSource::Computed(cell) => cell(object),
        CellSource::Since(pointers) => {
            let mut times = pointers.iter().map(|pointer| text(object, pointer));
            since(times.find(|time| !time.is_empty()).unwrap_or_default())
        }
        CellSource::Path(path) => match find(object, path) {
            Some(found) if column.kind == "date" => since(found.as_str().unwrap_or_default()),
            Some(found) if matches!(column.kind.as_str(), "integer" | "number" | "boolean") => found.clone(),
            Some(Value::String(text)) => text.as_str().into(),
            Some(found) => found.to_string().into(),
            None if matches!(kind.shape, Shape::BuiltIn(_)) => NONE.into(),
            None => Value::Null,
        },
    };
    columns(kind).iter().map(cell).collect()
}

/// Finds the value at a JSON path of fields and of conditions such as `[?(@.type=="Ready")]`.
fn find<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut place = object;
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(condition) = rest.strip_prefix("[?(@.") {
            let (condition, after) = condition.split_once(")]")?;
            let (field, wanted) = condition.split_once("==")?;
            let wanted = wanted.trim_matches('"');
            place = place.as_array()?.iter().find(|item| item[field].as_str() == Some(wanted))?;
            rest = after;
        } else {
            let names = rest.strip_prefix('.')?;
            let end = names.find(['.', '[']).unwrap_or(names.len());
            let (field, after) = names.split_at(end);
            place = place.get(field)?;
            rest = after;
        }
    }
    Some(place)
}

/// Returns a duration in seconds as kubectl shows it: in one unit, or in two while the number is small.
fn age(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let years = days / 365;
    let with = |whole: i64, unit: &str, rest: i64, small: &str| {
        if rest == 0 { format!("{whole}{unit}") } else { format!("{whole}{unit}{rest}{small}") }
    };
    match seconds {
        ..=-2 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        _ if seconds < 120 => format!("{seconds}s"),
        _ if minutes < 10 => with(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => with(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => with(days, "d", hours % 24, "h"),
        _ if years < 2 => format!("{days}d"),
        _ if years < 8 => with(years, "y", days % 365, "d"),
        _ => format!("{years}y"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_shown_as_kubectl_does() {
        let cases = [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (599, "9m59s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (10_860, "3h1m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (176_400, "2d1h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (63_158_400, "2y1d"),
            (315_360_000, "10y"),
            (-1, "0s"),
            (-9, "<invalid>"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(age(seconds), expected, "{seconds}");
        }
    }

    #[test]
    fn a_path_leads_through_fields_and_conditions() {
        let object = json!({ "a": { "b": 1 }, "c": [{ "type": "X", "s": "1" }, { "type": "Y", "s": "2" }] });
        let cases = [
            (".a.b", Some(json!(1))),
            (".c[?(@.type==\"Y\")].s", Some(json!("2"))),
            (".c[?(@.type==\"Z\")].s", None),
            (".a.x", None),
        ];
        for (path, expected) in cases {
            assert_eq!(find(&object, path).cloned(), expected, "{path}");
        }
    }
}
