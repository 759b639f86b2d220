//! `egress` of a workload: addresses to which its Pods may connect, besides those that its configuration names.
//!
//! An entry is `host[:port]`, `*.domain[:port]`, or an address or CIDR with `[:port]`; the port is 443 if none is given. An IPv6
//! address with a port stands in brackets. The rule of the schema admits this grammar but for the form of IPv6 addresses, which
//! the operator checks when it accepts the object.

mod address_range;
mod entry;

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use url::Url;

use self::entry::{DEFAULT_PORT, EXAMPLES};
pub use self::{
    address_range::AddressRange,
    entry::{EgressEntry, EgressEntryError, EgressHost},
};

/// Variable that holds the addresses for the runtime, as an [`EgressList`] in JSON.
pub const EGRESS_VARIABLE: &str = "RECIF_EGRESS";
/// Most entries of a workload.
const MAX_ENTRIES: usize = 64;
/// Most characters of an entry: a name of 253 with `*.` and a port.
const MAX_LENGTH: usize = 262;

/// Returns the schema of the list.
pub(crate) fn schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": MAX_ENTRIES,
        "x-kubernetes-list-type": "set",
        "items": {
            "type": "string",
            "maxLength": MAX_LENGTH,
            "x-kubernetes-validations": [{ "rule": rule(), "message": EXAMPLES }],
        },
    })
}

/// Returns the rule on an entry, in CEL. No expression has a backslash or an opening bracket to escape.
fn rule() -> String {
    let port = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])";
    let octet = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
    let word = "[a-zA-Z0-9_]([-a-zA-Z0-9_]*[a-zA-Z0-9_])?";
    let last = "[a-zA-Z]([-a-zA-Z0-9_]*[a-zA-Z0-9_])?";
    let name = ["([*][.])?(", word, "[.])*", last].concat();
    let v4 = [octet, "([.]", octet, "){3}(/(3[0-2]|[12]?[0-9]))?"].concat();
    let v6 = "[0-9a-fA-F]{0,4}(:[0-9a-fA-F]{0,4}){2,7}(/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))?";
    let plain = ["self.matches('^(", name.as_str(), "|", v4.as_str(), ")(:", port, ")?$')"].concat();
    let bare = ["self.matches('^", v6, "$')"].concat();
    let bracketed = ["(self.startsWith('[') && self.matches('^.", v6, "[]](:", port, ")?$'))"].concat();
    [plain, bare, bracketed].join(" || ")
}

/// Addresses to which the runtime may connect, in [`EGRESS_VARIABLE`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressList {
    /// Entries of the spec.
    #[serde(default)]
    pub listed: Vec<EgressEntry>,
    /// Addresses of tools and models, which the operator adds.
    #[serde(default)]
    pub own: Vec<EgressEntry>,
}

impl EgressList {
    /// Checks the host and port of a URL.
    ///
    /// # Errors
    /// The reason for the refusal, as the rest of a sentence after "refused: ".
    pub fn check(&self, url: &Url) -> Result<(), String> {
        let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
            return Err("the URL has no host".to_owned());
        };
        if self.listed.iter().chain(&self.own).any(|entry| entry.admits(&host, port)) {
            return Ok(());
        }
        let port = if port == DEFAULT_PORT { String::new() } else { format!(":{port}") };
        Err(format!("host {host}{port} is not in the egress list of this agent"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_the_runtime_is_read_as_it_was_written() {
        let list =
            EgressList { listed: vec!["*.example.com".parse().unwrap()], own: vec!["10.0.0.1:80".parse().unwrap()] };
        let text = serde_json::to_string(&list).unwrap();
        assert_eq!(text, r#"{"listed":["*.example.com:443"],"own":["10.0.0.1/32:80"]}"#);
        assert_eq!(serde_json::from_str::<EgressList>(&text).unwrap(), list);
    }
}
