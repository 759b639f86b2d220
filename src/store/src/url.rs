//! URL of the database.

use std::{
    convert::Infallible,
    fmt,
    path::{Path, PathBuf, absolute},
    str::FromStr,
};

use crds::postgres_url::{PostgresUrl, PostgresUrlError, is_postgres};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use url::Url;

use super::error::StoreError;

/// Characters that are percent-encoded in the path of a URL: all but unreserved ones and `/`.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// URL of a database as it was given. It may hold a password, so it is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl(String);

/// Supported databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Engine {
    /// SQLite, in a file.
    Sqlite,
    /// PostgreSQL, on a server.
    Postgres,
}

/// Parsed URL of a database.
pub(super) struct DatabaseSource {
    /// Database of the URL.
    pub(super) engine: Engine,
    /// URL for the driver. It may hold a password.
    pub(super) url: Url,
    /// SQLite's file.
    pub(super) file: Option<PathBuf>,
    /// Name for logs, without user and password.
    pub(super) display_name: String,
}

impl DatabaseUrl {
    /// Creates the URL of SQLite in this file.
    pub fn file(path: &Path) -> Self {
        Self(format!("sqlite:{}", utf8_percent_encode(&path.to_string_lossy(), IN_PATH)))
    }

    /// Reports whether the text is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the name of the database for logs, without user and password.
    ///
    /// # Errors
    /// The URL cannot be used.
    pub fn display_name(&self) -> Result<String, StoreError> {
        self.source().map(|source| source.display_name)
    }

    /// Parses the URL.
    ///
    /// # Errors
    /// The URL cannot be used.
    pub(super) fn source(&self) -> Result<DatabaseSource, StoreError> {
        match self.0.split([':', '+']).next() {
            Some("sqlite") => self.sqlite(),
            _ if is_postgres(&self.0) => self.postgres(),
            _ => Err(StoreError::Url(
                "the URL of the database has to begin with postgresql:// or sqlite:, such as \
                 postgresql://user:password@host:5432/database or sqlite:/var/lib/recif/recif.db"
                    .into(),
            )),
        }
    }

    fn sqlite(&self) -> Result<DatabaseSource, StoreError> {
        let rest = self.0.split_once(':').map_or("", |(_, rest)| rest);
        let rest = rest.strip_prefix("//").unwrap_or(rest).split(['?', '#']).next().unwrap_or_default();
        let path = percent_decode_str(rest).decode_utf8_lossy();
        if path.is_empty() || path == ":memory:" {
            let problem = "a database of SQLite needs a file: write sqlite:/var/lib/recif/recif.db";
            return Err(StoreError::Url(problem.into()));
        }
        let file = absolute(Path::new(path.as_ref())).map_err(|error| StoreError::Url(error.to_string()))?;
        let text = file.to_string_lossy();
        let url = Url::parse(&format!("sqlite://{}", utf8_percent_encode(&text, IN_PATH)));
        let url = url.map_err(|_| StoreError::Url(format!("{text} cannot be the file of a database")))?;
        Ok(DatabaseSource {
            engine: Engine::Sqlite,
            url,
            display_name: format!("SQLite file {text}"),
            file: Some(file.clone()),
        })
    }

    fn postgres(&self) -> Result<DatabaseSource, StoreError> {
        let unusable = |problem: PostgresUrlError| StoreError::Url(format!("the URL of the database {problem}"));
        let PostgresUrl { url: given, place } = PostgresUrl::read(&self.0).map_err(unusable)?;
        let mut url = given.clone();
        // Set first, so that a name in the user's URL, which comes later, takes precedence.
        url.set_query(Some("application_name=recif-control-plane"));
        url.query_pairs_mut().extend_pairs(given.query_pairs());
        // Parsed here, too, so that a bad parameter is reported at the start.
        sqlx::postgres::PgConnectOptions::from_str(url.as_str()).map_err(|_| unusable(PostgresUrlError::Malformed))?;
        Ok(DatabaseSource { engine: Engine::Postgres, url, file: None, display_name: place })
    }
}

impl FromStr for DatabaseUrl {
    type Err = Infallible;

    /// Accepts any text: errors are reported later, without the text, which may hold a password.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.trim().to_owned()))
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Debug for DatabaseSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.display_name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(url: &str) -> Result<DatabaseSource, String> {
        url.parse::<DatabaseUrl>().unwrap().source().map_err(|error| error.to_string())
    }

    #[test]
    fn every_documented_url_is_read() {
        for (url, place) in [
            ("postgresql+asyncpg://u:SECRET%40@h.x:6432/d?ssl=require&server_settings=x", "PostgreSQL at h.x:6432/d"),
            ("sqlite:/data/recif.db", "SQLite file /data/recif.db"),
            ("sqlite:///data/my%20%3Frecif.db?mode=rwc", "SQLite file /data/my ?recif.db"),
        ] {
            let source = source(url).unwrap();
            assert_eq!(source.display_name, place, "{url}");
            assert!(!format!("{source:?} {:?}", url.parse::<DatabaseUrl>()).contains("SECRET"), "{url}");
        }
        let named = |url: &str| source(url).unwrap().url.query().unwrap_or_default().to_owned();
        assert_eq!(named("postgresql://h/d"), "application_name=recif-control-plane");
        assert_eq!(
            named("postgresql://h/d?application_name=mine"),
            "application_name=recif-control-plane&application_name=mine"
        );
        let file = Path::new("/a folder/ü?#%.db");
        assert_eq!(DatabaseUrl::file(file).source().unwrap().file.unwrap(), file);
    }

    #[test]
    fn what_is_wrong_with_a_url_is_told_without_it() {
        for (url, problem) in [
            ("mysql://u:SECRET@h/d", "postgresql://"),
            ("SECRET", "postgresql://"),
            ("postgresql://u:SECRET@a,b/d", "several hosts"),
            ("postgresql://u:SECRET@h/d?sslmode=SECRET", "cannot be read"),
            ("postgresql://u:p@SECRET/word@db/d", "percent-encoded"),
            ("sqlite:", "needs a file"),
            ("sqlite::memory:", "needs a file"),
        ] {
            let error = source(url).unwrap_err();
            assert!(error.contains(problem) && !error.contains("SECRET"), "{url}: {error}");
        }
    }
}
