//! The subresource `log` of Pods: what a request may ask of a container's log, and the interface of the node that has it.

use std::num::IntErrorKind;

use bytes::Bytes;
use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use thiserror::Error;

use crate::{
    errors::{FORBIDDEN, INVALID, StatusError, Violation},
    object::{items, name, text},
    options::Query,
};

/// Parts of a log as the container writes it, with line breaks. Ends with the log; with [`LogOptions::follow`], when the container
/// has ended.
pub type LogStream = BoxStream<'static, Bytes>;

/// The node's logs of containers.
pub trait PodLogs: Send + Sync {
    /// Returns the log of a container, of the lines that the options select. The stream is dropped when the client goes.
    ///
    /// # Errors
    /// There is no such log.
    fn read(&self, namespace: &str, pod: &str, options: &LogOptions) -> Result<LogStream, LogError>;
}

/// Options of a request for a log
/// ([`PodLogOptions`](https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#get-read-log-of-the-specified-pod)).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Name of the container, which is in the Pod.
    pub container: String,
    /// The log goes on as the container writes.
    pub follow: bool,
    /// The log is that of the container's instance before this one.
    pub previous: bool,
    /// Only so many lines at the end, and what follows.
    pub tail_lines: Option<u64>,
    /// Only lines of this time and later: `sinceTime`, or `sinceSeconds` before the request.
    pub since: Option<Timestamp>,
    /// Each line begins with its time in RFC 3339 and a blank.
    pub timestamps: bool,
    /// At most so many bytes. The API server ends the response there; a source may end its stream, too.
    pub limit_bytes: Option<u64>,
}

/// There is no log.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LogError {
    /// The node does not have the Pod.
    #[error("the Pod is not on the node")]
    NotFound,
    /// The node has the Pod, but no state of the container.
    #[error("the container is not available yet")]
    NotAvailable,
    /// The container has not started; with the reason of its state `waiting`.
    #[error("the container is waiting to start: {0}")]
    Waiting(String),
    /// No instance of the container ran before this one.
    #[error("no instance of the container ran before this one")]
    NoPrevious,
}

impl LogOptions {
    /// Reads the options of a request for the log of a Pod at a time. The container is as it is given.
    ///
    /// # Errors
    /// 400 for what is no number or time, 422 for values that are not allowed.
    pub(crate) fn parse(pod: &str, query: &Query, now: Timestamp) -> Result<Self, StatusError> {
        let [tail, limit, seconds] = ["tailLines", "limitBytes", "sinceSeconds"].map(|name| number(query, name));
        let (tail, limit, seconds, time) = (tail?, limit?, seconds?, time(query.get("sinceTime"))?);
        let below = |field: &str, value: Option<i64>, least: i64, rule: &str| {
            let value = value.filter(|value| *value < least)?;
            Some(violation(INVALID, field, format!("Invalid value: {value}: {rule}")))
        };
        let mut errors = Vec::new();
        errors.extend(below("tailLines", tail, 0, "must be greater than or equal to 0"));
        errors.extend(below("limitBytes", limit, 1, "must be greater than 0"));
        if seconds.is_some() && time.is_some() {
            let rule = "Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified";
            errors.push(violation(FORBIDDEN, "[]", rule.to_owned()));
        } else {
            errors.extend(below("sinceSeconds", seconds, 1, "must be greater than 0"));
        }
        if query.has("stream") {
            errors.push(violation(FORBIDDEN, "stream", "Forbidden: may not be specified".to_owned()));
        }
        if !errors.is_empty() {
            return Err(StatusError::invalid("", "PodLogOptions", pod, &errors));
        }
        let ago = |seconds: i64| now.checked_sub(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MIN);
        Ok(Self {
            container: query.get("container").to_owned(),
            follow: query.flag("follow"),
            previous: query.flag("previous"),
            tail_lines: tail.map(i64::unsigned_abs),
            since: time.or(seconds.map(ago)),
            timestamps: query.flag("timestamps"),
            limit_bytes: limit.map(i64::unsigned_abs),
        })
    }

    /// Completes the options by the container of a Pod that has only one.
    ///
    /// # Errors
    /// 400 if the container must be named, or is not in the Pod.
    pub(crate) fn of(mut self, pod: &Value) -> Result<Self, StatusError> {
        let pod_name = name(pod);
        let of_list =
            |list: &str| items(pod, &format!("/spec/{list}")).iter().map(|container| text(container, "/name"));
        let all: Vec<&str> =
            ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(of_list).collect();
        let mut own = of_list("containers");
        match (self.container.as_str(), own.next(), own.next()) {
            ("", Some(only), None) => self.container = only.to_owned(),
            ("", None, _) => {
                return Err(StatusError::bad_request(format!("a container name must be specified for pod {pod_name}")));
            }
            ("", ..) => {
                let all = all.join(" ");
                let message = format!("a container name must be specified for pod {pod_name}, choose one of: [{all}]");
                return Err(StatusError::bad_request(message));
            }
            (given, ..) if !all.contains(&given) => {
                return Err(StatusError::bad_request(format!("container {given} is not valid for pod {pod_name}")));
            }
            _ => {}
        }
        Ok(self)
    }

    /// Ends a log at the bytes that are asked for.
    pub(crate) fn limited(&self, log: LogStream) -> LogStream {
        let Some(limit) = self.limit_bytes else { return log };
        let next = |(mut log, left): (LogStream, u64)| async move {
            if left == 0 {
                return None;
            }
            let mut bytes = log.next().await?;
            bytes.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            let left = left - bytes.len() as u64;
            Some((bytes, (log, left)))
        };
        stream::unfold((log, limit), next).boxed()
    }
}

impl LogError {
    /// Returns the error in the words of the kubelet.
    pub(crate) fn into_status_error(self, pod: &str, container: &str) -> StatusError {
        let subject = format!("container {container:?} in pod {pod:?}");
        match self {
            Self::NotFound => StatusError::log_not_found(pod),
            Self::NotAvailable => StatusError::bad_request(format!("{subject} is not available")),
            Self::Waiting(reason) => StatusError::bad_request(format!("{subject} is waiting to start: {reason}")),
            Self::NoPrevious => StatusError::bad_request(format!("previous terminated {subject} not found")),
        }
    }
}

fn violation(reason: &'static str, field: &str, message: String) -> Violation {
    Violation { reason, field: field.to_owned(), message }
}

/// Reads a whole number.
fn number(query: &Query, name: &str) -> Result<Option<i64>, StatusError> {
    if !query.has(name) {
        return Ok(None);
    }
    let value = query.get(name);
    value.parse().map(Some).map_err(|error: std::num::ParseIntError| {
        let is_too_large = matches!(error.kind(), IntErrorKind::PosOverflow | IntErrorKind::NegOverflow);
        let why = if is_too_large { "value out of range" } else { "invalid syntax" };
        StatusError::bad_request(format!("strconv.ParseInt: parsing {value:?}: {why}"))
    })
}

/// Reads a time; an empty one is none.
fn time(value: &str) -> Result<Option<Timestamp>, StatusError> {
    if matches!(value, "" | "null") {
        return Ok(None);
    }
    let unreadable = |_| {
        let layout = "2006-01-02T15:04:05Z07:00";
        StatusError::bad_request(format!("parsing time {value:?} as {layout:?}: cannot parse {value:?} as \"2006\""))
    };
    value.parse().map(Some).map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(query: &str) -> Result<LogOptions, StatusError> {
        LogOptions::parse("p", &Query::parse(query), "2026-01-02T03:04:05Z".parse().unwrap())
    }

    #[test]
    fn options_are_read() {
        let query = "container=c&follow=true&previous=1&tailLines=0&sinceSeconds=5&timestamps&limitBytes=7";
        let expected = LogOptions {
            container: "c".to_owned(),
            follow: true,
            previous: true,
            tail_lines: Some(0),
            since: Some("2026-01-02T03:04:00Z".parse().unwrap()),
            timestamps: true,
            limit_bytes: Some(7),
        };
        assert_eq!(parse(query), Ok(expected));
        assert_eq!(parse("follow=False&previous=0"), Ok(LogOptions::default()));
        let since = |query: &str| parse(query).unwrap().since.unwrap();
        assert_eq!(since("sinceTime=2026-01-01T00:00:00%2B01:00"), "2025-12-31T23:00:00Z".parse().unwrap());
        assert_eq!(since(&format!("sinceSeconds={}", i64::MAX)), Timestamp::MIN);
    }

    #[test]
    fn wrong_options_are_refused_in_the_words_of_the_api_server() {
        let invalid = |rule: &str| (422, format!("PodLogOptions \"p\" is invalid: {rule}"));
        let cases = [
            ("tailLines=x", (400, "strconv.ParseInt: parsing \"x\": invalid syntax".to_owned())),
            ("tailLines=", (400, "strconv.ParseInt: parsing \"\": invalid syntax".to_owned())),
            (
                "limitBytes=9223372036854775808",
                (400, "strconv.ParseInt: parsing \"9223372036854775808\": value out of range".to_owned()),
            ),
            ("tailLines=-1", invalid("tailLines: Invalid value: -1: must be greater than or equal to 0")),
            ("limitBytes=0", invalid("limitBytes: Invalid value: 0: must be greater than 0")),
            ("sinceSeconds=0", invalid("sinceSeconds: Invalid value: 0: must be greater than 0")),
            (
                "sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z",
                invalid("[]: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified"),
            ),
            ("stream=Stdout", invalid("stream: Forbidden: may not be specified")),
        ];
        for (query, (code, message)) in cases {
            let error = parse(query).unwrap_err();
            assert_eq!((error.code.as_u16(), error.message), (code, message), "{query}");
        }
        let error = parse("sinceTime=yesterday").unwrap_err();
        assert!(error.message.starts_with("parsing time \"yesterday\""), "{}", error.message);
    }

    #[test]
    fn the_container_is_named_unless_there_is_only_one() {
        let containers = |names: &[&str]| names.iter().map(|name| json!({ "name": name })).collect::<Value>();
        let pod = |init: &[&str], own: &[&str]| json!({ "metadata": { "name": "p" }, "spec": { "initContainers": containers(init), "containers": containers(own) } });
        let chosen = |query: &str, pod: Value| parse(query).unwrap().of(&pod).map(|options| options.container);
        let refused = |message: &str| Err(StatusError::bad_request(message));
        let cases = [
            ("", pod(&["i"], &["a"]), Ok("a".to_owned())),
            ("container=i", pod(&["i"], &["a"]), Ok("i".to_owned())),
            (
                "",
                pod(&["i"], &["a", "b"]),
                refused("a container name must be specified for pod p, choose one of: [i a b]"),
            ),
            ("container=x", pod(&[], &["a"]), refused("container x is not valid for pod p")),
        ];
        for (query, pod, expected) in cases {
            assert_eq!(chosen(query, pod.clone()), expected, "{query} {pod}");
        }
    }

    #[tokio::test]
    async fn a_log_ends_at_the_limit_even_if_it_is_followed() {
        let read = async |limit: Option<u64>, log: LogStream| {
            let options = LogOptions { limit_bytes: limit, ..LogOptions::default() };
            options.limited(log).collect::<Vec<_>>().await.concat()
        };
        let log = || stream::iter(["ab", "cd", "ef"].map(Bytes::from)).boxed();
        assert_eq!(read(None, log()).await, b"abcdef");
        assert_eq!(read(Some(3), log()).await, b"abc");
        assert_eq!(read(Some(6), log().chain(stream::pending()).boxed()).await, b"abcdef");
    }
}
