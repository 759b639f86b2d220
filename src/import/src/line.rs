//! Lines that report what an import decided, and their order.

use std::{cell::RefCell, fmt};

use crate::source::Source;

/// Class of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// It had an effect there, and has none here.
    Loss,
    /// Its effect comes in another way, or a choice was made.
    Change,
    /// The user must act before it runs.
    Todo,
    /// It is left out, and nothing is lost.
    Skip,
}

impl Class {
    const ALL: [Self; 4] = [Self::Loss, Self::Change, Self::Todo, Self::Skip];

    /// Returns how much a class weighs: of several on one field, the heaviest stands for all.
    fn weight(self) -> u8 {
        match self {
            Self::Loss => 3,
            Self::Todo => 2,
            Self::Change => 1,
            Self::Skip => 0,
        }
    }

    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Loss => ("loss", "losses"),
            Self::Change => ("change", "changes"),
            Self::Todo => ("todo", "todos"),
            Self::Skip => ("skip", "skips"),
        }
    }
}

/// Decision about an object or a field of it. It never holds a value that may be a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Class of the decision.
    pub class: Class,
    /// Object of the input, as `KIND NS/NAME`.
    pub object: String,
    /// Field of that object; empty: the object as a whole.
    pub field: String,
    /// Text of the decision.
    pub text: String,
    /// Place in the order of the output.
    pub(crate) order: (usize, String, String),
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { class, object, field, text, .. } = self;
        let space = if field.is_empty() { "" } else { " " };
        write!(f, "{} {object}{space}{field}: {text}", class.words().0)
    }
}

/// Note on a field.
#[derive(Debug)]
struct Note {
    class: Class,
    field: String,
    /// Texts, in the order in which they were added.
    texts: Vec<String>,
}

/// Notes on one object. A field has one note: what is added later is put to it, and the class is the heaviest. The object as a
/// whole may have several.
#[derive(Debug, Default)]
pub(crate) struct Notes(RefCell<Vec<Note>>);

impl Notes {
    fn add(&self, class: Class, field: &str, text: impl Into<String>) {
        let text = text.into();
        let mut notes = self.0.borrow_mut();
        let known =
            notes.iter_mut().find(|note| note.field == field && (!field.is_empty() || note.texts.contains(&text)));
        let Some(known) = known else {
            notes.push(Note { class, field: field.to_owned(), texts: vec![text] });
            return;
        };
        if known.class.weight() < class.weight() {
            known.class = class;
        }
        if !known.texts.contains(&text) {
            known.texts.push(text);
        }
    }

    pub(crate) fn loss(&self, field: &str, text: impl Into<String>) {
        self.add(Class::Loss, field, text);
    }

    pub(crate) fn change(&self, field: &str, text: impl Into<String>) {
        self.add(Class::Change, field, text);
    }

    pub(crate) fn todo(&self, field: &str, text: impl Into<String>) {
        self.add(Class::Todo, field, text);
    }

    pub(crate) fn skip(&self, field: &str, text: impl Into<String>) {
        self.add(Class::Skip, field, text);
    }

    /// Returns the notes as lines on this object.
    pub(crate) fn lines(self, object: &str, order: &(usize, String, String)) -> Vec<Line> {
        let notes = self.0.into_inner().into_iter();
        let line = |Note { class, field, texts }: Note| {
            let (object, order) = (object.to_owned(), order.clone());
            Line { class, object, field, text: texts.join("; "), order }
        };
        notes.map(line).collect()
    }
}

/// Returns the lines in the order of the output, and those of one object in the order of its fields.
pub(crate) fn sorted(mut lines: Vec<Line>) -> Vec<Line> {
    lines.sort_by_cached_key(|line| (line.order.clone(), line.object.clone(), field_order(&line.field)));
    lines
}

/// Returns the place of a field: its parts in the order of the alphabet, and items by their number.
fn field_order(field: &str) -> Vec<(usize, String)> {
    let parts = field.split(['.', '[', ']']).filter(|part| !part.is_empty());
    parts
        .map(|part| part.parse::<usize>().map_or_else(|_| (0, part.to_owned()), |number| (number, String::new())))
        .collect()
}

/// Returns the last line.
pub(crate) fn summary(sources: &[Source], taken: usize, made: usize, lines: &[Line]) -> String {
    let sources: Vec<_> = sources.iter().map(|source| source.as_str()).collect();
    let objects = if taken == 1 { "object" } else { "objects" };
    let head = format!("{}: {taken} {objects} in, {made} out", sources.join(", "));
    let counts: Vec<_> = Class::ALL
        .into_iter()
        .map(|class| (class, lines.iter().filter(|line| line.class == class).count()))
        .filter(|(_, count)| *count > 0)
        .map(|(class, count)| format!("{count} {}", if count == 1 { class.words().0 } else { class.words().1 }))
        .collect();
    if counts.is_empty() { head } else { format!("{head}; {}", counts.join(", ")) }
}
