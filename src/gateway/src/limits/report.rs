//! Reports of gateways to one another of their admissions: counts that only grow, so that a report that comes twice, late or by way of
//! a third gateway changes nothing.

use serde::{Deserialize, Serialize};

use super::window::SlotCounts;
use crate::clients::ClientId;

/// Requests of a workload that count together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum LimitKey {
    /// Those of all callers.
    All,
    /// Those of one caller.
    Caller(ClientId),
    /// Those of the callers for whom there is no room any more.
    Rest,
}

impl LimitKey {
    /// Returns the key as it is in a report.
    pub(super) fn text(&self) -> String {
        match self {
            Self::All => "all".into(),
            Self::Rest => "rest".into(),
            Self::Caller(ClientId::User(name)) => format!("user:{name}"),
            Self::Caller(ClientId::Address(address)) => format!("address:{address}"),
        }
    }

    /// Reads a key of a report; `None`: only a newer gateway knows such keys.
    pub(super) fn read(text: &str) -> Option<Self> {
        match text.split_once(':') {
            None if text == "all" => Some(Self::All),
            None if text == "rest" => Some(Self::Rest),
            Some(("user", name)) => Some(Self::Caller(ClientId::User(name.into()))),
            Some(("address", address)) => address.parse().ok().map(|address| Self::Caller(ClientId::Address(address))),
            _ => None,
        }
    }
}

/// Counts of one gateway for one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LimitCell {
    /// Workload, such as `agent/default/weather`.
    pub(super) workload: String,
    /// Key, as [`LimitKey::text`] returns it.
    pub(super) key: String,
    /// Gateway that admitted the requests.
    pub(super) instance: u64,
    /// Its counts.
    pub(super) counts: SlotCounts,
}

/// Tokens of a day that one process has counted for one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SpentCell {
    /// Workload, such as `agent/default/weather`.
    pub(super) workload: String,
    /// Key, as [`LimitKey::text`] returns it.
    pub(super) key: String,
    /// Gateway, or run of a Pod, that counted them.
    pub(super) instance: u64,
    /// Days since 1970, UTC.
    pub(super) day: i64,
    /// Tokens of input and output.
    pub(super) tokens: u64,
}

/// One direction of an exchange between two gateways.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LimitReport {
    /// Instance of the gateway that sends it, new after each start.
    pub(super) from: u64,
    /// Instance that it is for; 0: not known yet.
    pub(super) to: u64,
    /// Version of the receiver's counts that the sender has read.
    pub(super) read: u64,
    /// The cells are those that changed after this version of the sender's counts …
    pub(super) after: u64,
    /// … up to this one.
    pub(super) version: u64,
    /// Set if there are later changes, for which there was no room.
    pub(super) more: bool,
    /// Counts of admissions.
    pub(super) cells: Vec<LimitCell>,
    /// Tokens. An earlier version of the gateway sends none.
    #[serde(default)]
    pub(super) spent: Vec<SpentCell>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_was_written() {
        let user = |name: &str| LimitKey::Caller(ClientId::User(name.into()));
        let address = |text: &str| LimitKey::Caller(ClientId::Address(text.parse().unwrap()));
        let callers = [user("alice"), user("system:serviceaccount:a:b"), address("192.0.2.1"), address("2001:db8::1")];
        for key in [LimitKey::All, LimitKey::Rest].into_iter().chain(callers) {
            assert_eq!(LimitKey::read(&key.text()), Some(key));
        }
        for unknown in ["", "team:a", "address:alice", "all:"] {
            assert_eq!(LimitKey::read(unknown), None, "{unknown}");
        }
    }
}
