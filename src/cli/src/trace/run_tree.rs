//! Tree of the spans of a run, as text.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
};

use jiff::{Timestamp, tz::TimeZone};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::CliError;

/// Depth from which on spans are indented no further.
const MAX_DEPTH: usize = 24;
/// Operations whose tokens are sums of others.
const SUMS: [&str; 2] = ["invoke_agent", "invoke_workflow"];

/// Run, as the control plane shows it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RunTree {
    trace: String,
    start: Timestamp,
    duration_us: u64,
    #[serde(default)]
    truncated: bool,
    spans: Vec<SpanEntry>,
}

/// Span of a run.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpanEntry {
    id: String,
    #[serde(default)]
    parent: Option<String>,
    after_us: u64,
    duration_us: u64,
    #[serde(default)]
    workload: Option<SpanOwner>,
    /// `None`: it is hidden.
    #[serde(default)]
    span: Option<SpanFacts>,
}

/// Workload of a span.
#[derive(Debug, PartialEq, Eq, Deserialize)]
struct SpanOwner {
    kind: String,
    namespace: String,
    name: String,
}

/// Content of a span.
#[derive(Debug, Deserialize)]
struct SpanFacts {
    name: String,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    attributes: Map<String, Value>,
    #[serde(default)]
    events: Vec<SpanMoment>,
}

/// Event of a span.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpanMoment {
    name: String,
    after_us: u64,
    #[serde(default)]
    attributes: Map<String, Value>,
}

/// Span on its way to the text.
struct TreeNode {
    span: usize,
    /// Span above it.
    parent: Option<usize>,
    /// Text before its name.
    prefix: String,
    /// Text before the lines below it.
    indent: String,
    depth: usize,
}

impl RunTree {
    /// Reads the control plane's response.
    ///
    /// # Errors
    /// It is of another form.
    pub(super) fn read(document: &Value) -> Result<Self, CliError> {
        Self::deserialize(document).map_err(|_| {
            CliError::FailedAnswer("the control plane answers in another form: use a program of its version".into())
        })
    }

    /// Returns the tree: a line for each span, with the time since the start of the run, and how long it took.
    pub(super) fn text(&self) -> String {
        let mut text = format!("Run {}\n{}\n\n", one_line(&self.trace), self.summary());
        let mut below: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
        let places = self.spans.iter().enumerate().map(|(at, span)| (span.id.as_str(), at));
        let places: HashMap<&str, usize> = places.collect();
        for (at, span) in self.spans.iter().enumerate() {
            let parent = span.parent.as_deref().and_then(|parent| places.get(parent)).copied();
            below.entry(parent).or_default().push(at);
        }
        let mut is_printed = vec![false; self.spans.len()];
        // Those after the roots are the ones that are each other's parents.
        let roots = below.get(&None).cloned().unwrap_or_default();
        for root in roots.into_iter().chain(0..self.spans.len()) {
            let node = TreeNode { span: root, parent: None, prefix: String::new(), indent: String::new(), depth: 0 };
            let mut stack = vec![node];
            while let Some(node) = stack.pop() {
                let is_known = is_printed.get_mut(node.span).is_none_or(|printed| std::mem::replace(printed, true));
                if is_known {
                    continue;
                }
                self.print(&node, &mut text);
                let children = below.get(&Some(node.span)).map(Vec::as_slice).unwrap_or_default();
                let last = children.last();
                stack.extend(children.iter().rev().map(|child| node.child(*child, Some(child) == last)));
            }
        }
        if self.truncated {
            text.push_str("There are more spans than these.\n");
        }
        text
    }

    /// Returns the line with the sums.
    fn summary(&self) -> String {
        let start = self.start.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d %H:%M:%S UTC").to_string();
        let mut text = format!("{start}, {}", time(self.duration_us));
        let facts = || self.spans.iter().filter_map(|span| span.span.as_ref());
        let models = facts().filter(|span| span.has_tokens()).count();
        if models > 0 {
            let sum = |name: &str| {
                let counts = facts().filter(|span| span.has_tokens()).filter_map(|span| span.number(name));
                counts.fold(0, u64::saturating_add)
            };
            let (input, output) = (sum("gen_ai.usage.input_tokens"), sum("gen_ai.usage.output_tokens"));
            // Cannot fail: it writes to memory.
            let requests = number(models, "request to a model", "requests to models");
            let _ = write!(text, ", {requests}, {input} tokens in, {output} out");
        }
        let failed = facts().filter(|span| span.error.is_some()).count();
        if failed > 0 {
            let _ = write!(text, ", {}", number(failed, "span failed", "spans failed"));
        }
        text
    }

    /// Appends the lines of a span.
    fn print(&self, node: &TreeNode, text: &mut String) {
        let Some(entry) = self.spans.get(node.span) else { return };
        let above = node.parent.and_then(|parent| self.spans.get(parent));
        let (after, took) = (format!("+{}", time(entry.after_us)), time(entry.duration_us));
        let mut line = format!("{after:>10} {took:>10}  {}", node.prefix);
        let Some(facts) = &entry.span else {
            let _ = writeln!(text, "{line}(of a workload that you may not see)");
            return;
        };
        line.push_str(&one_line(&facts.name));
        let is_another = above.is_none_or(|above| above.workload != entry.workload);
        if let Some(owner) = entry.workload.as_ref().filter(|_| is_another) {
            let _ = write!(line, "  {} {}/{}", owner.kind, owner.namespace, owner.name);
        }
        for detail in facts.details() {
            let _ = write!(line, "  {detail}");
        }
        let _ = writeln!(text, "{line}");
        for event in &facts.events {
            let at = format!("+{}", time(entry.after_us.saturating_add(event.after_us)));
            let _ = writeln!(text, "{at:>10} {:>10}  {}· {}", "", node.indent, event.describe());
        }
    }
}

impl TreeNode {
    fn child(&self, span: usize, is_last: bool) -> Self {
        let (parent, depth) = (Some(self.span), self.depth + 1);
        if self.depth >= MAX_DEPTH {
            return Self { span, parent, prefix: self.prefix.clone(), indent: self.indent.clone(), depth };
        }
        let (branch, beside) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let (prefix, indent) = (format!("{}{branch}", self.indent), format!("{}{beside}", self.indent));
        Self { span, parent, prefix, indent, depth }
    }
}

impl SpanMoment {
    /// Returns its name and why it came, or the tool whose call waits for a person.
    fn describe(&self) -> String {
        let text = |name: &str| self.attributes.get(name).and_then(Value::as_str).map(one_line);
        match (self.name.as_str(), text("gen_ai.tool.name"), text("error.type")) {
            ("recif.parked", Some(tool), _) => format!("waits for approval of {tool}"),
            (name, _, Some(why)) => format!("{}: {why}", one_line(name)),
            (name, _, None) => one_line(name),
        }
    }
}

impl SpanFacts {
    fn text(&self, name: &str) -> Option<&str> {
        self.attributes.get(name)?.as_str()
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.attributes.get(name)?.as_u64()
    }

    /// Reports whether it is a request to a model that tells its tokens. A span of the gateway has the sums of its request.
    fn has_tokens(&self) -> bool {
        let is_sum = self.text("gen_ai.operation.name").is_some_and(|operation| SUMS.contains(&operation));
        !is_sum && self.number("recif.queue_ms").is_none() && self.number("gen_ai.usage.input_tokens").is_some()
    }

    /// Returns what stands behind the name.
    fn details(&self) -> Vec<String> {
        let mut details = Vec::new();
        let answered = self.text("gen_ai.response.model").filter(|model| !self.name.ends_with(model));
        details.extend(answered.map(|model| format!("answered by {}", one_line(model))));
        if self.has_tokens() {
            let tokens = |name: &str| self.number(name).unwrap_or_default();
            let (input, output) = (tokens("gen_ai.usage.input_tokens"), tokens("gen_ai.usage.output_tokens"));
            details.push(format!("{input} tokens in, {output} out"));
        }
        let above_zero = |name: &str| self.number(name).filter(|number| *number > 0);
        details
            .extend(above_zero("recif.queue_ms").map(|millis| format!("queued {}", time(millis.saturating_mul(1000)))));
        let again = above_zero("recif.retries").and_then(|retries| usize::try_from(retries).ok());
        details.extend(again.map(|retries| number(retries, "retry", "retries")));
        details.extend(
            above_zero("http.response.status_code").filter(|code| *code >= 400).map(|code| format!("HTTP {code}")),
        );
        details.extend(self.error.as_deref().map(|error| format!("error: {}", one_line(error))));
        details
    }
}

fn number(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Formats a duration: `0.4 ms`, `400 ms`, `12.3 s`.
fn time(micros: u64) -> String {
    match micros {
        0..10_000 => format!("{}.{} ms", micros / 1000, micros % 1000 / 100),
        10_000..10_000_000 => format!("{} ms", micros / 1000),
        _ => format!("{}.{} s", micros / 1_000_000, micros % 1_000_000 / 100_000),
    }
}

/// Returns a text of others without line breaks.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn span(id: &str, parent: Option<&str>, after_ms: u64, name: &str, attributes: Value) -> Value {
        json!({
            "id": id, "parent": parent, "afterUs": after_ms * 1000, "durationUs": 400_000, "hidden": false,
            "workload": { "kind": "Agent", "namespace": "ns", "name": "shop" },
            "span": { "name": name, "side": "client", "attributes": attributes, "events": [], "links": [] },
        })
    }

    fn text(spans: Value) -> String {
        let run = json!({
            "trace": "0af7", "start": "2026-11-27T01:02:03.5Z", "durationUs": 12_345_678, "truncated": false, "spans": spans,
        });
        RunTree::read(&run).unwrap().text()
    }

    #[test]
    fn the_tree_tells_times_models_tokens_and_errors() {
        let used = |input: u64, output: u64| {
            let (operation, tokens) = ("gen_ai.operation.name", "gen_ai.usage.input_tokens");
            json!({ operation: "chat", tokens: input, "gen_ai.usage.output_tokens": output })
        };
        let sums = json!({ "gen_ai.operation.name": "invoke_agent", "gen_ai.usage.input_tokens": 42 });
        let mut failed = span("2", Some("1"), 1, "chat gpt", used(0, 0));
        failed["span"]["error"] = json!("429");
        failed["span"]["events"] =
            json!([{ "name": "recif.retry", "afterUs": 200_000, "attributes": { "error.type": "429" } }]);
        let mut answered = used(42, 7);
        answered["gen_ai.response.model"] = json!("gpt-5");
        let mut other = span("5", Some("4"), 2000, "invoke_agent other\nfaked", json!({}));
        other["workload"]["name"] = json!("other");
        let hidden = json!({ "id": "6", "parent": "5", "afterUs": 3_000_000, "durationUs": 900, "hidden": true });
        let spans = json!([
            span("1", Some("outside"), 0, "invoke_agent shop", sums),
            failed,
            span("3", Some("1"), 500, "chat gpt", answered),
            span("4", Some("1"), 1000, "execute_tool ask", json!({})),
            other,
            hidden,
        ]);
        let expected = "\
Run 0af7
2026-11-27 01:02:03 UTC, 12.3 s, 2 requests to models, 42 tokens in, 7 out, 1 span failed

   +0.0 ms     400 ms  invoke_agent shop  Agent ns/shop
   +1.0 ms     400 ms  ├─ chat gpt  0 tokens in, 0 out  error: 429
   +201 ms             │  · recif.retry: 429
   +500 ms     400 ms  ├─ chat gpt  answered by gpt-5  42 tokens in, 7 out
  +1000 ms     400 ms  └─ execute_tool ask
  +2000 ms     400 ms     └─ invoke_agent other faked  Agent ns/other
  +3000 ms     0.9 ms        └─ (of a workload that you may not see)
";
        assert_eq!(text(spans), expected);
    }

    #[test]
    fn the_gateway_stands_above_the_agent_with_queue_retries_and_refusal() {
        let tokens = |attributes: &mut Value| {
            attributes["gen_ai.usage.input_tokens"] = json!(42);
            attributes["gen_ai.usage.output_tokens"] = json!(7);
        };
        let mut seen = json!({ "recif.queue_ms": 120, "recif.retries": 1, "http.response.status_code": 200 });
        tokens(&mut seen);
        let mut gateway = span("1", None, 0, "POST /v1/agents/{namespace}/{name}", seen);
        gateway["span"]["events"] = json!([
            { "name": "queued", "afterUs": 1000, "attributes": {} }, { "name": "retry", "afterUs": 121_000, "attributes": {} },
        ]);
        let mut chat = json!({ "gen_ai.operation.name": "chat" });
        tokens(&mut chat);
        let invoked = json!({ "gen_ai.operation.name": "invoke_agent" });
        let spans = json!([
            gateway,
            span("2", Some("1"), 130, "invoke_agent shop", invoked),
            span("3", Some("2"), 131, "chat gpt", chat)
        ]);
        let expected = "\
Run 0af7
2026-11-27 01:02:03 UTC, 12.3 s, 1 request to a model, 42 tokens in, 7 out

   +0.0 ms     400 ms  POST /v1/agents/{namespace}/{name}  Agent ns/shop  queued 120 ms  1 retry
   +1.0 ms             · queued
   +121 ms             · retry
   +130 ms     400 ms  └─ invoke_agent shop
   +131 ms     400 ms     └─ chat gpt  42 tokens in, 7 out
";
        assert_eq!(text(spans), expected);
        let facts = json!({ "recif.queue_ms": 30_000, "recif.retries": 0, "http.response.status_code": 503 });
        let mut refused = span("1", None, 0, "POST /v1/agents/{namespace}/{name}", facts);
        refused["span"]["error"] = json!("queue-timeout");
        let refused = text(json!([refused]));
        assert!(refused.contains("  queued 30.0 s  HTTP 503  error: queue-timeout\n"), "{refused}");
    }

    #[test]
    fn a_turn_that_waits_says_for_the_approval_of_which_tool() {
        let mut turn = span("1", None, 0, "invoke_agent shop", json!({}));
        let parked =
            json!({ "name": "recif.parked", "afterUs": 200_000, "attributes": { "gen_ai.tool.name": "delete_file" } });
        turn["span"]["events"] = json!([parked]);
        let shown = text(json!([turn]));
        assert!(shown.ends_with("\n   +200 ms             · waits for approval of delete_file\n"), "{shown}");
    }

    #[test]
    fn spans_in_a_circle_and_deep_ones_are_shown_once() {
        let circle = json!([span("a", Some("b"), 0, "one", json!({})), span("b", Some("a"), 1, "two", json!({}))]);
        let shown = text(circle);
        assert_eq!((shown.matches("one").count(), shown.matches("two").count()), (1, 1), "{shown}");
        let own = text(json!([span("a", Some("a"), 0, "one", json!({}))]));
        assert_eq!(own.matches("one").count(), 1, "{own}");
        let deep: Vec<_> = (0..1000_u64)
            .map(|depth| {
                let above = depth.checked_sub(1).map(|above| above.to_string());
                span(&depth.to_string(), above.as_deref(), depth, "deep", json!({}))
            })
            .collect();
        let shown = text(deep.into());
        assert_eq!(shown.matches("deep").count(), 1000);
        assert!(shown.lines().all(|line| line.chars().count() < 150));
    }

    #[test]
    fn a_response_of_another_form_is_told() {
        for document in [json!({}), json!([]), json!({ "trace": "a", "start": "x", "durationUs": 1, "spans": [] })] {
            assert!(RunTree::read(&document).unwrap_err().to_string().contains("another form"));
        }
    }
}
