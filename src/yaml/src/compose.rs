//! Composes documents from the events of the parser.

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};
use serde_json::{Map, Value};

use super::{
    document::{Document, FieldPosition, Places, Position, YamlError},
    place::push,
};

/// Most nodes of a document, with those that aliases repeat: a bound on documents that name themselves over and over.
const MAX_NODES: usize = 200_000;
/// Key of a mapping whose content is merged into the one around it.
const MERGE: &str = "<<";

/// Reads the documents of a text; empty ones are left out.
///
/// # Errors
/// The first error in the text.
pub fn read(text: &str) -> Result<Vec<Document>, YamlError> {
    let mut options = granit_parser::Options::default();
    options.set_emit_comments(false);
    let mut events = YamlEvents { parser: Parser::new_from_str_with_options(text, options) };
    let mut documents = Vec::new();
    while let Some((event, _)) = events.next()? {
        if !matches!(event, Event::DocumentStart(..)) {
            continue;
        }
        let mut composer =
            Composer { events: &mut events, anchors: HashMap::new(), places: Places::default(), nodes: 0 };
        let (event, span) = composer.next()?;
        let value = composer.node(event, span, None, &mut String::new())?;
        let places = composer.places;
        if !value.is_null() {
            documents.push(Document { value, places });
        }
    }
    Ok(documents)
}

/// Events of a text.
struct YamlEvents<'t> {
    parser: Parser<'t, StrInput<'t>>,
}

impl<'t> YamlEvents<'t> {
    fn next(&mut self) -> Result<Option<(Event<'t>, Span)>, YamlError> {
        self.parser.next_event().transpose().map_err(|error| scan_error(&error))
    }
}

fn scan_error(error: &ScanError) -> YamlError {
    let message = match error.kind() {
        granit_parser::ErrorKind::ExpectedBlockMappingKey => "expected a key".to_owned(),
        _ => error.info(),
    };
    let mark = error.marker();
    YamlError { at: Position { line: mark.line().max(1), column: mark.col() + 1 }, message }
}

fn start(span: &Span) -> Position {
    Position { line: span.start.line(), column: span.start.col() + 1 }
}

/// Composer of one document.
struct Composer<'e, 't> {
    events: &'e mut YamlEvents<'t>,
    /// Values of the anchors so far, each with the number of its nodes.
    anchors: HashMap<usize, (Value, usize)>,
    places: Places,
    nodes: usize,
}

impl<'t> Composer<'_, 't> {
    fn next(&mut self) -> Result<(Event<'t>, Span), YamlError> {
        let end = YamlError { at: self.places.start(), message: "the document does not end".to_owned() };
        self.events.next()?.ok_or(end)
    }

    /// Composes the node that begins with this event; `pointer` is its JSON pointer.
    fn node(
        &mut self,
        event: Event<'t>,
        span: Span,
        key: Option<Position>,
        pointer: &mut String,
    ) -> Result<Value, YamlError> {
        let at = start(&span);
        let fail = |message: String| YamlError { at, message };
        self.places.0.insert(pointer.clone(), FieldPosition { key, value: at });
        let before = self.nodes;
        self.nodes += 1;
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => (scalar(&text, style, tag.as_deref()).map_err(fail)?, anchor),
            Event::SequenceStart(_, anchor, _) => (self.sequence(pointer)?, anchor),
            Event::MappingStart(_, anchor, _) => (self.mapping(pointer)?, anchor),
            Event::Alias(anchor) => {
                let unfinished = || fail("this alias stands for what it is part of".to_owned());
                let (value, nodes) = self.anchors.get(&anchor).cloned().ok_or_else(unfinished)?;
                self.nodes += nodes;
                (value, 0)
            }
            _ => return Err(fail("a value is expected here".to_owned())),
        };
        if self.nodes > MAX_NODES {
            return Err(fail(format!("the document has more than {MAX_NODES} values")));
        }
        if anchor > 0 {
            self.anchors.insert(anchor, (value.clone(), self.nodes - before));
        }
        Ok(value)
    }

    fn sequence(&mut self, pointer: &mut String) -> Result<Value, YamlError> {
        let mut items = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::SequenceEnd) {
                return Ok(Value::Array(items));
            }
            let length = push(pointer, &items.len().to_string());
            items.push(self.node(event, span, None, pointer)?);
            pointer.truncate(length);
        }
    }

    fn mapping(&mut self, pointer: &mut String) -> Result<Value, YamlError> {
        let (mut fields, mut merged) = (Map::new(), Vec::new());
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::MappingEnd) {
                break;
            }
            let at = start(&span);
            let fail = |message: String| YamlError { at, message };
            let (name, is_merge) = match &event {
                Event::Scalar(text, style, ..) => (text.to_string(), *style == ScalarStyle::Plain && text == MERGE),
                Event::Alias(anchor) => match self.anchors.get(anchor) {
                    Some((Value::String(text), _)) => (text.clone(), false),
                    _ => return Err(fail("a key has to be a text".to_owned())),
                },
                _ => return Err(fail("a key has to be a text".to_owned())),
            };
            let (event, span) = self.next()?;
            let length = push(pointer, &name);
            let value = self.node(event, span, Some(at), pointer)?;
            pointer.truncate(length);
            if is_merge {
                merged.extend(sources(value).ok_or_else(|| fail(format!("{MERGE} takes mappings")))?);
            } else if fields.insert(name.clone(), value).is_some() {
                return Err(fail(format!("the key {name:?} is there twice")));
            }
        }
        // Fields of the mapping itself count, then those of the first source.
        for (name, value) in merged.into_iter().flatten() {
            fields.entry(name).or_insert(value);
        }
        Ok(Value::Object(fields))
    }
}

/// Returns the mappings that a merge key takes in; `None` for other values.
fn sources(value: Value) -> Option<Vec<Map<String, Value>>> {
    match value {
        Value::Object(fields) => Some(vec![fields]),
        Value::Array(items) => items
            .into_iter()
            .map(|item| match item {
                Value::Object(fields) => Some(fields),
                _ => None,
            })
            .collect(),
        _ => None,
    }
}

/// Returns the value of a scalar by its tag, else, if it is plain, by its form.
fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, String> {
    let tag = match tag {
        None => None,
        Some(tag) => Some(tag.core_suffix().ok_or_else(|| format!("the tag {} is unknown", tag.original()))?),
    };
    match (tag, style) {
        (Some("str"), _) => Ok(text.into()),
        (Some(_), _) | (None, ScalarStyle::Plain) => Ok(typed(text)),
        (None, _) => Ok(text.into()),
    }
}

/// Returns the value of a plain scalar.
fn typed(text: &str) -> Value {
    // All others are texts: numbers, booleans and null begin so, and are short.
    let may_be_other = |first: char| first.is_ascii_digit() || "+-.~nNtTfF".contains(first);
    match text.chars().next() {
        None => Value::Null,
        Some(first) if may_be_other(first) && text.len() <= 64 => match serde_yaml::from_str::<serde_yaml::Value>(text)
        {
            Ok(serde_yaml::Value::Null) => Value::Null,
            Ok(serde_yaml::Value::Bool(value)) => value.into(),
            // Infinity and NaN stay texts, for JSON has none.
            Ok(serde_yaml::Value::Number(number)) => {
                serde_json::to_value(&number).ok().filter(Value::is_number).unwrap_or_else(|| text.into())
            }
            _ => text.into(),
        },
        Some(_) => text.into(),
    }
}
