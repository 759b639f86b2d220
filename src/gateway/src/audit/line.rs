//! The line of a request: names, numbers and words of the gateway's own, and nothing that a client or a workload wrote but names.

use std::{borrow::Cow, net::IpAddr, time::Duration};

use crds::{pending_calls::DecidedCalls, usage::TokenDirection};
use jiff::Timestamp;
use serde::Serialize;

use crate::{limits::RequestCost, request_record::RequestRecord, traces::RequestSpan};

/// Most groups of a caller that are named.
const MAX_GROUPS: usize = 8;

/// Line as it is written.
#[derive(Serialize)]
struct AuditLine<'a> {
    target: &'static str,
    at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    caller: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<Cow<'a, str>>,
    client: IpAddr,
    kind: &'static str,
    namespace: &'a str,
    name: &'a str,
    method: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u16>,
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    bytes_in: u64,
    bytes_out: u64,
    ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttfb_ms: Option<u64>,
    queue_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<AuditTokens>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<&'a RequestCost>,
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<AuditApproval<'a>>,
    aborted: bool,
}

/// Calls of tools that a request decided on.
#[derive(Serialize)]
struct AuditApproval<'a> {
    task: &'a str,
    /// Ids of all of them.
    ids: Vec<&'a str>,
    /// Ids of those that were approved.
    approved: Vec<&'a str>,
}

impl<'a> From<&'a DecidedCalls> for AuditApproval<'a> {
    fn from(DecidedCalls { task, approved, rejected }: &'a DecidedCalls) -> Self {
        let ids = approved.iter().chain(rejected).map(|id| &**id).collect();
        Self { task, ids, approved: approved.iter().map(|id| &**id).collect() }
    }
}

/// Tokens that the models of a request used.
#[derive(Serialize)]
struct AuditTokens {
    #[serde(rename = "in")]
    input: u64,
    #[serde(rename = "out")]
    output: u64,
}

/// Appends the line of a request that has ended. Returns false, and appends nothing, if there is none, which does not happen.
pub(super) fn write(record: &RequestRecord, lines: &mut Vec<u8>) -> bool {
    let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    let at = Timestamp::now().as_millisecond().saturating_sub(ms(record.arrived.elapsed()));
    let at = Timestamp::from_millisecond(at).unwrap_or_default();
    let caller = record.caller.get();
    let groups = caller.map_or(&[][..], |caller| &caller.groups);
    let usage = record.usage.get();
    let (bytes_in, bytes_out) = record.bytes();
    let line = AuditLine {
        target: "audit",
        at: format!("{at:.3}"),
        // Of a request that reached no Pod the span alone knows it.
        run: record.trace.get().map(hex::encode).or_else(|| record.span.as_deref().map(RequestSpan::run)),
        caller: caller.and_then(|caller| caller.user.as_deref()),
        groups: groups.iter().take(MAX_GROUPS).map(|group| visible(group)).collect(),
        client: record.client,
        kind: record.workload.kind.name(),
        namespace: &record.workload.namespace,
        name: &record.workload.name,
        method: record.method,
        code: record.code(),
        verdict: record.verdict(),
        reason: record.reason.get().copied(),
        bytes_in,
        bytes_out,
        ms: u64::try_from(record.took.as_millis()).unwrap_or(u64::MAX),
        ttfb_ms: record.first_byte(),
        queue_ms: record.queued(),
        pod: record.pod.get().map(|pod| pod.ip()),
        tokens: usage.map(|usage| AuditTokens {
            input: usage.of(TokenDirection::Input),
            output: usage.of(TokenDirection::Output),
        }),
        model: usage.and_then(|usage| usage.model.as_deref()),
        cost: record.cost.get().map(|cost| &**cost),
        approval: record.decided.get().map(|decided| AuditApproval::from(&**decided)),
        aborted: record.aborted(),
    };
    let before = lines.len();
    if serde_json::to_writer(&mut *lines, &line).is_err() {
        lines.truncate(before);
        return false;
    }
    lines.push(b'\n');
    true
}

/// Returns a name with its control characters escaped.
fn visible(name: &str) -> Cow<'_, str> {
    if !name.chars().any(char::is_control) {
        return Cow::Borrowed(name);
    }
    let mut shown = String::with_capacity(name.len() + 8);
    for letter in name.chars() {
        match letter.is_control() {
            true => shown.extend(letter.escape_unicode()),
            false => shown.push(letter),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(visible("a\u{1b}[2J\u{85}\nb"), "a\\u{1b}[2J\\u{85}\\u{a}b");
        assert_eq!(visible("system:masters"), "system:masters");
    }
}
