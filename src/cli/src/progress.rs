//! Progress line of a long wait: one line on stderr that is overwritten, on terminals only.

use std::{
    io::{self, IsTerminal as _, Write as _},
    time::{Duration, Instant},
};

use super::output::sanitize;

/// Shortest wait that is shown.
const SHOW_AFTER: Duration = Duration::from_millis(700);
/// Most characters of the line that are shown: a line that wraps could not be overwritten.
const WIDTH: usize = 76;

/// Progress line of a wait. It is removed when this is dropped.
#[derive(Debug)]
pub(super) struct ProgressLine {
    began: Instant,
    terminal: bool,
    shown: bool,
}

impl ProgressLine {
    /// Begins a wait.
    pub(super) fn begin() -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        Self { began: Instant::now(), terminal: io::stderr().is_terminal() && !dumb, shown: false }
    }

    /// Shows the text and the time waited.
    pub(super) fn update(&mut self, what: &str) {
        let waited = self.began.elapsed();
        if self.terminal && waited >= SHOW_AFTER {
            self.shown = true;
            let _ = write!(io::stderr().lock(), "\r\x1b[K{}", line(what, waited));
        }
    }

    /// Removes the line.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.clear();
    }
}

fn line(what: &str, waited: Duration) -> String {
    let what = sanitize(what).replace('\n', " ");
    let time = format!(" ({} s)", waited.as_secs());
    let room = WIDTH - time.len();
    let short: String =
        if what.chars().count() > room { what.chars().take(room - 1).chain(['…']).collect() } else { what };
    short + &time
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_fits_and_says_how_long() {
        assert_eq!(line("agent/a: Deploying", Duration::from_millis(12_300)), "agent/a: Deploying (12 s)");
        let long = line(&"é\n".repeat(200), Duration::from_secs(3));
        assert_eq!((long.chars().count(), long.contains('\n')), (WIDTH, false));
        assert!(long.ends_with("… (3 s)"), "{long}");
    }
}
