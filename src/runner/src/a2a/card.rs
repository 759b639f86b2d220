//! Agent card: describes an agent and its endpoint to clients that know only its address.
//!
//! One card serves both versions of the protocol: 1.0 reads `supportedInterfaces`, 0.3 reads `url`,
//! `preferredTransport` and `protocolVersion`. Its URL is the one that the client called, which the proxies on the path
//! report in `X-Forwarded-*`.

use axum::http::{
    HeaderMap,
    header::HOST,
    uri::{Authority, PathAndQuery},
};
use serde_json::{Value, json};

/// Returns the card of the agent `name`, reached at `url`.
pub(super) fn card(name: &str, url: &str) -> Value {
    let description = format!("The AI agent {name}: it answers messages, and uses tools on the way where it has some.");
    json!({
        "name": name,
        "description": description,
        "version": env!("CARGO_PKG_VERSION"),
        "supportedInterfaces": [
            { "url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0" },
            { "url": url, "protocolBinding": "JSONRPC", "protocolVersion": "0.3" },
        ],
        "capabilities": { "streaming": true, "pushNotifications": false },
        "defaultInputModes": ["text/plain", "application/json"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{ "id": "chat", "name": "Chat", "description": description, "tags": ["chat"] }],
        "url": url,
        "preferredTransport": "JSONRPC",
        "protocolVersion": "0.3.0",
    })
}

/// Returns the URL by which the client reaches this agent, from `X-Forwarded-*` or `Host`; `None` when the request has
/// neither. A forwarded value that cannot be part of a URL counts as absent.
pub(super) fn address(headers: &HeaderMap) -> Option<String> {
    let scheme = forwarded(headers, "x-forwarded-proto").map(str::to_ascii_lowercase);
    let scheme = scheme.filter(|scheme| matches!(scheme.as_str(), "http" | "https")).unwrap_or("http".into());
    let host = forwarded(headers, "x-forwarded-host").filter(|host| is_host(host));
    let host = host.or_else(|| headers.get(HOST)?.to_str().ok().filter(|host| is_host(host)))?;
    let prefix = forwarded(headers, "x-forwarded-prefix").map(|prefix| prefix.trim_end_matches('/'));
    let prefix = prefix.filter(|prefix| is_prefix(prefix)).unwrap_or_default();
    Some(format!("{scheme}://{host}{prefix}/"))
}

/// Returns the first value of a list header: the one set by the proxy next to the client. Each proxy on the path may
/// append its own.
fn forwarded<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let first = headers.get(name)?.to_str().ok()?.split(',').next()?.trim();
    (!first.is_empty()).then_some(first)
}

fn is_host(host: &str) -> bool {
    host.parse::<Authority>().is_ok_and(|authority| !authority.host().is_empty() && !authority.as_str().contains('@'))
}

fn is_prefix(prefix: &str) -> bool {
    let path = prefix.parse::<PathAndQuery>();
    prefix.starts_with('/') && !prefix.starts_with("//") && path.is_ok_and(|path| path.path() == prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_the_one_the_client_used() {
        for (given, expected) in [
            (&[("host", "a:8000")][..], Some("http://a:8000/")),
            (&[("host", "[::1]:8000")], Some("http://[::1]:8000/")),
            (&[("host", "a"), ("x-forwarded-proto", "HTTPS")], Some("https://a/")),
            (
                &[("host", "a"), ("x-forwarded-host", "gw.example, inner"), ("x-forwarded-proto", "https,http")],
                Some("https://gw.example/"),
            ),
            (&[("host", "a"), ("x-forwarded-prefix", "/v1/agents/ns/x/")], Some("http://a/v1/agents/ns/x/")),
            (&[("host", "a"), ("x-forwarded-prefix", "/")], Some("http://a/")),
            (&[("host", "a"), ("x-forwarded-proto", "javascript")], Some("http://a/")),
            (&[("host", "a"), ("x-forwarded-host", "b/c?d")], Some("http://a/")),
            (&[("host", "a"), ("x-forwarded-host", "user@b")], Some("http://a/")),
            (&[("host", "a"), ("x-forwarded-prefix", "//evil")], Some("http://a/")),
            (&[("host", "a"), ("x-forwarded-prefix", "/p?q=1")], Some("http://a/")),
            (&[("host", "a"), ("x-forwarded-prefix", "/a b")], Some("http://a/")),
            (&[("host", "a b")], None),
            (&[], None),
        ] {
            let headers = given.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            assert_eq!(address(&headers.collect()).as_deref(), expected, "{given:?}");
        }
    }
}
