//! Lists of the fleet: filter, order and pages.
//!
//! Pages are cut by [keyset pagination](https://use-the-index-luke.com/no-offset): a page ends at an object, not at a number,
//! and the next one begins behind that object's place in the order, whether or not the object still exists. So an object that
//! does not change meanwhile is on exactly one page.

use std::{borrow::Cow, cmp::Ordering, collections::HashSet};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use crds::{KINDS, digest::sha256_hex};
use memchr::memmem::Finder;

use super::{FleetCache, FleetCacheState, FleetEntry, Record};

/// Sort key of a list. Objects with equal keys are sorted by kind, namespace and name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// Objects that need attention first.
    Attention,
    /// The kind's name.
    Kind,
    /// The namespace.
    Namespace,
    /// The name.
    Name,
    /// The phase.
    Phase,
    /// Status of the Ready condition: False, True, Unknown.
    Ready,
    /// The reason of that condition.
    Reason,
    /// Time of creation.
    CreatedAt,
    /// Time at which the object came into its phase.
    Since,
}

impl Sort {
    /// All sort keys, by their name in a request.
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

/// Filter, order and page of a list.
#[derive(Debug, Clone)]
pub struct Selection<'a> {
    /// Indexes of kinds in [`KINDS`]; empty: all.
    pub rows: &'a [u8],
    /// Namespaces; empty: all.
    pub namespaces: &'a [String],
    /// Phases; empty: all. The empty name stands for objects without a phase.
    pub phases: &'a [String],
    /// Text to search for in the data that a list shows, case-insensitively.
    pub text: Option<&'a str>,
    /// Visibility of the caller.
    pub visible: &'a Visibility,
    /// The sort key.
    pub sort: Sort,
    /// True for the reverse order.
    pub descending: bool,
    /// Page size.
    pub limit: usize,
    /// Place behind which the page begins.
    pub after: Option<&'a Cursor>,
}

/// Objects that a caller may see.
#[derive(Debug, Clone, Default)]
pub struct Visibility(Option<Vec<KindVisibility>>);

/// Objects of one kind that a caller may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KindVisibility {
    /// All of them.
    All,
    /// Those in these namespaces.
    Namespaces(HashSet<String>),
}

impl Visibility {
    /// Every object.
    pub const ALL: Self = Self(None);

    /// Creates the visibility from that of each kind, in the order of [`KINDS`].
    pub fn only(kinds: Vec<KindVisibility>) -> Self {
        Self(Some(kinds))
    }

    /// Returns the visibility of each kind, in the order of [`KINDS`]; `None`: everything is visible.
    pub fn by_kind(&self) -> Option<&[KindVisibility]> {
        self.0.as_deref()
    }

    /// Reports whether objects of a kind in a namespace are visible.
    pub fn sees(&self, row: u8, namespace: &str) -> bool {
        let Some(kinds) = &self.0 else { return true };
        match kinds.get(usize::from(row)) {
            Some(KindVisibility::All) => true,
            Some(KindVisibility::Namespaces(names)) => names.contains(namespace),
            None => false,
        }
    }
}

/// Phases, with the number of objects in each.
pub type Phases = Vec<(Box<str>, usize)>;

/// Page of a list.
#[derive(Debug)]
pub struct FleetListing {
    /// The objects.
    pub items: Vec<FleetEntry>,
    /// Number of objects in the whole list.
    pub total: usize,
    /// Start of the next page, if there is one.
    pub next: Option<Cursor>,
    /// Per kind: the number of objects in each phase, regardless of the requested kinds and phases.
    pub counts: Vec<(&'static str, Phases)>,
}

/// Place in an order, by sort key, kind and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    value: String,
    row: u8,
    namespace: String,
    name: String,
}

/// Errors of a cursor's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CursorError {
    /// The text is no cursor.
    #[error("it was not given out here")]
    Unreadable,
    /// The cursor was issued for another list.
    #[error("it belongs to another list: repeat the parameters of its page, except limit")]
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

    /// Encodes the cursor as text for the client, with a digest of the list's key.
    pub fn encode(&self, list: &str) -> String {
        let digest = sha256_hex(list.as_bytes());
        let parts = (&digest[..16], &self.value, self.row, &self.namespace, &self.name);
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&parts).unwrap_or_default())
    }

    /// Decodes the text of [`Cursor::encode`].
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
    /// Returns one page of a list.
    pub fn list(&self, selection: &Selection<'_>) -> FleetListing {
        let inner = self.lock();
        let mut walk = Walk::new(selection);
        let Selection { sort, descending, limit, after, .. } = *selection;
        // For these requests the walk visits objects in the requested order.
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

    /// Returns the namespaces that have objects of a kind.
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

/// Walk over the fleet that collects and counts the selected objects.
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
mod tests;
