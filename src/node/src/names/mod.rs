//! Names of Services in URLs: a text that as a whole is a URL whose host is a Service gets the address of that Service's relay. Pure.
//!
//! A URL is split into its parts and joined again, never parsed and printed, so that everything but host and port stays as it is.

use std::net::SocketAddr;

/// Schemes with the port that a URL without one means.
const PORTS: &[(&str, u16)] = &[
    ("http", 80),
    ("ws", 80),
    ("postgres", 5432),
    ("postgresql", 5432),
    ("mysql", 3306),
    ("redis", 6379),
    ("mongodb", 27017),
    ("amqp", 5672),
    ("nats", 4222),
];
/// Schemes whose certificates are for the name, so that another host would be refused.
const KEPT: &[&str] = &["https", "wss", "file"];

/// A Service and a port of it, as a URL names them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServicePort {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) port: u16,
}

/// Result of [`replace`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Replaced {
    /// It names no Service.
    No,
    /// It is another text now; host and port before and after.
    Yes { text: String, from: String, to: SocketAddr },
    /// Its host and port are those of a Service of the cluster that is not there.
    Unserved(String),
}

/// Replaces host and port of a text that is the URL of a Service. `address` returns where a port of a Service is relayed; a name
/// without a namespace is of `namespace`.
pub(crate) fn replace(
    text: &str,
    namespace: &str,
    domain: &str,
    address: impl Fn(&ServicePort) -> Option<SocketAddr>,
) -> Replaced {
    let Some(url) = Url::split(text) else { return Replaced::No };
    let Some(port) = url.port else { return Replaced::No };
    let Some((name, of, is_full)) = service(url.host, namespace, domain) else { return Replaced::No };
    let service = ServicePort { namespace: of.to_owned(), name: name.to_owned(), port };
    match address(&service) {
        Some(to) => {
            let new = format!("{}{to}{}", url.before, url.after);
            Replaced::Yes { text: new, from: format!("{}:{port}", url.host), to }
        }
        None if is_full => Replaced::Unserved(format!("{}:{port}", url.host)),
        None => Replaced::No,
    }
}

/// A URL in parts.
struct Url<'a> {
    /// Scheme, and user name with password.
    before: &'a str,
    host: &'a str,
    /// Port, also where it follows from the scheme.
    port: Option<u16>,
    /// Path and query.
    after: &'a str,
}

impl<'a> Url<'a> {
    /// Splits a text that as a whole is a URL with one host.
    fn split(text: &'a str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let is_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        // A driver may be part of it: postgresql+asyncpg.
        let base = scheme.split('+').next().unwrap_or_default().to_ascii_lowercase();
        let begins = scheme.starts_with(|c: char| c.is_ascii_alphabetic());
        if !begins || !scheme.bytes().all(is_scheme) || KEPT.contains(&base.as_str()) {
            return None;
        }
        if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return None;
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, after) = rest.split_at(end);
        let start = authority.rfind('@').map_or(0, |at| at + 1);
        let (host, port) = match authority[start..].split_once(':') {
            Some((host, port)) => (host, Some(port.parse().ok().filter(|port| *port > 0)?)),
            None => (&authority[start..], None),
        };
        let default = PORTS.iter().find(|(known, _)| *known == base).map(|(_, port)| *port);
        let before = &text[..text.len() - rest.len() + start];
        Some(Self { before, host, port: port.or(default), after })
    }
}

/// Returns the Service that a host may mean, its namespace, and whether the host is the name of a Service and of nothing else.
fn service<'a>(host: &'a str, namespace: &'a str, domain: &str) -> Option<(&'a str, &'a str, bool)> {
    let is_label = |part: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !part.is_empty() && part.bytes().all(inner)
    };
    let parts: Vec<&str> = host.strip_suffix('.').unwrap_or(host).split('.').collect();
    let (name, of, is_full) = match parts.as_slice() {
        [name] => (*name, namespace, false),
        [name, of] => (*name, *of, false),
        [name, of, "svc"] => (*name, *of, true),
        [name, of, "svc", rest @ ..] if rest.join(".") == domain => (*name, *of, true),
        _ => return None,
    };
    (is_label(name) && is_label(of)).then_some((name, of, is_full))
}

/// Replaces each string of a JSON text by what `replace` returns for it. Keys and everything else stay byte for byte.
pub(crate) fn replace_in_json(json: &str, mut replace: impl FnMut(&str) -> Option<String>) -> String {
    let mut new = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(start) = rest.find('"') {
        let (before, quoted) = rest.split_at(start);
        new.push_str(before);
        let Some(end) = end_of_string(quoted) else { break };
        let (literal, after) = quoted.split_at(end);
        let is_key = after.trim_start().starts_with(':');
        let replaced = serde_json::from_str::<String>(literal).ok().filter(|_| !is_key).and_then(|text| replace(&text));
        // A string: this cannot fail.
        let replaced = replaced.and_then(|text| serde_json::to_string(&text).ok());
        new.push_str(replaced.as_deref().unwrap_or(literal));
        rest = after;
    }
    // What is left has no string, or one that does not end.
    new.push_str(&json[json.len() - rest.len() + rest.find('"').unwrap_or(0)..]);
    new
}

/// Returns the length of the string literal at the beginning of a text.
fn end_of_string(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    let found = text.bytes().enumerate().skip(1).find(|(_, byte)| {
        let is_end = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_end
    });
    found.map(|(at, _)| at + 1)
}

#[cfg(test)]
mod tests;
