//! Rewrites database URLs (DSNs) so that their host is reachable from any namespace; the rest is kept byte for byte.
//!
//! A DSN is split into its parts and joined again, never parsed into a URL and printed: that would change escapes and add
//! slashes. A DSN that parsers read differently (an unescaped `/`, `?` or `#` in a password) is rejected, because half of a
//! password would be taken for a host. A rejected DSN is shown with everything masked that may be a password.
//!
//! One thing is not kept: an unescaped `@` in a password. Drivers disagree about which `@` ends the password, so it is
//! percent-encoded as `%40`, which all of them read alike.

use std::fmt;

/// Path of the database, beside the agents' own, that holds the knowledge bases.
const KNOWLEDGE_BASE_PATH: &str = "/corail_storage";
/// Text in place of a masked part.
const MASK: &str = "***";

/// Error of a DSN that cannot be parsed; shows it with the password masked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DsnError {
    masked: String,
    problem: &'static str,
}

impl fmt::Display for DsnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not a database URL: {}", self.masked, self.problem)
    }
}

impl std::error::Error for DsnError {}

/// Expands a single-label host of the DSN to `<host>.<namespace>.svc.<cluster_domain>`, keeps any other host, and escapes each
/// `@` of user name and password.
///
/// # Errors
/// [`DsnError`] if it is not a URL of PostgreSQL, or if it can be read in more than one way.
pub fn expand(dsn: &str, namespace: &str, cluster_domain: &str) -> Result<String, DsnError> {
    let Dsn { scheme, userinfo, host, port, path, query } = read(dsn)?;
    let userinfo = match userinfo.strip_suffix('@') {
        Some(user) => format!("{}@", user.replace('@', "%40")),
        None => String::new(),
    };
    let domain = if is_single_label(host) { format!(".{namespace}.svc.{cluster_domain}") } else { String::new() };
    Ok(format!("{scheme}://{userinfo}{host}{domain}{port}{path}{query}"))
}

/// Returns the URL of the knowledge bases, beside the database of `dsn`: scheme `postgresql`, path `/corail_storage`, without
/// `sslmode` (the runtime's driver rejects it), the host as in [`expand`].
///
/// # Errors
/// As [`expand`].
pub fn knowledge_base(dsn: &str, namespace: &str, cluster_domain: &str) -> Result<String, DsnError> {
    let expanded = expand(dsn, namespace, cluster_domain)?;
    let Dsn { userinfo, host, port, query, .. } = read(&expanded)?;
    let query: Vec<_> = query
        .trim_start_matches('?')
        .split('&')
        .filter(|pair| !pair.is_empty() && pair.split('=').next() != Some("sslmode"))
        .collect();
    let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
    Ok(format!("postgresql://{userinfo}{host}{port}{KNOWLEDGE_BASE_PATH}{query}"))
}

/// Expands the host of an `http` or `https` URL as [`expand`] does, without adding a slash; anything else is returned as it is.
pub fn expand_http(url: &str, namespace: &str, cluster_domain: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, tail) = split_at_any(rest, &['/', '?', '#']);
    let (userinfo, hosts) = split_userinfo(authority);
    let (host, port) = split_port(hosts);
    if !is_single_label(host) {
        return url.to_owned();
    }
    format!("{scheme}://{userinfo}{host}.{namespace}.svc.{cluster_domain}{port}{tail}")
}

/// Masks everything in the DSN that may be part of a password, even if it cannot be parsed.
pub fn mask(dsn: &str) -> String {
    let Some((scheme, rest)) = dsn.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) else {
        return MASK.to_owned();
    };
    let Some((before, after)) = rest.rsplit_once('@') else {
        let (host, more) = split_at_any(rest, &[':', '/', '?', '#']);
        return format!("{scheme}://{host}{}", if more.is_empty() { "" } else { MASK });
    };
    let (user, _) = split_at_any(before, &[':', '/', '?', '#', '@']);
    // An `@` after a `?` may be part of a password in a parameter; then the text after it may be too.
    let shown = if before.contains(['?', '#']) { "" } else { split_at_any(after, &['?', '#']).0 };
    let hidden = if shown.len() == after.len() { "" } else { MASK };
    format!("{scheme}://{user}:{MASK}@{shown}{hidden}")
}

/// Parts of a DSN, each with its delimiter, so that they join to the same bytes.
struct Dsn<'a> {
    scheme: &'a str,
    /// User name and password with the `@`; empty if there is none.
    userinfo: &'a str,
    /// Host without its port; several hosts with theirs; empty for a Unix socket.
    host: &'a str,
    /// Port with the `:`; empty if there is none.
    port: &'a str,
    /// Path with the `/`.
    path: &'a str,
    /// Query with the `?`.
    query: &'a str,
}

fn read(dsn: &str) -> Result<Dsn<'_>, DsnError> {
    let bad = |problem| DsnError { masked: mask(dsn), problem };
    let (scheme, rest) = dsn
        .split_once("://")
        .filter(|(scheme, _)| is_postgres(scheme))
        .ok_or_else(|| bad("write postgresql://user:password@host:5432/database"))?;
    if rest.contains(|c: char| c.is_control() || c == '#') {
        return Err(bad("it has a control character or a #: write %23 for a # in the password"));
    }
    let (authority, tail) = split_at_any(rest, &['/', '?']);
    let (path, query) = split_at_any(tail, &['?']);
    let key_has_at = query.split('&').any(|pair| pair.split('=').next().unwrap_or_default().contains('@'));
    if path.contains('@') || key_has_at {
        return Err(bad("in user name and password write %2F for / and %3F for ?"));
    }
    if !is_escaped(authority) {
        return Err(bad("in user name and password write %25 for % and %20 for a space"));
    }
    let (userinfo, hosts) = split_userinfo(authority);
    let mut each = hosts.split(',').map(split_port);
    if !each.all(|(host, port)| is_host(host) && is_port(port)) {
        return Err(bad("host or port cannot be read; in the password write %2F for / and %3F for ?"));
    }
    let (host, port) = if hosts.contains(',') { (hosts, "") } else { split_port(hosts) };
    Ok(Dsn { scheme, userinfo, host, port, path, query })
}

fn split_at_any<'a>(text: &'a str, delimiters: &[char]) -> (&'a str, &'a str) {
    text.split_at(text.find(delimiters).unwrap_or(text.len()))
}

/// Splits after the last `@` (an unescaped one in a password is widely accepted).
fn split_userinfo(authority: &str) -> (&str, &str) {
    authority.split_at(authority.rfind('@').map_or(0, |at| at + 1))
}

fn split_port(host: &str) -> (&str, &str) {
    let from = host.rfind(']').unwrap_or(0);
    host.split_at(host[from..].find(':').map_or(host.len(), |colon| from + colon))
}

fn is_scheme(scheme: &str) -> bool {
    !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

fn is_postgres(scheme: &str) -> bool {
    let (base, driver) = split_at_any(scheme, &['+']);
    matches!(base, "postgres" | "postgresql")
        && driver != "+"
        && driver.bytes().skip(1).all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

fn is_host(host: &str) -> bool {
    match host.strip_prefix('[') {
        Some(rest) => {
            rest.strip_suffix(']').is_some_and(|address| address.contains(':') && address.bytes().all(is_address))
        }
        None => !host.contains(|c: char| c.is_ascii() && !(c.is_ascii_alphanumeric() || "-_.%".contains(c))),
    }
}

/// Reports whether the byte may occur in an IPv6 address, which may end in an IPv4 one and a zone.
fn is_address(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b":.%-_".contains(&byte)
}

fn is_port(port: &str) -> bool {
    match port.strip_prefix(':') {
        None | Some("") => true,
        Some(digits) => {
            digits.bytes().all(|byte| byte.is_ascii_digit()) && digits.parse::<u16>().is_ok_and(|port| port > 0)
        }
    }
}

/// Reports whether there is no white space and every `%` begins an escape.
fn is_escaped(authority: &str) -> bool {
    let is_escape = |rest: &str| rest.len() >= 2 && rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    !authority.contains(char::is_whitespace) && authority.split('%').skip(1).all(is_escape)
}

fn is_single_label(host: &str) -> bool {
    !host.is_empty()
        && !host.eq_ignore_ascii_case("localhost")
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}
