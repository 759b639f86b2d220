//! The line of a request: names, numbers and words of the gateway's own, and nothing that a client or a workload wrote but names.

use std::{borrow::Cow, net::IpAddr, time::Duration};

use crds::usage::cut_name;
use jiff::Timestamp;
use serde::Serialize;

use super::entry::AuditEntry;

/// Most groups of a caller that are named.
const MAX_GROUPS: usize = 8;

/// Line as it is written.
#[derive(Serialize)]
struct AuditLine<'a> {
    target: &'static str,
    at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<&'a str>,
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
    model: Option<Cow<'a, str>>,
    aborted: bool,
}

/// Tokens that the models of a request used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct AuditTokens {
    #[serde(rename = "in")]
    input: u64,
    #[serde(rename = "out")]
    output: u64,
}

/// Appends the line of a request that has ended. Returns false, and appends nothing, if there is none, which does not happen.
pub(super) fn write(entry: &AuditEntry, lines: &mut Vec<u8>) -> bool {
    let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    let at = Timestamp::now().as_millisecond().saturating_sub(ms(entry.arrived.elapsed()));
    let at = Timestamp::from_millisecond(at).unwrap_or_default();
    let caller = entry.caller.get();
    let groups = caller.map_or(&[][..], |caller| &caller.groups);
    let (tokens, model) = entry.usage.get().map_or((None, None), |usage| read_usage(usage));
    let (bytes_in, bytes_out) = entry.bytes();
    let line = AuditLine {
        target: "audit",
        at: format!("{at:.3}"),
        run: entry.trace.get().and_then(|trace| str::from_utf8(trace).ok()),
        caller: caller.and_then(|caller| caller.user.as_deref()),
        groups: groups.iter().take(MAX_GROUPS).map(|group| visible(group)).collect(),
        client: entry.client,
        kind: entry.workload.kind.name(),
        namespace: &entry.workload.namespace,
        name: &entry.workload.name,
        method: entry.method,
        code: entry.code(),
        verdict: entry.verdict(),
        reason: entry.reason.get().copied(),
        bytes_in,
        bytes_out,
        ms: u64::try_from(entry.took.as_millis()).unwrap_or(u64::MAX),
        ttfb_ms: entry.first_byte(),
        queue_ms: entry.queued(),
        pod: entry.pod.get().map(|pod| pod.ip()),
        tokens,
        model: model.as_deref().map(|model| visible(cut_name(model))),
        aborted: entry.aborted(),
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

/// Reads the tokens and the model of a report of usage, a dictionary as in RFC 9651. What cannot be read is left out.
fn read_usage(report: &[u8]) -> (Option<AuditTokens>, Option<String>) {
    let (mut input, mut output, mut model) = (None, None, None);
    let mut rest = str::from_utf8(report).unwrap_or_default();
    while !rest.is_empty() {
        let (key, after) = rest.split_at(rest.find(['=', ',']).unwrap_or(rest.len()));
        let (value, after) = after.strip_prefix('=').map_or((String::new(), after), read_value);
        match key.trim() {
            "in" => input = value.parse().ok(),
            "out" => output = value.parse().ok(),
            "model" => model = Some(value),
            _ => {}
        }
        rest = after.split_once(',').map_or("", |(_, rest)| rest);
    }
    let tokens = input.zip(output).map(|(input, output)| AuditTokens { input, output });
    (tokens, model)
}

/// Reads the value at the beginning of `text`, and returns what comes after it too.
fn read_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let (value, rest) = text.split_at(text.find(',').unwrap_or(text.len()));
        return (value.trim().to_owned(), rest);
    };
    let (mut value, mut escaped) = (String::new(), false);
    for (at, letter) in quoted.char_indices() {
        match letter {
            '\\' if !escaped => escaped = true,
            '"' if !escaped => return (value, &quoted[at + 1..]),
            _ => {
                value.push(letter);
                escaped = false;
            }
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usage_of_a_runner_is_read_and_that_of_others_as_far_as_it_is_one() {
        let tokens = |input, output| Some(AuditTokens { input, output });
        let model = |name: &str| Some(name.to_owned());
        for (report, expected) in [
            (
                "in=1200, out=340, cr=800, cw=0, rs=120, calls=3, model=\"anthropic/claude\"",
                (tokens(1200, 340), model("anthropic/claude")),
            ),
            ("in=1, out=2, calls=1, model=\"a, out=7\\\"\\\\\", est", (tokens(1, 2), model("a, out=7\"\\"))),
            ("in=1,out=2", (tokens(1, 2), None)),
            ("est, in=-1, out=2", (None, None)),
            ("model=\"open", (None, model("open"))),
            ("", (None, None)),
        ] {
            assert_eq!(read_usage(report.as_bytes()), expected, "{report}");
        }
        assert_eq!(read_usage(b"in=1, out=\xff"), (None, None));
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(visible("a\u{1b}[2J\u{85}\nb"), "a\\u{1b}[2J\\u{85}\\u{a}b");
        assert_eq!(visible("system:masters"), "system:masters");
    }
}
