//! Lists of the fleet: what is in them, in which order, and where the next page begins.
//!
//! A page ends at an object, not at a number: the next one begins behind that object's place in the order, whether or not it
//! is still there. So whatever does not change meanwhile is on exactly one page.

use std::{borrow::Cow, cmp::Ordering, collections::HashSet};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use crds::{KINDS, digest::sha256_hex};
use memchr::memmem::Finder;

use super::{FleetCache, FleetCacheState, FleetEntry, Record};

/// What a list is sorted by. What is equal by it is sorted by kind, namespace and name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// What somebody should look at comes first.
    Attention,
    /// The kind's name.
    Kind,
    /// The namespace.
    Namespace,
    /// The name.
    Name,
    /// The phase.
    Phase,
    /// What the Ready condition says: False, True, Unknown.
    Ready,
    /// The reason of that condition.
    Reason,
    /// When it was made.
    CreatedAt,
    /// When it came into its phase.
    Since,
}

impl Sort {
    /// Every order, by the name by which it is asked for.
    pub const ALL: &'static [(&'static str, Self)] = &[
        ("attention", Self::Attention),
        ("kind", Self::Kind),
        ("namespace", Self::Namespace),
        ("name", Self::Name),
        ("phase", Self::Phase),
        ("ready", Self::Ready),
        ("reason", Self::Reason),
        ("createdAt", Self::CreatedAt),
        ("since", Self::Since),
    ];

    fn value(self, record: &Record) -> Cow<'_, str> {
        Cow::Borrowed(match self {
            Self::Attention if record.attention => "0",
            Self::Attention => "1",
            Self::Kind => record.kind.name,
            Self::Namespace => &record.key.namespace,
            Self::Name => &record.key.name,
            Self::Phase => record.phase.as_deref().unwrap_or_default(),
            Self::Ready => return Cow::Owned(format!("{:?}", record.ready)),
            Self::Reason => &record.reason,
            Self::CreatedAt => &record.created,
            Self::Since => &record.since,
        })
    }
}

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Selection<'a> {
    /// Places of kinds in [`KINDS`]; empty: all.
    pub rows: &'a [u8],
    /// Namespaces; empty: all.
    pub namespaces: &'a [String],
    /// Phases; empty: all. The empty name is that of objects without one.
    pub phases: &'a [String],
    /// A text that is looked for in what a list shows, whatever its case.
    pub text: Option<&'a str>,
    /// What the caller may see.
    pub visible: &'a Visibility,
    /// The order.
    pub sort: Sort,
    /// Whether it is turned round.
    pub descending: bool,
    /// How many objects are wanted.
    pub limit: usize,
    /// Behind which place to begin.
    pub after: Option<&'a Cursor>,
}

/// What a caller may see.
#[derive(Debug, Clone, Default)]
pub struct Visibility(Option<Vec<KindVisibility>>);

/// What a caller may see of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KindVisibility {
    /// All of it.
    All,
    /// What is in these namespaces.
    Namespaces(HashSet<String>),
}

impl Visibility {
    /// Everything.
    pub const ALL: Self = Self(None);

    /// Of each kind, in the order of [`KINDS`], this much.
    pub fn only(kinds: Vec<KindVisibility>) -> Self {
        Self(Some(kinds))
    }

    /// What is seen of each kind, in the order of [`KINDS`]; `None`: everything.
    pub fn by_kind(&self) -> Option<&[KindVisibility]> {
        self.0.as_deref()
    }

    /// Whether objects of a kind in a namespace are seen.
    pub fn sees(&self, row: u8, namespace: &str) -> bool {
        let Some(kinds) = &self.0 else { return true };
        match kinds.get(usize::from(row)) {
            Some(KindVisibility::All) => true,
            Some(KindVisibility::Namespaces(names)) => names.contains(namespace),
            None => false,
        }
    }
}

/// Phases, and how many objects are in each.
pub type Phases = Vec<(Box<str>, usize)>;

/// One page of a list.
#[derive(Debug)]
pub struct FleetListing {
    /// The objects.
    pub items: Vec<FleetEntry>,
    /// How many objects the whole list has.
    pub total: usize,
    /// Where the next page begins, if there is one.
    pub next: Option<Cursor>,
    /// Of each kind, each phase and how many objects are in it, whatever kinds and phases are asked for.
    pub counts: Vec<(&'static str, Phases)>,
}

/// A place in an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    value: String,
    row: u8,
    namespace: String,
    name: String,
}

/// Why a text is no place to go on from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CursorError {
    /// It was not given out here.
    #[error("it was not given out here")]
    Unreadable,
    /// It was given out for another list.
    #[error("it belongs to another list: ask with the parameters of its page, limit aside")]
    OtherList,
}

impl Cursor {
    fn of(record: &Record, sort: Sort) -> Self {
        Self {
            value: sort.value(record).into_owned(),
            row: record.row,
            namespace: record.key.namespace.clone(),
            name: record.key.name.clone(),
        }
    }

    fn cmp(&self, record: &Record, sort: Sort) -> Ordering {
        let own = (self.value.as_str(), self.row, self.namespace.as_str(), self.name.as_str());
        own.cmp(&(&sort.value(record), record.row, &record.key.namespace, &record.key.name))
    }

    /// As a text for whoever asks on; `list` tells lists apart.
    pub fn encode(&self, list: &str) -> String {
        let digest = sha256_hex(list.as_bytes());
        let parts = (&digest[..16], &self.value, self.row, &self.namespace, &self.name);
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&parts).unwrap_or_default())
    }

    /// Reads what [`Cursor::encode`] wrote.
    ///
    /// # Errors
    /// [`CursorError`].
    pub fn decode(text: &str, list: &str) -> Result<Self, CursorError> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| CursorError::Unreadable)?;
        let (digest, value, row, namespace, name): (String, _, _, _, _) =
            serde_json::from_slice(&bytes).map_err(|_| CursorError::Unreadable)?;
        if !sha256_hex(list.as_bytes()).starts_with(&digest) || digest.len() != 16 {
            return Err(CursorError::OtherList);
        }
        Ok(Self { value, row, namespace, name })
    }
}

fn compare(one: &Record, other: &Record, sort: Sort) -> Ordering {
    let place = sort.value(one).cmp(&sort.value(other));
    place.then_with(|| (one.row, &one.key).cmp(&(other.row, &other.key)))
}

impl FleetCache {
    /// One page of a list.
    pub fn list(&self, selection: &Selection<'_>) -> FleetListing {
        let inner = self.lock();
        let mut walk = Walk::new(selection);
        let Selection { sort, descending, limit, after, .. } = *selection;
        // The indexes are in this order already.
        let in_order = !descending && (sort == Sort::Attention || sort == Sort::Namespace && selection.rows.len() == 1);
        if in_order && sort == Sort::Attention {
            inner.needing_attention().for_each(|entry| walk.visit(entry));
            inner.all().filter(|entry| !entry.record.attention).for_each(|entry| walk.visit(entry));
        } else {
            inner.all().for_each(|entry| walk.visit(entry));
        }
        let Walk { mut found, counts, .. } = walk;
        let total = found.len();
        let turned = |order: Ordering| if descending { order.reverse() } else { order };
        if let Some(cursor) = after {
            found.retain(|entry| turned(cursor.cmp(&entry.record, sort)) == Ordering::Less);
        }
        let more = found.len() > limit;
        if !in_order {
            let by_order = |one: &&FleetEntry, other: &&FleetEntry| turned(compare(&one.record, &other.record, sort));
            if more {
                found.select_nth_unstable_by(limit, by_order);
                found.truncate(limit);
            }
            found.sort_unstable_by(by_order);
        }
        found.truncate(limit);
        let next = found.last().filter(|_| more).map(|last| Cursor::of(&last.record, sort));
        let counts = KINDS.iter().zip(counts).filter(|(_, phases)| !phases.is_empty());
        let counts =
            counts.map(|(kind, phases)| (kind.name, phases.into_iter().map(|(name, n)| (name.into(), n)).collect()));
        FleetListing { items: found.into_iter().cloned().collect(), total, next, counts: counts.collect() }
    }

    /// The namespaces in which there are objects of a kind.
    pub fn namespaces(&self, row: u8) -> Vec<String> {
        let inner = self.lock();
        let mut names: Vec<String> = Vec::new();
        for key in inner.kinds.get(usize::from(row)).into_iter().flat_map(|kind| kind.keys()) {
            if names.last() != Some(&key.namespace) {
                names.push(key.namespace.clone());
            }
        }
        names
    }
}

impl FleetCacheState {
    fn needing_attention(&self) -> impl Iterator<Item = &FleetEntry> {
        self.attention.iter().filter_map(|(row, key)| self.kinds.get(usize::from(*row))?.get(key))
    }
}

/// A walk over the fleet, which takes what is asked for.
struct Walk<'a, 's> {
    selection: &'s Selection<'s>,
    finder: Option<Finder<'static>>,
    found: Vec<&'a FleetEntry>,
    counts: Vec<Vec<(&'a str, usize)>>,
}

impl<'a, 's> Walk<'a, 's> {
    fn new(selection: &'s Selection<'s>) -> Self {
        let finder = selection.text.map(|text| Finder::new(text.to_lowercase().as_bytes()).into_owned());
        Self { selection, finder, found: Vec::new(), counts: KINDS.iter().map(|_| Vec::new()).collect() }
    }

    fn visit(&mut self, entry: &'a FleetEntry) {
        let (record, selection) = (&entry.record, self.selection);
        let namespace = &record.key.namespace;
        let wanted = (selection.namespaces.is_empty() || selection.namespaces.contains(namespace))
            && selection.visible.sees(record.row, namespace)
            && self.finder.as_ref().is_none_or(|finder| finder.find(record.haystack.as_bytes()).is_some());
        if !wanted {
            return;
        }
        let phase = record.phase.as_deref().unwrap_or_default();
        if let Some(counts) = self.counts.get_mut(usize::from(record.row)) {
            match counts.iter_mut().find(|(known, _)| *known == phase) {
                Some((_, count)) => *count += 1,
                None => counts.push((phase, 1)),
            }
        }
        let kind = selection.rows.is_empty() || selection.rows.contains(&record.row);
        if kind && (selection.phases.is_empty() || selection.phases.iter().any(|wanted| wanted == phase)) {
            self.found.push(entry);
        }
    }
}

#[cfg(test)]
#[path = "query_tests.rs"]
mod tests;
