//! The subresource `log` of Pods, from the logs of the node.

use std::collections::VecDeque;

use apiserver::{LogError, LogOptions, LogStream, PodLogs};
use bytes::Bytes;
use futures::{StreamExt as _, stream};

use crate::logs::{Instance, Line, Logs};

impl PodLogs for Logs {
    fn read(&self, namespace: &str, pod: &str, options: &LogOptions) -> Result<LogStream, LogError> {
        let Some(log) = self.find(namespace, pod, &options.container) else {
            return Err(if self.has_pod(namespace, pod) { LogError::NotAvailable } else { LogError::NotFound });
        };
        let begin = match log.instance(options.previous) {
            Instance::At(position) => position,
            Instance::NotStarted(Some(reason)) => return Err(LogError::Waiting(reason)),
            Instance::NotStarted(None) => return Err(LogError::NotAvailable),
            Instance::NoPrevious => return Err(LogError::NoPrevious),
        };
        let mut changes = log.changes();
        changes.mark_unchanged();
        let (mut lines, position, is_open) = log.read(begin);
        if let Some(since) = options.since {
            lines.retain(|line| line.at >= since);
        }
        if let Some(count) = options.tail_lines {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            lines.drain(..lines.len().saturating_sub(count));
        }
        let timestamps = options.timestamps;
        let shown = move |line: Line| match timestamps {
            true => Bytes::from(format!("{} {}\n", line.at, line.text)),
            false => Bytes::from(format!("{}\n", line.text)),
        };
        let first = VecDeque::from(lines);
        let is_followed = options.follow && is_open;
        let next = move |(mut lines, position, is_open): (VecDeque<Line>, _, bool)| {
            let (log, mut changes) = (log.clone(), changes.clone());
            async move {
                let mut state = (position, is_open);
                loop {
                    if let Some(line) = lines.pop_front() {
                        return Some((line, (lines, state.0, state.1)));
                    }
                    if !state.1 {
                        return None;
                    }
                    let (more, position, is_open) = log.read(state.0);
                    state = (position, is_open);
                    lines.extend(more);
                    if lines.is_empty() && is_open {
                        // Fails if the log is gone; then it has ended.
                        changes.changed().await.ok()?;
                    }
                }
            }
        };
        Ok(stream::unfold((first, position, is_followed), next).map(shown).boxed())
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;
    use crate::testing::TestFolder;

    fn options(change: impl FnOnce(&mut LogOptions)) -> LogOptions {
        let mut options = LogOptions { container: "c".to_owned(), ..LogOptions::default() };
        change(&mut options);
        options
    }

    async fn read(logs: &Logs, options: &LogOptions) -> Result<String, LogError> {
        let parts: Vec<Bytes> = logs.read("ns", "p", options)?.collect().await;
        Ok(String::from_utf8(parts.concat()).unwrap())
    }

    #[tokio::test]
    async fn a_log_is_read_as_the_options_say() {
        let folder = TestFolder::new();
        let logs = Logs::new(folder.path().to_owned());
        assert_eq!(read(&logs, &options(|_| {})).await, Err(LogError::NotFound));
        let log = logs.container("ns", "p", "c", || "x".to_owned());
        assert_eq!(read(&logs, &options(|_| {})).await, Err(LogError::NotAvailable));
        log.wait("ErrImageNeverPull");
        assert_eq!(read(&logs, &options(|_| {})).await, Err(LogError::Waiting("ErrImageNeverPull".to_owned())));
        log.begin();
        ["1", "2", "3"].iter().for_each(|line| log.push(line));
        assert_eq!(read(&logs, &options(|_| {})).await.unwrap(), "1\n2\n3\n");
        assert_eq!(read(&logs, &options(|options| options.tail_lines = Some(2))).await.unwrap(), "2\n3\n");
        assert_eq!(read(&logs, &options(|options| options.tail_lines = Some(0))).await.unwrap(), "");
        let late = "2200-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(read(&logs, &options(|options| options.since = Some(late))).await.unwrap(), "");
        let timed = read(&logs, &options(|options| options.timestamps = true)).await.unwrap();
        assert!(
            timed.lines().all(|line| line.split_once(' ').unwrap().0.parse::<jiff::Timestamp>().is_ok()),
            "{timed}"
        );
        let previous = options(|options| options.previous = true);
        assert_eq!(read(&logs, &previous).await, Err(LogError::NoPrevious));
        log.begin();
        assert_eq!(read(&logs, &previous).await.unwrap(), "1\n2\n3\n");
        let other = LogOptions { container: "other".to_owned(), ..LogOptions::default() };
        assert_eq!(read(&logs, &other).await, Err(LogError::NotAvailable));
    }

    #[tokio::test]
    async fn a_log_is_followed_until_the_container_ends() {
        let folder = TestFolder::new();
        let logs = Logs::new(folder.path().to_owned());
        let log = logs.container("ns", "p", "c", || "x".to_owned());
        log.begin();
        log.push("1");
        let mut stream = logs.read("ns", "p", &options(|options| options.follow = true)).unwrap();
        assert_eq!(stream.next().await.unwrap(), "1\n");
        assert!(stream.next().now_or_never().is_none());
        log.push("2");
        assert_eq!(stream.next().await.unwrap(), "2\n");
        log.push("3");
        log.end();
        log.begin();
        log.push("of another instance");
        assert_eq!(stream.next().await.unwrap(), "3\n");
        assert_eq!(stream.next().await, None);
        let mut stream = logs.read("ns", "p", &options(|options| options.follow = true)).unwrap();
        assert_eq!(stream.next().await.unwrap(), "of another instance\n");
        logs.remove_pod("ns", "p");
        assert_eq!(stream.next().await, None);
    }
}
