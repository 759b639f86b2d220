//! What a workload refers to, as found in the caches, and how that compares with what was pinned.

use std::collections::BTreeMap;

/// One reference, as found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// It may be used; the digest of what is used of it.
    Here(String),
    /// It is on its way; a sentence such as `tool "weather" is Resolving`.
    NotYet(String),
    /// Somebody has to bring or mend it; a sentence such as `tool "weather" not found`.
    Missing(String),
}

/// Everything a workload refers to: name (`Tool/weather`) to what was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inputs(pub BTreeMap<String, Found>);

impl Inputs {
    /// What is to be remembered: the digests of what is there.
    pub fn pin(&self) -> BTreeMap<String, String> {
        self.0
            .iter()
            .filter_map(|(name, found)| match found {
                Found::Here(digest) => Some((name.clone(), digest.clone())),
                Found::NotYet(_) | Found::Missing(_) => None,
            })
            .collect()
    }

    /// All that keeps the workload waiting, as one sentence; the flag says whether somebody has to act.
    pub fn waiting_for(&self) -> Option<(String, bool)> {
        let mut sentences = Vec::new();
        let mut missing = false;
        for found in self.0.values() {
            match found {
                Found::Here(_) => {}
                Found::NotYet(sentence) => sentences.push(sentence.as_str()),
                Found::Missing(sentence) => {
                    missing = true;
                    sentences.push(sentence);
                }
            }
        }
        (!sentences.is_empty()).then(|| (sentences.join("; "), missing))
    }

    /// Why what was pinned no longer holds. A reference that is on its way changes nothing yet.
    pub fn changed_since(&self, pinned: &BTreeMap<String, String>) -> Option<String> {
        self.0.iter().find_map(|(name, found)| match found {
            Found::Here(digest) => match pinned.get(name) {
                Some(before) if before == digest => None,
                Some(_) => Some(format!("{name} changed")),
                None => Some(format!("{name} is new")),
            },
            Found::NotYet(_) => None,
            Found::Missing(sentence) => Some(sentence.clone()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(found: &[(&str, Found)]) -> Inputs {
        Inputs(found.iter().map(|(name, found)| ((*name).to_owned(), found.clone())).collect())
    }

    #[test]
    fn everything_that_is_missing_is_named_at_once() {
        let found = inputs(&[
            ("Tool/a", Found::Missing("tool \"a\" not found".into())),
            ("Tool/b", Found::Here("1".into())),
            ("Tool/c", Found::NotYet("tool \"c\" is Resolving".into())),
        ]);
        assert_eq!(found.waiting_for(), Some(("tool \"a\" not found; tool \"c\" is Resolving".into(), true)));
        assert_eq!(inputs(&[("Tool/b", Found::Here("1".into()))]).waiting_for(), None);
    }

    #[test]
    fn only_settled_changes_count() {
        let pinned = BTreeMap::from([("Tool/a".to_owned(), "1".to_owned())]);
        let since = |found| inputs(&[("Tool/a", found)]).changed_since(&pinned);
        assert_eq!(since(Found::Here("1".into())), None);
        assert_eq!(since(Found::NotYet("tool \"a\" is Pending".into())), None);
        assert_eq!(since(Found::Here("2".into())), Some("Tool/a changed".into()));
        assert_eq!(since(Found::Missing("gone".into())), Some("gone".into()));
    }
}
