//! Holds the resolved references of an object, and compares them with the pinned ones.

use std::collections::BTreeMap;

use crds::{flow_set::LEFT_OUT, reason};

/// Resolution of one reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// Can be used; holds the digest of what is used of it.
    Resolved(String),
    /// Left out, and the object goes on without it; holds the reason, as a sentence.
    Omitted(String),
    /// Not ready yet; holds a sentence such as `tool "weather" is Resolving`.
    Pending(String),
    /// A user has to create or repair it; holds a sentence such as `tool "weather" not found`.
    Missing(String),
    /// The object depends on itself; holds a sentence such as `cycle: Agent/a → Tool/t → Agent/a`.
    Cycle(String),
}

impl Resolution {
    /// Returns the value to pin, if the object can go on.
    fn pinned(&self) -> Option<&str> {
        match self {
            Self::Resolved(digest) => Some(digest),
            Self::Omitted(_) => Some(LEFT_OUT),
            Self::Pending(_) | Self::Missing(_) | Self::Cycle(_) => None,
        }
    }

    /// Reports whether the pinned value stands for a reference that was left out.
    pub fn is_omitted(pinned: &str) -> bool {
        pinned == LEFT_OUT
    }
}

/// Unresolved references that keep an object from going on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unresolved {
    /// Reason for the condition, a CamelCase word.
    pub reason: &'static str,
    /// All of them as one sentence.
    pub sentence: String,
    /// True if a user has to act.
    pub needs_user: bool,
}

/// Resolved references of an object: name (`Tool/weather`) and resolution, in the order in which they are reported.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inputs(pub Vec<(String, Resolution)>);

impl Inputs {
    /// Adds a reference.
    pub fn add(&mut self, name: impl Into<String>, found: Resolution) {
        self.0.push((name.into(), found));
    }

    /// Returns the resolution of this name.
    pub fn get(&self, name: &str) -> Option<&Resolution> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, found)| found)
    }

    /// Returns the values to pin: the digests of the references that can be used, and those that are left out.
    pub fn pin(&self) -> BTreeMap<String, String> {
        let pin = |(name, found): &(String, Resolution)| Some((name.clone(), found.pinned()?.to_owned()));
        self.0.iter().filter_map(pin).collect()
    }

    /// Returns the same references with presence in place of digests: an edit of a reference is then no change.
    #[must_use]
    pub fn by_presence(self) -> Self {
        let present =
            |found| if let Resolution::Resolved(_) = found { Resolution::Resolved("here".to_owned()) } else { found };
        Self(self.0.into_iter().map(|(name, found)| (name, present(found))).collect())
    }

    /// Returns the references that keep the object waiting. On a dependency cycle the other objects of the cycle wait too; they
    /// are not named.
    pub fn waiting_for(&self) -> Option<Unresolved> {
        let cycle = self.0.iter().any(|(_, found)| matches!(found, Resolution::Cycle(_)));
        let missing = cycle || self.0.iter().any(|(_, found)| matches!(found, Resolution::Missing(_)));
        let omitted = self.0.iter().filter_map(|(_, found)| match found {
            Resolution::Resolved(_) | Resolution::Omitted(_) => None,
            Resolution::Pending(sentence) => (!cycle).then_some(sentence.as_str()),
            Resolution::Missing(sentence) | Resolution::Cycle(sentence) => Some(sentence.as_str()),
        });
        let sentence = omitted.collect::<Vec<_>>().join("; ");
        let reason = if cycle { reason::REFERENCE_CYCLE } else { reason::MISSING_DEPENDENCY };
        (!sentence.is_empty()).then_some(Unresolved { reason, sentence, needs_user: missing })
    }

    /// Returns why the pinned references are outdated, if they are. A reference that is pending is no change yet.
    pub fn changed_since(&self, pinned: &BTreeMap<String, String>) -> Option<String> {
        self.0.iter().find_map(|(name, found)| changed(name, found, pinned))
    }

    /// Returns the same as [`Inputs::changed_since`] for an object that waited for nothing when its references were pinned: a
    /// reference that was missing then is no change while it is missing.
    pub fn changed_since_stopped(&self, pinned: &BTreeMap<String, String>) -> Option<String> {
        let relevant = self.0.iter().filter(|(name, found)| found.pinned().is_some() || pinned.contains_key(name));
        relevant.into_iter().find_map(|(name, found)| changed(name, found, pinned))
    }
}

/// Returns why this reference differs from the pinned one, if it does.
fn changed(name: &str, found: &Resolution, pinned: &BTreeMap<String, String>) -> Option<String> {
    match (found.pinned(), found) {
        (Some(now), _) => match pinned.get(name) {
            Some(before) if before == now => None,
            Some(_) => Some(format!("{name} changed")),
            None => Some(format!("{name} is new")),
        },
        (None, Resolution::Missing(sentence) | Resolution::Cycle(sentence)) => Some(sentence.clone()),
        (None, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(found: &[(&str, Resolution)]) -> Inputs {
        Inputs(found.iter().map(|(name, found)| ((*name).to_owned(), found.clone())).collect())
    }

    #[test]
    fn everything_that_is_missing_is_named_at_once() {
        let found = inputs(&[
            ("Tool/a", Resolution::Missing("tool \"a\" not found".into())),
            ("Tool/b", Resolution::Resolved("1".into())),
            ("Tool/c", Resolution::Pending("tool \"c\" is Resolving".into())),
        ]);
        let sentence = "tool \"a\" not found; tool \"c\" is Resolving".into();
        let expected = Unresolved { reason: "MissingDependency", sentence, needs_user: true };
        assert_eq!(found.waiting_for(), Some(expected));
        assert_eq!(inputs(&[("Tool/b", Resolution::Resolved("1".into()))]).waiting_for(), None);
    }

    #[test]
    fn a_circle_is_named_without_those_that_wait_on_it_too() {
        let found = inputs(&[
            ("Tool/a", Resolution::Pending("tool \"a\" is Resolving".into())),
            ("Tool/b", Resolution::Missing("tool \"b\" not found".into())),
            ("cycle", Resolution::Cycle("cycle: Agent/x → Tool/a → Agent/x".into())),
        ]);
        let sentence = "tool \"b\" not found; cycle: Agent/x → Tool/a → Agent/x".into();
        assert_eq!(found.waiting_for(), Some(Unresolved { reason: "ReferenceCycle", sentence, needs_user: true }));
    }

    #[test]
    fn only_settled_changes_count() {
        let pinned = BTreeMap::from([("Tool/a".to_owned(), "1".to_owned())]);
        let since = |found| inputs(&[("Tool/a", found)]).changed_since(&pinned);
        assert_eq!(since(Resolution::Resolved("1".into())), None);
        assert_eq!(since(Resolution::Pending("tool \"a\" is Pending".into())), None);
        assert_eq!(since(Resolution::Resolved("2".into())), Some("Tool/a changed".into()));
        assert_eq!(since(Resolution::Missing("gone".into())), Some("gone".into()));
    }

    #[test]
    fn what_a_stopped_object_never_had_is_no_news_while_it_is_missing() {
        let pinned = BTreeMap::from([("Tool/a".to_owned(), "1".to_owned())]);
        let since = |name, found| inputs(&[(name, found)]).changed_since_stopped(&pinned);
        assert_eq!(since("Tool/b", Resolution::Missing("tool \"b\" not found".into())), None);
        assert_eq!(since("cycle", Resolution::Cycle("cycle: …".into())), None);
        assert_eq!(since("Tool/b", Resolution::Resolved("1".into())), Some("Tool/b is new".into()));
        assert_eq!(since("Tool/a", Resolution::Missing("gone".into())), Some("gone".into()));
    }

    #[test]
    fn what_the_object_goes_on_without_is_pinned_and_waited_for_no_more() {
        let without = |why: &str| inputs(&[("flow/a", Resolution::Omitted(why.into()))]);
        assert_eq!(without("gone").waiting_for(), None);
        assert!(Resolution::is_omitted(&without("gone").pin()["flow/a"]));
        assert_eq!(without("another reason").changed_since(&without("gone").pin()), None);
        let mended = inputs(&[("flow/a", Resolution::Resolved("served".into()))]);
        assert_eq!(mended.changed_since(&without("gone").pin()), Some("flow/a changed".into()));
    }

    #[test]
    fn by_presence_an_edit_changes_nothing() {
        let now = |digest: &str| inputs(&[("Secret/a", Resolution::Resolved(digest.into()))]).by_presence();
        assert_eq!(now("2").changed_since(&now("1").pin()), None);
    }
}
