//! Words of a command line that select objects, in the forms of kubectl, for commands that take several.

use crds::{ApiKind, KINDS};

use crate::{
    cluster::ReadError,
    error::CliError,
    output::hint,
    target::{check_name, find_kind},
};

/// Selection of objects.
#[derive(Debug, Clone)]
pub(crate) enum Selection {
    /// Every object of every kind.
    Everything,
    /// Every object of these kinds.
    Kinds(Vec<&'static ApiKind>),
    /// These objects.
    Objects(Vec<(&'static ApiKind, String)>),
}

impl Selection {
    /// Parses nothing, `KIND[,KIND…]`, `KIND[,KIND…] NAME…` or `KIND/NAME…`. What is named twice counts once.
    ///
    /// # Errors
    /// [`CliError::UnknownKind`], [`CliError::NoName`] or [`CliError::Usage`].
    pub(crate) fn parse(words: &[String]) -> Result<Self, CliError> {
        let Some((first, names)) = words.split_first() else { return Ok(Self::Everything) };
        let mut objects: Vec<(&'static ApiKind, String)> = Vec::new();
        let mut add = |kind: &'static ApiKind, name: &str| {
            check_name(name)?;
            if !objects.iter().any(|(known, given)| known.name == kind.name && given == name) {
                objects.push((kind, name.to_owned()));
            }
            Ok::<_, CliError>(())
        };
        if words.iter().any(|word| word.contains('/')) {
            for word in words {
                let (kind, name) = word.split_once('/').ok_or_else(|| mixed(word))?;
                let kind = if means_everything(kind) { return Err(nameless_kind()) } else { find_kind(kind)? };
                if name.is_empty() {
                    return Err(CliError::NoName(kind.name.to_lowercase()));
                }
                add(kind, name)?;
            }
            return Ok(Self::Objects(objects));
        }
        if means_everything(first) {
            return if names.is_empty() { Ok(Self::Everything) } else { Err(nameless_kind()) };
        }
        let mut kinds: Vec<&'static ApiKind> = Vec::new();
        for word in first.split(',') {
            let kind = find_kind(word).map_err(|error| error.without_kind(names.first().map_or("", String::as_str)))?;
            if !kinds.iter().any(|known| known.name == kind.name) {
                kinds.push(kind);
            }
        }
        if names.is_empty() {
            return Ok(Self::Kinds(kinds));
        }
        for kind in kinds {
            names.iter().try_for_each(|name| add(kind, name))?;
        }
        Ok(Self::Objects(objects))
    }

    /// Returns the kinds of which every object is selected; none if objects are named.
    pub(crate) fn kinds(&self) -> Vec<&'static ApiKind> {
        match self {
            Self::Everything => KINDS.iter().collect(),
            Self::Kinds(kinds) => kinds.clone(),
            Self::Objects(_) => Vec::new(),
        }
    }

    /// Returns what is selected if it is one kind or one object: the kind, and the name.
    pub(crate) fn single(&self) -> Option<(&'static ApiKind, Option<&str>)> {
        match self {
            Self::Kinds(kinds) if kinds.len() == 1 => kinds.first().map(|kind| (*kind, None)),
            Self::Objects(objects) if objects.len() == 1 => {
                objects.first().map(|(kind, name)| (*kind, Some(name.as_str())))
            }
            _ => None,
        }
    }

    /// Checks that names are not looked for in all namespaces.
    ///
    /// # Errors
    /// [`CliError::Usage`].
    pub(crate) fn check_namespaces(&self, all: bool) -> Result<(), CliError> {
        match self {
            Self::Objects(_) if all => {
                Err(CliError::Usage("a name is one of a namespace: use -n NAMESPACE instead of -A".into()))
            }
            _ => Ok(()),
        }
    }

    /// Returns what a list of these kinds has, for people.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Kinds(kinds) => kinds.iter().map(|kind| kind.plural).collect::<Vec<_>>().join(" or "),
            _ => "objects of Récif".into(),
        }
    }
}

fn means_everything(word: &str) -> bool {
    ["recif", "all"].iter().any(|all| word.eq_ignore_ascii_case(all))
}

fn nameless_kind() -> CliError {
    CliError::Usage("a name needs its kind: recif get agent my-agent".into())
}

fn mixed(word: &str) -> CliError {
    CliError::Usage(format!("{word:?} lacks its kind: write each object as KIND/NAME, or one kind and then its names"))
}

/// Returns the place of a list, as it follows `in`.
pub(crate) fn place(namespace: Option<&str>) -> String {
    namespace.map_or_else(|| "all namespaces".into(), |namespace| format!("namespace {namespace}"))
}

/// Prints a hint that a list is empty.
pub(crate) fn print_empty_hint(what: &str, namespace: Option<&str>) {
    let elsewhere = if namespace.is_some() { ": -A looks in all of them" } else { "" };
    let place = namespace.map_or_else(|| "any namespace".into(), |namespace| place(Some(namespace)));
    hint(&format!("no {what} in {place}{elsewhere}"));
}

/// Lists of several kinds: a caller with rights for some of them sees those.
#[derive(Debug, Default)]
pub(crate) struct ListOutcomes {
    refused: Vec<ReadError>,
    read: usize,
}

impl ListOutcomes {
    /// Takes the outcome of the list of one kind; `None` if the caller may not list it.
    ///
    /// # Errors
    /// Those other than a refusal.
    pub(crate) fn take<T>(&mut self, listed: Result<T, CliError>) -> Result<Option<T>, CliError> {
        match listed {
            Ok(list) => {
                self.read += 1;
                Ok(Some(list))
            }
            Err(CliError::Read(error)) if error.is_forbidden() => {
                self.refused.push(error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Prints the refusals.
    ///
    /// # Errors
    /// The last refusal, if every list was refused.
    pub(crate) fn finish(mut self) -> Result<(), CliError> {
        if self.read == 0
            && let Some(error) = self.refused.pop()
        {
            return Err(error.into());
        }
        self.refused.iter().for_each(|error| hint(&format!("note: {error}")));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(words: &[&str]) -> Result<Vec<String>, String> {
        let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        let selection = Selection::parse(&words).map_err(|error| error.to_string())?;
        Ok(match &selection {
            Selection::Everything => vec!["*".into()],
            Selection::Kinds(kinds) => kinds.iter().map(|kind| kind.name.to_owned()).collect(),
            Selection::Objects(objects) => objects.iter().map(|(kind, name)| format!("{}/{name}", kind.name)).collect(),
        })
    }

    #[test]
    fn words_name_everything_kinds_or_objects() {
        for (words, expected) in [
            (&[][..], &["*"][..]),
            (&["recif"], &["*"]),
            (&["all"], &["*"]),
            (&["ag"], &["Agent"]),
            (&["agents,tl,tools"], &["Agent", "Tool"]),
            (&["agents", "a"], &["Agent/a"]),
            (&["agent/a"], &["Agent/a"]),
            (&["agent.agents.recif.dev/a"], &["Agent/a"]),
            (&["agent", "a", "b", "a"], &["Agent/a", "Agent/b"]),
            (&["agent/a", "tool/a", "ag/a"], &["Agent/a", "Tool/a"]),
            (&["agents,tools", "a"], &["Agent/a", "Tool/a"]),
        ] {
            assert_eq!(meant(words).unwrap(), expected, "{words:?}");
        }
    }

    #[test]
    fn what_cannot_be_selected_says_what_to_write() {
        for (words, expected) in [
            (&["pods"][..], "unknown kind \"pods\""),
            (&["agents,"], "unknown kind \"\""),
            (&["my-agent"], "if it is a name, write agent/my-agent"),
            (&["recif/a"], "a name needs its kind"),
            (&["all", "a"], "a name needs its kind"),
            (&["agent/"], "name one object, as agent/my-agent"),
            (&["agent", "a b"], "is not a valid name"),
            (&["agent/a", "b"], "\"b\" lacks its kind"),
            (&["agent", "tool/b"], "\"agent\" lacks its kind"),
        ] {
            let error = meant(words).unwrap_err();
            assert!(error.contains(expected), "{words:?}: {error}");
        }
    }

    #[test]
    fn a_refused_kind_is_an_error_only_if_nothing_could_be_read() {
        let refused = || {
            let status = kube::core::Status { code: 403, ..kube::core::Status::default() };
            let source = Box::new(kube::Error::Api(status.boxed()));
            Err::<(), _>(CliError::from(ReadError::Request { doing: "list tools".into(), source }))
        };
        let mut some = ListOutcomes::default();
        assert!(some.take(refused()).unwrap().is_none() && some.take(Ok(())).unwrap().is_some());
        assert!(some.finish().is_ok());
        let mut none = ListOutcomes::default();
        assert!(none.take(refused()).unwrap().is_none() && none.finish().is_err());
        assert!(ListOutcomes::default().take::<()>(Err(CliError::Usage("x".into()))).is_err());
    }
}
