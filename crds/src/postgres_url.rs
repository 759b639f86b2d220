//! Parses the URL of a PostgreSQL database, the same way in every program of Récif.
//!
//! Users write URLs for other drivers, too: a scheme with the name of a driver (`postgresql+asyncpg`), parameters that
//! only that driver knows, a password with an `@` or a `/` in it. A URL that can be read in one way only is accepted;
//! any other is refused, and the text of the error holds no part of the URL.

use std::fmt;

use percent_encoding::percent_decode_str;
use url::Url;

/// Parameters that are kept; the others, of other drivers, are left out.
const PARAMETERS: [&str; 12] = [
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
];

/// URL of a PostgreSQL database. It may hold a password, so it is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl {
    /// URL for a driver: scheme `postgresql`, and only parameters that are understood.
    pub url: Url,
    /// Name of the database in logs: host, port and database, without user and password.
    pub place: String,
}

/// Reason for which a URL cannot be used, as the rest of a sentence about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostgresUrlError {
    /// Not a PostgreSQL URL, or readable in more than one way.
    Malformed,
    /// Several hosts.
    SeveralHosts,
}

impl fmt::Display for PostgresUrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => {
                "cannot be read: write postgresql://user:password@host:5432/database, with special characters of the \
                 password percent-encoded"
            }
            Self::SeveralHosts => "names several hosts: write one",
        })
    }
}

impl std::error::Error for PostgresUrlError {}

/// Reports whether a URL is one of PostgreSQL: `postgres://`, `postgresql://`, or with a driver's suffix as in
/// `postgresql+asyncpg://`.
pub fn is_postgres(url: &str) -> bool {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    matches!(scheme.split('+').next(), Some("postgres" | "postgresql"))
}

impl PostgresUrl {
    /// Parses a URL.
    ///
    /// # Errors
    /// [`PostgresUrlError`].
    pub fn read(text: &str) -> Result<Self, PostgresUrlError> {
        let rest = text.split_once("://").filter(|_| is_postgres(text)).map(|(_, rest)| rest);
        let rest = rest.ok_or(PostgresUrlError::Malformed)?;
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        // A password that is not percent-encoded, such as `p@ss/word`, would be taken for a host and a path.
        let tail = rest.get(authority.len()..).unwrap_or_default();
        let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
        let is_cut = |pair: &str| pair.split('=').next().unwrap_or_default().contains('@');
        if tail.contains('#') || path.contains('@') || query.split('&').any(is_cut) {
            return Err(PostgresUrlError::Malformed);
        }
        if authority.rsplit('@').next().unwrap_or_default().contains(',') {
            return Err(PostgresUrlError::SeveralHosts);
        }
        let mut url = Url::parse(&format!("postgresql://{rest}")).map_err(|_| PostgresUrlError::Malformed)?;
        let given: Vec<(String, String)> = url.query_pairs().into_owned().collect();
        url.set_query(None);
        let mut host = url.host_str().unwrap_or_default().to_owned();
        for (name, value) in given {
            // Name of the parameter in asyncpg.
            let name = if name == "ssl" { "sslmode" } else { name.as_str() };
            if matches!(name, "host" | "hostaddr") {
                if value.contains(',') {
                    return Err(PostgresUrlError::SeveralHosts);
                }
                host.clone_from(&value);
            }
            if PARAMETERS.contains(&name) {
                url.query_pairs_mut().append_pair(name, &value);
            }
        }
        let host = percent_decode_str(&host).decode_utf8_lossy().into_owned();
        let host = host.rsplit('@').next().filter(|host| !host.is_empty()).unwrap_or("localhost");
        let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
        let place = format!("PostgreSQL at {host}{port}{}", url.path());
        Ok(Self { url, place })
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_documented_url_is_read() {
        for (text, url, place) in [
            ("postgres://u:SECRET@h/d", "postgresql://u:SECRET@h/d", "h/d"),
            (
                "postgresql+asyncpg://u:SECRET%40@h.x:6432/d?ssl=require&server_settings=x",
                "postgresql://u:SECRET%40@h.x:6432/d?sslmode=require",
                "h.x:6432/d",
            ),
            ("postgresql://[::1]:1/d", "postgresql://[::1]:1/d", "[::1]:1/d"),
            ("postgresql:///d?host=u%3ASECRET%40h", "postgresql:///d?host=u%3ASECRET%40h", "h/d"),
            (
                "postgresql:///d?host=/run/pg&user=u&password=SECRET",
                "postgresql:///d?host=%2Frun%2Fpg&user=u&password=SECRET",
                "/run/pg/d",
            ),
            ("postgresql:///d", "postgresql:///d", "localhost/d"),
            ("postgresql://h/d?password=SECRET@1", "postgresql://h/d?password=SECRET%401", "h/d"),
        ] {
            let read = PostgresUrl::read(text).unwrap();
            assert_eq!((read.url.as_str(), read.place.as_str()), (url, format!("PostgreSQL at {place}").as_str()));
            assert!(!format!("{read:?}").contains("SECRET"), "{text}");
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused_without_quoting_it() {
        use PostgresUrlError::{Malformed, SeveralHosts};
        for (text, problem) in [
            ("mysql://u:SECRET@h/d", Malformed),
            ("SECRET", Malformed),
            ("", Malformed),
            ("postgresql://u:SECRET@a,b/d", SeveralHosts),
            ("postgresql://u:SECRET@a:1,b:2/d", SeveralHosts),
            ("postgresql:///d?host=a,b&password=SECRET", SeveralHosts),
            ("postgresql://u:SECRET@h:port/d", Malformed),
            ("postgresql://u:p@SECRET/word@db/d", Malformed),
            ("postgresql://u:12/SECRET@h/d", Malformed),
            ("postgresql://u:12?SECRET@h/d", Malformed),
            ("postgresql://u:12#SECRET@h/d", Malformed),
        ] {
            let error = PostgresUrl::read(text).unwrap_err();
            assert_eq!(error, problem, "{text}");
            assert!(!error.to_string().contains("SECRET"));
        }
    }

    #[test]
    fn the_scheme_may_name_a_driver() {
        for (url, expected) in [
            ("postgres://h", true),
            ("postgresql+psycopg://h", true),
            ("postgresql:h", false),
            ("sqlite:///f", false),
            ("h:5432", false),
            ("", false),
        ] {
            assert_eq!(is_postgres(url), expected, "{url}");
        }
    }
}
