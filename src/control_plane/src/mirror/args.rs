//! Command line options of the mirror.

use std::{env, path::PathBuf, time::Duration};

use crds::Period;
use store::DatabaseUrl;

/// Options of the copy in a database.
#[derive(Debug, clap::Args)]
pub struct MirrorArgs {
    /// Database that gets a copy of what there is and the history of what happened:
    /// postgresql://user:password@host:5432/database, or sqlite:FILE; otherwise recif.db in --data-dir
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
    database_url: Option<DatabaseUrl>,
    /// Folder of recif.db; made if it is missing. Default: $XDG_DATA_HOME/recif, or ~/.local/share/recif
    #[arg(long, env = "RECIF_DATA_DIR", value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
    /// How long the history of objects is kept, also of those that are gone
    #[arg(long, env = "RECIF_HISTORY", default_value = "30d", value_parser = days, value_name = "DURATION")]
    history: Duration,
    /// How long the numbers of tokens and their cost are kept
    #[arg(long, env = "RECIF_USAGE", default_value = "400d", value_parser = days, value_name = "DURATION")]
    usage: Duration,
}

/// Retention times of rows that outlive their objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Retention {
    /// Retention time of transitions.
    pub(crate) history: Duration,
    /// Retention time of the usage of models.
    pub(crate) usage: Duration,
}

impl MirrorArgs {
    /// Returns the URL of the database and the retention times.
    pub(crate) fn read(self) -> (DatabaseUrl, Retention) {
        let Self { database_url, data_dir, history, usage } = self;
        let file = || DatabaseUrl::file(&data_dir.unwrap_or_else(default_folder).join("recif.db"));
        (database_url.filter(|url| !url.is_empty()).unwrap_or_else(file), Retention { history, usage })
    }
}

/// Returns the folder for data of the user's programs ([XDG base
/// directories](https://specifications.freedesktop.org/basedir-spec/latest/)), or `/var/lib/recif`.
fn default_folder() -> PathBuf {
    let folder = |variable: &str| env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let share = folder("XDG_DATA_HOME").or_else(|| Some(folder("HOME")?.join(".local/share")));
    share.map_or_else(|| "/var/lib/recif".into(), |share| share.join("recif"))
}

/// Parses a duration, in days or any unit of [`Period`].
pub(crate) fn days(text: &str) -> Result<Duration, String> {
    const DAY: u64 = 24 * 60 * 60;
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u64>().ok());
    let length = days.map(|days| Duration::from_secs(days.saturating_mul(DAY))).or_else(|| Period::from(text).length());
    // A thousand years. With a longer duration the oldest kept time would be before the first one that can be represented.
    let sensible = length.filter(|length| !length.is_zero() && *length <= Duration::from_secs(365_000 * DAY));
    sensible.ok_or_else(|| "give a duration such as `30d` or `12h`".into())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        mirror: MirrorArgs,
    }

    fn read(arguments: &[&str]) -> (String, Duration) {
        let cli = Cli::try_parse_from(["recif"].iter().chain(arguments)).unwrap();
        assert!(!format!("{cli:?}").contains("SECRET"));
        let (url, Retention { history, usage }) = cli.mirror.read();
        assert_eq!(usage, Duration::from_secs(400 * 24 * 3600));
        (url.display_name().unwrap(), history)
    }

    #[test]
    fn the_database_is_a_file_unless_another_one_is_named() {
        let month = Duration::from_secs(30 * 24 * 3600);
        let file = ("SQLite file /data/recif.db".to_owned(), month);
        assert_eq!(read(&["--data-dir=/data"]), file);
        assert_eq!(read(&["--data-dir=/data", "--database-url="]), file, "a variable that is set to nothing");
        let (place, history) = read(&["--database-url=postgresql://u:SECRET@h/d", "--history=12h"]);
        assert_eq!((place.as_str(), history), ("PostgreSQL at h/d", Duration::from_secs(12 * 3600)));
    }

    #[test]
    fn a_history_of_no_length_is_refused() {
        for wrong in ["0d", "", "d", "-1d", "5", "99999999999d", "month"] {
            assert!(days(wrong).is_err(), "{wrong}");
        }
    }
}
