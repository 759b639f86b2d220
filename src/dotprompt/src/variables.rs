//! Variables of the outermost context that a template uses.

use std::collections::BTreeSet;

use handlebars::template::{Parameter, TemplateElement};

/// Variable of the outermost context.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Variable {
    /// All of them: `this`, `@root`.
    All,
    /// The variable of this name.
    Named(String),
}

impl Variable {
    /// Returns the variable that `path` begins with, inside that many scopes. `None`: it is found in one of those scopes, or
    /// above them all.
    fn of(path: &str, scopes: usize) -> Option<Self> {
        let (first, _) = split_path(path);
        let (rest, from_root) = match first.strip_prefix('@') {
            Some(rest) => (rest.strip_prefix("root")?, true),
            None => (first, false),
        };
        let parts: Vec<_> = rest.split(['/', '.']).filter(|part| !part.is_empty()).collect();
        let ups = rest.matches("..").count();
        let name = parts.last().filter(|last| **last != "this" && !rest.ends_with(".."));
        (from_root || ups == scopes)
            .then(|| name.map_or(Self::All, |name| Self::Named(name.trim_matches(['[', ']']).to_owned())))
    }
}

/// Adds the variables of the outermost context that `parameters` name inside that many scopes, as they were
/// written.
pub(super) fn collect_variables<'p>(
    parameters: impl IntoIterator<Item = &'p Parameter>,
    scopes: usize,
    found: &mut BTreeSet<Variable>,
) {
    for parameter in parameters {
        match parameter {
            Parameter::Subexpression(inner) => {
                if let TemplateElement::Expression(call) = inner.element.as_ref() {
                    collect_variables(call.params.iter().chain(call.hash.values()), scopes, found);
                }
            }
            Parameter::Path(_) => {
                found.extend(parameter.as_name().and_then(|path| Variable::of(path, scopes)));
            }
            _ => {}
        }
    }
}

/// Splits `a.b/[c d]` into `a`, `b` and `c d`. The start of a path (`this`, `../`, `@root`) stays with the first key.
pub(super) fn split_path(path: &str) -> (&str, Vec<&str>) {
    let mut parts = Vec::new();
    let mut start = usize::from(path.starts_with('@'));
    while start < path.len() {
        let rest = &path[start..];
        let length = if rest.starts_with('[') {
            rest.find(']').map_or(rest.len(), |end| end + 1)
        } else if rest.starts_with("..") {
            2
        } else {
            rest.find(['.', '/']).unwrap_or(rest.len())
        };
        parts.push((start, start + length));
        start += length + 1;
    }
    let begins = |part: &str| matches!(part, "" | "." | ".." | "this") || (part == "root" && path.starts_with('@'));
    let first = parts.iter().position(|(from, to)| !begins(&path[*from..*to]));
    let Some(first) = first else { return (path, Vec::new()) };
    let keys = parts[first + 1..].iter().map(|(from, to)| {
        let key = &path[*from..*to];
        key.strip_prefix('[').map_or(key, |key| key.strip_suffix(']').unwrap_or(key))
    });
    (&path[..parts[first].1], keys.collect())
}
