//! Agent card: chooses the interface by which an agent is asked.
//!
//! Frameworks publish the address that they listen on, such as `http://localhost:8000`, and an agent behind a gateway that of
//! the gateway. So only the path of an interface is used, below the address by which the card was fetched. A card of 1.0 lists
//! `supportedInterfaces`; one of 0.3 has `url`, `preferredTransport`, `protocolVersion` and `additionalInterfaces`; one card may
//! have all of them.

use serde_json::Value;
use url::Url;

use crate::{hitl, version::Version};

/// Path of the card, below the address of the agent.
pub const CARD_PATH: &str = "/.well-known/agent-card.json";
/// Binding that is spoken here.
const BINDING: &str = "JSONRPC";
/// Most characters of a card that an error repeats.
const MAX_OFFERS: usize = 200;

/// Interface of an agent that speaks JSON-RPC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct A2aInterface {
    /// Version of the protocol.
    pub version: Version,
    /// Path of the requests at the host of the card's address.
    pub path: String,
    /// Set if the agent can stream its answer.
    pub streams: bool,
    /// Set if the agent offers the extension for people who approve calls.
    pub asks_people: bool,
}

/// Reason for which a card has no interface to use, as the rest of a sentence that begins with the address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CardError {
    /// There is no card.
    #[error("has no agent card: is it an A2A agent?")]
    NoCard,
    /// The card offers nothing that is spoken here; with what it offers.
    #[error("has an agent card without an interface JSONRPC of version 1.0 or 0.3, it offers {0}")]
    NoInterface(String),
}

/// Interface as the card names it.
struct Offer<'a> {
    binding: &'a str,
    version: &'a str,
    url: &'a str,
}

impl A2aInterface {
    /// Chooses the interface of a card, 1.0 before 0.3. `base` is the path of the address below which the card was fetched.
    ///
    /// # Errors
    /// It is no card, or it has no such interface.
    pub fn choose(card: &[u8], base: &str) -> Result<Self, CardError> {
        let card: Value = serde_json::from_slice(card).map_err(|_| CardError::NoCard)?;
        let offers = offers(&card);
        if offers.is_empty() {
            return Err(CardError::NoCard);
        }
        let usable = |version: Version| {
            let mut found = offers.iter().filter(|offer| offer.binding.eq_ignore_ascii_case(BINDING));
            let offer = found.find(|offer| Version::parse(offer.version) == Some(version) && path(offer.url).is_some());
            offer.and_then(|offer| Some((version, path(offer.url)?)))
        };
        let Some((version, path)) = usable(Version::V1).or_else(|| usable(Version::V03)) else {
            let names: Vec<_> = offers.iter().map(|offer| format!("{} {}", offer.binding, offer.version)).collect();
            return Err(CardError::NoInterface(names.join(", ").chars().take(MAX_OFFERS).collect()));
        };
        let (streams, asks_people) = (card["capabilities"]["streaming"] == true, hitl::is_offered(&card));
        Ok(Self { version, path: below(base, &path), streams, asks_people })
    }
}

/// Returns what a card offers, in its order; nothing of what is no card.
fn offers(card: &Value) -> Vec<Offer<'_>> {
    let version = text(card, "protocolVersion", "0.3");
    let listed = card["supportedInterfaces"].as_array().into_iter().flatten().filter_map(|listed| {
        let (binding, version) = (text(listed, "protocolBinding", BINDING), text(listed, "protocolVersion", "1.0"));
        Some(Offer { binding, version, url: listed["url"].as_str()? })
    });
    let binding = text(card, "preferredTransport", BINDING);
    let main = card["url"].as_str().map(|url| Offer { binding, version, url });
    let more = card["additionalInterfaces"].as_array().into_iter().flatten().filter_map(|listed| {
        Some(Offer { binding: listed["transport"].as_str()?, version, url: listed["url"].as_str()? })
    });
    listed.chain(main).chain(more).collect()
}

/// Returns the text of a field, or the default where it is absent or empty.
fn text<'a>(of: &'a Value, field: &str, default: &'a str) -> &'a str {
    of[field].as_str().filter(|text| !text.is_empty()).unwrap_or(default)
}

/// Returns the path of a URL, which may be a path alone. It has no `.` and `..`, which the parser resolves.
fn path(url: &str) -> Option<String> {
    let url = Url::parse("http://agent/").ok()?.join(url).ok()?;
    matches!(url.scheme(), "http" | "https").then(|| url.path().to_owned())
}

/// Returns the path below `base`. An agent that knows the address by which it is reached names the whole path.
fn below(base: &str, path: &str) -> String {
    let base = base.trim_end_matches('/');
    let known = path.strip_prefix(base).filter(|rest| rest.is_empty() || rest.starts_with('/'));
    format!("{base}{}", known.unwrap_or(path))
}
