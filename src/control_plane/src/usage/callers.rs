//! What is stored of the names of callers.

use crds::{
    digest::sha256_hex,
    usage::{OTHER_CALLER, UsageKey},
};

/// Digits of a digest that are stored.
const DIGITS: usize = 16;

/// Form in which callers are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum StoredCallers {
    /// By their names
    Names,
    /// By digests of their names, which tell them apart
    Hashes,
    /// Not at all: only sums of all of them
    Off,
}

impl StoredCallers {
    /// Returns the process and the key under which a cell of this process is stored.
    ///
    /// Cells with the same key and process are versions of one cell. So without callers the process has another name for each, until the
    /// cells of all processes become one.
    pub(super) fn stored(self, process: &str, key: &UsageKey) -> (String, UsageKey) {
        let is_name = !key.caller.is_empty() && key.caller != OTHER_CALLER;
        let caller = &key.caller;
        match self {
            Self::Hashes if is_name => {
                let caller = format!("sha256:{}", digest(&format!("recif caller {caller}")));
                (process.to_owned(), UsageKey { caller, ..key.clone() })
            }
            Self::Off if !caller.is_empty() => {
                let process = format!("{process}/{}", digest(&format!("recif caller {process} {caller}")));
                (process, UsageKey { caller: String::new(), ..key.clone() })
            }
            Self::Names | Self::Hashes | Self::Off => (process.to_owned(), key.clone()),
        }
    }
}

fn digest(text: &str) -> String {
    let mut digest = sha256_hex(text.as_bytes());
    digest.truncate(DIGITS);
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_are_told_apart_and_named_only_where_names_are_stored() {
        let stored = |how: StoredCallers, process: &str, caller: &str| {
            let key = UsageKey { hour: 9, caller: caller.into(), ..UsageKey::default() };
            let (process, stored) = how.stored(process, &key);
            assert_eq!(UsageKey { caller: caller.into(), ..stored.clone() }, key, "nothing else changes");
            (process, stored.caller)
        };
        let same = |process: &str, caller: &str| (process.to_owned(), caller.to_owned());
        assert_eq!(stored(StoredCallers::Names, "p", "ada"), same("p", "ada"));
        for nameless in ["", OTHER_CALLER] {
            assert_eq!(stored(StoredCallers::Hashes, "p", nameless), same("p", nameless));
        }
        let [ada, ben, elsewhere] = [("p", "ada"), ("p", "ben"), ("q", "ada")]
            .map(|(process, name)| stored(StoredCallers::Hashes, process, name));
        assert_eq!((ada.0.as_str(), ada.1.len(), &ada.1), ("p", "sha256:".len() + DIGITS, &elsewhere.1));
        assert_ne!(ada.1, ben.1);
        let [ada, ben, nameless] = ["ada", "ben", ""].map(|name| stored(StoredCallers::Off, "p", name));
        assert_eq!([&ada.1, &ben.1, &nameless.1], ["", "", ""]);
        assert!(ada.0 != ben.0 && ada.0 != nameless.0 && !ada.0.contains("ada"), "{ada:?} {ben:?}");
    }
}
