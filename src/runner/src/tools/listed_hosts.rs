//! Egress list of the agent, from `RECIF_EGRESS`: hosts and ports to which tools may connect.
//!
//! The agent's NetworkPolicy knows no DNS names, and cannot tell one public host from another. So the name in a URL is checked
//! here, at the first request and at each redirect. Only the entries of the spec admit private addresses to a URL that a model
//! chose, and only as addresses: a name that leads to one admits nothing.

use std::{net::IpAddr, sync::Arc};

use crds::egress::{EgressHost, EgressList};
use url::Url;

use crate::{Lookup, variables::egress_list};

/// Hosts of the list; without a list every host.
#[derive(Debug, Clone, Default)]
pub(super) struct ListedHosts(Option<Arc<EgressList>>);

impl ListedHosts {
    /// Reads the list from the environment variables of the process.
    pub(super) fn new(environment: &Lookup) -> Self {
        // The process has not started with a list that cannot be read; an empty one admits nothing.
        Self(egress_list(environment).unwrap_or_else(|_| Some(EgressList::default())).map(Arc::new))
    }

    /// Checks the host and port of a URL.
    ///
    /// # Errors
    /// The reason for the refusal, for the model.
    pub(super) fn check(&self, url: &Url) -> Result<(), String> {
        self.0.as_ref().map_or(Ok(()), |list| list.check(url))
    }

    /// Reports whether an entry of the spec has this address.
    pub(super) fn has_address(&self, address: IpAddr) -> bool {
        let mut listed = self.0.iter().flat_map(|list| &list.listed);
        listed.any(|entry| matches!(&entry.host, EgressHost::Range(range) if range.contains(address)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(value: Option<&'static str>) -> ListedHosts {
        ListedHosts::new(&move |name: &str| value.filter(|_| name == "RECIF_EGRESS").map(str::to_owned))
    }

    fn refusal(hosts: &ListedHosts, url: &str) -> Option<String> {
        hosts.check(&Url::parse(url).unwrap()).err()
    }

    #[test]
    fn without_a_list_every_host_is_admitted_and_no_address_is_listed() {
        for value in [None, Some("")] {
            let hosts = hosts(value);
            assert_eq!(refusal(&hosts, "http://anywhere.example:81/"), None);
            assert!(!hosts.has_address([10, 0, 0, 1].into()));
        }
    }

    #[test]
    fn a_host_is_refused_by_its_name_and_port() {
        let hosts = hosts(Some(r#"{"listed": ["*.example.com:443", "10.1.0.0/16:80"], "own": ["tool.example:8080"]}"#));
        let refused = |host: &str| Some(format!("host {host} is not in the egress list of this agent"));
        for (url, expected) in [
            ("https://api.example.com/x", None),
            ("http://api.example.com/x", refused("api.example.com:80")),
            ("https://example.com/", refused("example.com")),
            ("https://api.example.com.evil.example/", refused("api.example.com.evil.example")),
            ("https://api.example.com@evil.example/", refused("evil.example")),
            ("http://tool.example:8080/", None),
            ("http://10.1.2.3/", None),
            ("http://167838211/", None),
            ("http://10.2.0.1/", refused("10.2.0.1:80")),
            ("https://[2001:db8::1]/", refused("[2001:db8::1]")),
        ] {
            assert_eq!(refusal(&hosts, url), expected, "{url}");
        }
        assert!(hosts.has_address([10, 1, 9, 9].into()) && !hosts.has_address([10, 2, 0, 1].into()));
    }

    #[test]
    fn an_empty_list_and_one_that_cannot_be_read_admit_nothing() {
        for value in ["{}", "[]", "x"] {
            let expected = Some("host example.com is not in the egress list of this agent".to_owned());
            assert_eq!(refusal(&hosts(Some(value)), "https://example.com/"), expected, "{value}");
        }
    }
}
