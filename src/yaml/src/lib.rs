//! Documents of YAML, with the place of each field: a message on a field names its line and column.
//!
//! The parser gives events with their places; from these the values are composed here. Plain scalars are typed by the library with
//! which every other YAML of ours is read.

mod compose;
mod document;
mod place;
#[cfg(test)]
mod tests;

pub use self::{
    compose::read,
    document::{Document, Places, Position, YamlError},
    place::pointer_of,
};
