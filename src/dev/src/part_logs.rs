//! Logs of the parts in this process: kept with those of Pods, where `recif trace` and `kubectl logs` find them, and shown if the user
//! asks for them.

use std::{
    cell::Cell,
    io::{self, Write},
    str::FromStr as _,
};

use daemon::logs::DEFAULT_FILTER;
use node::Logs;
use tracing::Metadata;
use tracing_subscriber::{EnvFilter, filter::ParseError, fmt::MakeWriter};

use crate::{part::Part, platform::NAMESPACE, screen::Screen};

/// Variable by which more is logged, as for the processes of a cluster.
const FILTER: &str = "RECIF_LOG";

thread_local! {
    /// Set while a line is added in this thread.
    static ADDING: Cell<bool> = const { Cell::new(false) };
}

/// Starts logging in this process.
///
/// # Errors
/// The filter of the environment cannot be read.
pub(crate) fn start(logs: Logs, screen: Screen) -> Result<(), ParseError> {
    let filter = std::env::var(FILTER).ok().filter(|filter| !filter.is_empty());
    let filter = EnvFilter::from_str(filter.as_deref().unwrap_or(DEFAULT_FILTER))?;
    let add = move |part: Part, line: &str| {
        logs.push(NAMESPACE, part.full_name(), part.name(), line);
        screen.part_line(part, line);
    };
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(PartWriters(add));
    // A second call, as in a test, has no effect.
    let _ = lines.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init();
    Ok(())
}

/// Makes the writer of an event by the module that it comes from. The function takes each line with its part.
struct PartWriters<F>(F);

/// Writer of one event.
struct PartWriter<'a, F: Fn(Part, &str)> {
    add: &'a F,
    part: Part,
    line: Vec<u8>,
}

impl<'a, F: Fn(Part, &str) + 'a> MakeWriter<'a> for PartWriters<F> {
    type Writer = PartWriter<'a, F>;

    fn make_writer(&'a self) -> Self::Writer {
        PartWriter { add: &self.0, part: Part::Operator, line: Vec::new() }
    }

    fn make_writer_for(&'a self, event: &Metadata<'_>) -> Self::Writer {
        PartWriter { add: &self.0, part: Part::of_target(event.target()), line: Vec::new() }
    }
}

impl<F: Fn(Part, &str)> Write for PartWriter<'_, F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<F: Fn(Part, &str)> Drop for PartWriter<'_, F> {
    fn drop(&mut self) {
        // A log that cannot be written is logged, too: that has to end.
        if !self.line.is_empty() && !ADDING.replace(true) {
            (self.add)(self.part, String::from_utf8_lossy(&self.line).trim_end());
            ADDING.set(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn an_event_is_a_line_of_its_part() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = seen.clone();
        let add = move |part: Part, line: &str| {
            sink.lock().unwrap().push((part, line.to_owned()));
            tracing::warn!("this is not added");
        };
        let lines = tracing_subscriber::fmt().with_writer(PartWriters(add)).json().flatten_event(true).finish();
        tracing::subscriber::with_default(lines, || {
            tracing::info!(target: "gateway::x", a = 1, "hello");
            tracing::info!(target: "phase_trace", "step");
        });
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), 2);
        assert_eq!(seen.iter().map(|(part, _)| *part).collect::<Vec<_>>(), [Part::Gateway, Part::Operator]);
        assert!(seen[0].1.contains("\"message\":\"hello\"") && seen[0].1.ends_with('}'), "{seen:?}");
    }
}
