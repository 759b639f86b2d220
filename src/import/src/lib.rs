//! Turns objects of kagent, genkit-operator, Krypton and the upstream Récif operator into ours.
//!
//! It is pure: [`import()`] takes objects as they were read, and returns objects to print and a [`Line`] for each decision.
//! A source has a file or folder of its own ([`kagent`], [`genkit`], [`krypton`], [`recif`]) that reads an object leniently
//! by [`fields`] and builds ours as JSON, which [`output`] passes through the type of the kind: a value that the type does
//! not take is never printed, and the fields have the order of the type. The order of the input changes nothing, because
//! every step goes over the objects in the order of their names ([`world`]).

mod env;
mod fields;
mod genkit;
mod headers;
mod input;
mod kagent;
mod krypton;
mod line;
mod live;
mod metadata;
mod names;
mod needs;
mod output;
mod overlay;
mod passed_on;
mod period;
mod recif;
mod source;
mod subject;
mod world;

pub use self::{
    input::{ImportError, ImportOptions, SourceObject},
    line::{Class, Line},
    live::{ListedKind, NamedObject, listed_kinds, named_objects},
    source::Source,
};

use std::collections::BTreeSet;

use serde_json::Value;

use self::{subject::Subject, world::World};

/// Result of an import.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    /// Objects to print, in their order.
    pub objects: Vec<serde_yaml::Value>,
    /// Decisions, in the order of the objects.
    pub lines: Vec<Line>,
    /// Last line: what came in, what goes out, and how many lines of each class there are.
    pub summary: String,
}

impl Imported {
    /// Reports whether something had an effect there and has none here.
    pub fn is_lossy(&self) -> bool {
        self.lines.iter().any(|line| line.class == Class::Loss)
    }
}

/// Turns objects into ours.
///
/// # Errors
/// [`ImportError`]: a document that is no object, one that is there twice, or none of a source.
pub fn import(objects: &[SourceObject], options: &ImportOptions) -> Result<Imported, ImportError> {
    input::check(objects)?;
    let world = World::new(objects, options, targets)?;
    let (mut lines, mut outputs) = (Vec::new(), Vec::new());
    let subjects: Vec<_> = world.objects().map(|object| Subject::new(object, &world)).collect();
    subjects.iter().for_each(convert);
    let made: BTreeSet<_> = subjects.iter().flat_map(Subject::made).collect();
    for subject in subjects {
        subject.tell_left_out(&made);
        let (reported, made) = subject.finish();
        lines.extend(reported);
        outputs.extend(made);
    }
    let objects = output::sorted(outputs);
    let lines = line::sorted(lines);
    let summary = line::summary(&world.sources(), world.objects().count(), objects.len(), &lines);
    Ok(Imported { objects, lines, summary })
}

/// Returns the kinds of what an object of a source becomes.
fn targets(source: Source, object: &Value) -> &'static [&'static str] {
    match source {
        Source::Kagent => kagent::targets(object),
        Source::Genkit => genkit::targets(object),
        Source::Krypton => krypton::targets(object),
        Source::Recif => metadata::own_kind(object),
    }
}

fn convert(subject: &Subject<'_>) {
    match subject.source() {
        None => passed_on::pass_on(subject),
        Some(source) if subject.world.drops(source) => {
            subject.notes.skip("", "another source than --from names");
        }
        Some(Source::Kagent) => kagent::convert(subject),
        Some(Source::Genkit) => genkit::convert(subject),
        Some(Source::Krypton) => krypton::convert(subject),
        Some(Source::Recif) => recif::convert(subject),
    }
}
