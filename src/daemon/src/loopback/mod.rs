//! Guard of servers that authenticate no callers and listen on loopback: it refuses what a web page sends.
//!
//! A browser connects to this machine for every page that it shows. It sets three header fields whose values no page can
//! choose. `Host` has the name in the URL: that of the page's own site, if the site made it resolve to this machine (DNS
//! rebinding). `Origin` has the page's origin. `Sec-Fetch-Site` has its relation to this server ([Fetch
//! Metadata](https://www.w3.org/TR/fetch-metadata/)). Programs send `Host` alone, with a name of this machine.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Text of a refusal, for people.
pub const REFUSAL: &str = "without sign-in only requests to localhost are answered, and none from pages of other origins: \
                           ask localhost, and let a page's own server pass on what the page asks";

/// Reports whether a request is from this machine, and from no page but one of this server itself. `values` returns the
/// values of a header field by its name in lower case.
///
/// Every `Host` and `Origin` has to be `localhost` or a loopback address, with any port, and every `Sec-Fetch-Site`
/// `same-origin` or `none`: to a page of another local port this server is `same-site`. Without `Sec-Fetch-Site`, which some
/// browsers do not send with the handshake of a WebSocket, `Origin` has to name the same host and port as `Host`. A request
/// without these fields is from a program. Allocates nothing.
pub fn is_local<'a, V: Iterator<Item = &'a [u8]>>(values: impl Fn(&'static str) -> V) -> bool {
    let is_judged = values("sec-fetch-site").next().is_some();
    let is_host = |authority: &[u8]| {
        let mut hosts = values("host").peekable();
        hosts.peek().is_some() && hosts.all(|host| host.eq_ignore_ascii_case(authority))
    };
    let is_own = |origin| authority(origin).is_some_and(|it| is_loopback(it) && (is_judged || is_host(it)));
    values("host").all(is_loopback)
        && values("origin").all(is_own)
        && values("sec-fetch-site").all(|site| matches!(site, b"same-origin" | b"none"))
}

/// Returns host and port of the origin of a web page. Pages without an origin have `null`.
fn authority(origin: &[u8]) -> Option<&[u8]> {
    [&b"http://"[..], b"https://"].iter().find_map(|scheme| origin.strip_prefix(*scheme))
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
mod tests;
