//! Guard of servers that authenticate no callers and listen on loopback: it refuses what a web page sends.
//!
//! A browser connects to this machine for every page that it shows. Three header fields tell such requests apart, and no
//! page can choose their values: a name of the page's own site that was made to resolve to this machine (DNS rebinding)
//! stands in `Host`, the page's origin in `Origin`, and its relation to this server in `Sec-Fetch-Site` ([Fetch
//! Metadata](https://www.w3.org/TR/fetch-metadata/)). Programs send none of them, or name this machine.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Text of a refusal, for people.
pub const REFUSAL: &str = "without sign-in only requests to localhost are answered, and none from pages of other origins: \
                           ask localhost, and let a page's own server pass on what the page asks";

/// Reports whether a request is from this machine, and from no page but one of this server itself. `values` returns the
/// values of a header field by its name in lower case.
///
/// Every `Host` and `Origin` has to be `localhost` or a loopback address, with any port, and every `Sec-Fetch-Site`
/// `same-origin` or `none`: to a page of another local port this server is `same-site`. A request without these fields is
/// from a program. Allocates nothing.
pub fn is_local<'a, V: Iterator<Item = &'a [u8]>>(values: impl Fn(&'static str) -> V) -> bool {
    values("host").all(is_loopback)
        && values("origin").all(is_loopback_origin)
        && values("sec-fetch-site").all(|site| matches!(site, b"same-origin" | b"none"))
}

/// Reports whether an origin is that of a page on this machine. `null` is the origin of pages that have none.
fn is_loopback_origin(origin: &[u8]) -> bool {
    let authority = [&b"http://"[..], b"https://"].iter().find_map(|scheme| origin.strip_prefix(*scheme));
    authority.is_some_and(is_loopback)
}

/// Reports whether the host of `authority` (host and port) is `localhost` or a loopback address.
fn is_loopback(authority: &[u8]) -> bool {
    let Ok(authority) = str::from_utf8(authority) else { return false };
    let (is_here, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let Some((host, port)) = rest.split_once(']') else { return false };
            (host.parse::<Ipv6Addr>().is_ok_and(|address| address.to_canonical().is_loopback()), port)
        }
        None => {
            let (host, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
            let is_address = || host.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback());
            (host.eq_ignore_ascii_case("localhost") || is_address(), port)
        }
    };
    let is_port = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
    is_here && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports whether a request with these fields is local.
    fn local(fields: &[(&str, &str)]) -> bool {
        is_local(|name| fields.iter().filter(move |(known, _)| *known == name).map(|(_, value)| value.as_bytes()))
    }

    #[test]
    fn the_host_is_a_name_or_an_address_of_this_machine() {
        for (host, expected) in [
            ("localhost", true),
            ("localhost:8080", true),
            ("localhost:", true),
            ("LocalHost:8080", true),
            ("127.0.0.1", true),
            ("127.0.0.1:8080", true),
            ("127.1.2.3:1", true),
            ("[::1]", true),
            ("[::1]:8080", true),
            ("[0:0:0:0:0:0:0:1]:8080", true),
            ("[::ffff:127.0.0.1]:8080", true),
            ("[::ffff:7f00:1]", true),
            ("", false),
            (":8080", false),
            ("::1", false),
            ("[::1", false),
            ("[::1]8080", false),
            ("[::1].evil.example", false),
            ("[::1]:80.evil.example", false),
            ("[]:8080", false),
            ("[localhost]", false),
            ("[127.0.0.1]", false),
            ("[::]:8080", false),
            ("[::ffff:10.0.0.1]", false),
            ("[fd00::1]:8080", false),
            ("[fe80::1%25lo]", false),
            ("0.0.0.0:8080", false),
            ("10.0.0.1:8080", false),
            ("169.254.169.254", false),
            ("127.0.0.1.evil.example", false),
            ("127.0.0.1.:8080", false),
            ("0127.0.0.1", false),
            ("127.1", false),
            ("2130706433", false),
            ("0x7f000001", false),
            ("localhost.:8080", false),
            ("localhost.evil.example:8080", false),
            ("evil.localhost:8080", false),
            ("evil.example", false),
            ("localhost@evil.example", false),
            ("evil.example@localhost", false),
            ("localhost:80:80", false),
            ("localhost:80x", false),
            ("localhost:-1", false),
            ("localhost evil.example", false),
            ("localhost,evil.example", false),
            ("localhost/", false),
            ("lоcalhost", false),
        ] {
            assert_eq!(local(&[("host", host)]), expected, "{host:?}");
        }
        assert!(!is_local(|name| (name == "host").then_some(&b"\xff"[..]).into_iter()));
    }

    #[test]
    fn the_origin_is_a_page_of_this_machine() {
        for (origin, expected) in [
            ("http://localhost:3000", true),
            ("https://localhost", true),
            ("http://127.0.0.1:8080", true),
            ("http://[::1]:8080", true),
            ("null", false),
            ("", false),
            ("localhost", false),
            ("http:localhost", false),
            ("http://", false),
            ("http://evil.example", false),
            ("https://localhost.evil.example", false),
            ("http://localhost@evil.example", false),
            ("http://10.0.0.1", false),
            ("http://0.0.0.0:8080", false),
            ("file://", false),
            ("chrome-extension://localhost", false),
            ("http://localhost, http://evil.example", false),
        ] {
            assert_eq!(local(&[("host", "localhost:8080"), ("origin", origin)]), expected, "{origin:?}");
        }
    }

    #[test]
    fn a_page_of_another_origin_is_told_by_the_browser() {
        for (site, expected) in [
            ("none", true),
            ("same-origin", true),
            ("same-site", false),
            ("cross-site", false),
            ("", false),
            ("new", false),
        ] {
            assert_eq!(local(&[("host", "localhost"), ("sec-fetch-site", site)]), expected, "{site}");
        }
    }

    #[test]
    fn each_of_several_values_counts_and_a_program_sends_none() {
        assert!(local(&[]), "an HTTP/1.0 client, which is no browser");
        assert!(local(&[("user-agent", "evil.example")]));
        for name in ["host", "origin", "sec-fetch-site"] {
            let good = match name {
                "host" => "localhost",
                "origin" => "http://localhost",
                _ => "none",
            };
            assert!(local(&[(name, good), (name, good)]), "{name}");
            assert!(!local(&[(name, good), (name, "evil.example")]), "{name}");
            assert!(!local(&[(name, "evil.example"), (name, good)]), "{name}");
        }
    }
}
