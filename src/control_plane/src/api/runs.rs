//! Runs: what became of one request, from the spans that were received for it.

use std::collections::HashSet;

use crds::{ApiKind, KINDS};
use futures::FutureExt as _;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use store::{RunQuery, RunSum, StoredSpan};

use super::{
    history::{store_unavailable, store_visibility},
    operation::{OperationFuture, OperationRequest, Param, ParamValues},
    problem::Problem,
    response::OperationResponse,
};
use crate::{
    app::{AppState, SharedAppState},
    auth::ApiCaller,
    spans::SpanDocument,
};

/// Number of runs unless the caller gives a limit.
const DEFAULT_LIMIT: usize = 100;
/// Limit of the number of runs.
const MAX_LIMIT: i64 = 1000;
/// Limit of the spans of a run that are shown.
const MAX_SPANS: usize = 5000;

/// Parameters of the list of runs.
pub(super) const RUNS: &[Param] = &[
    Param {
        name: "kind",
        about: "Only those in which an object of this kind took part.",
        values: ParamValues::OneOf(|| KINDS.iter().map(|kind| kind.name).collect()),
        repeatable: false,
    },
    Param {
        name: "namespace",
        about: "Only those in which an object of this namespace took part.",
        values: ParamValues::Text,
        repeatable: false,
    },
    Param {
        name: "name",
        about: "Only those in which an object of this name took part.",
        values: ParamValues::Text,
        repeatable: false,
    },
    Param {
        name: "conversation",
        about: "Only those of this conversation.",
        values: ParamValues::Text,
        repeatable: false,
    },
    Param {
        name: "limit",
        about: "The most runs, the newest of them.",
        values: ParamValues::Number(1, MAX_LIMIT),
        repeatable: false,
    },
];

/// Runs, the newest first.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Runs {
    /// The runs.
    items: Vec<RunItem>,
}

/// Run, summed over the spans that you may see.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct RunItem {
    /// Id of its trace.
    trace: String,
    /// When it began, RFC 3339.
    start: String,
    /// How long it took, in microseconds.
    duration_us: u64,
    /// Number of spans.
    spans: u64,
    /// Number of those that failed.
    failed: u64,
}

/// Run with its spans.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Run {
    /// Id of its trace.
    trace: String,
    /// When it began, RFC 3339.
    start: String,
    /// How long it took, in microseconds.
    duration_us: u64,
    /// True if it has more spans than these.
    truncated: bool,
    /// Its spans, the earliest first.
    spans: Vec<RunSpan>,
}

/// Span of a run.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct RunSpan {
    /// Its id.
    id: String,
    /// Id of the span that caused it; absent: none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
    /// Microseconds since the start of the run.
    after_us: u64,
    /// How long it took, in microseconds.
    duration_us: u64,
    /// True if it belongs to an object that you may not see: of such a span only id, parent and times are given.
    hidden: bool,
    /// Object that it is of: a workload, or one that the operator brought on.
    #[serde(skip_serializing_if = "Option::is_none")]
    workload: Option<SpanWorkload>,
    /// What it tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    span: Option<SpanDocument>,
}

/// Workload of a span.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, JsonSchema)]
struct SpanWorkload {
    /// Its kind.
    kind: String,
    /// Its namespace.
    namespace: String,
    /// Its name.
    name: String,
}

/// Lists runs.
pub(super) fn list(app: SharedAppState, caller: ApiCaller, asked: OperationRequest) -> OperationFuture {
    async move {
        require_spans(&app)?;
        let given = |name| asked.one(name).filter(|text| !text.is_empty());
        let kind = given("kind").and_then(ApiKind::find);
        let kinds: Vec<_> = kind.into_iter().collect();
        let namespaces: Vec<String> = given("namespace").map(str::to_owned).into_iter().collect();
        let visible = app.auth.visibility(&caller, &app.fleet, &kinds, &namespaces).await?;
        let visible = store_visibility(&visible, &app.fleet);
        let query = RunQuery {
            kind: kind.map(|kind| kind.name),
            namespace: given("namespace"),
            name: given("name"),
            conversation: given("conversation"),
            visible: &visible,
            limit: asked.number("limit").and_then(|limit| usize::try_from(limit).ok()).unwrap_or(DEFAULT_LIMIT),
        };
        let runs = app.store.runs(&query).await.map_err(|error| store_unavailable(&error))?;
        OperationResponse::of(&Runs { items: runs.into_iter().map(RunItem::from).collect() })
    }
    .boxed()
}

/// Shows one run.
pub(super) fn run(app: SharedAppState, caller: ApiCaller, asked: OperationRequest) -> OperationFuture {
    async move {
        require_spans(&app)?;
        // Checks the sign-in before the run is looked up, so that no answer tells whether there is one.
        app.auth.user(&caller).await?;
        let trace = asked.path_segment("trace").to_ascii_lowercase();
        let mut stored = app.store.spans(&trace, MAX_SPANS + 1).await.map_err(|error| store_unavailable(&error))?;
        let truncated = stored.len() > MAX_SPANS;
        stored.truncate(MAX_SPANS);
        let mut visible = HashSet::new();
        for workload in stored.iter().map(SpanWorkload::of).collect::<HashSet<_>>() {
            if sees(&app, &caller, &workload).await? {
                visible.insert(workload);
            }
        }
        if visible.is_empty() {
            return Err(Problem::missing(format!("no run {trace} is known here, of those that you may see")));
        }
        let start = stored.iter().map(|span| span.started).min().unwrap_or_default();
        let end = stored.iter().map(|span| span.ended).max().unwrap_or_default();
        let is_visible = |span: &StoredSpan| visible.contains(&SpanWorkload::of(span));
        let spans = stored.iter().map(|span| RunSpan::new(span, start, is_visible(span))).collect();
        OperationResponse::of(&Run { trace, start: rfc3339(start), duration_us: micros(start, end), truncated, spans })
    }
    .boxed()
}

/// Reports whether a caller may see a workload, or what is left of it.
async fn sees(app: &AppState, caller: &ApiCaller, workload: &SpanWorkload) -> Result<bool, Problem> {
    match ApiKind::find(&workload.kind) {
        Some(kind) => app.auth.sees(caller, kind, &workload.namespace, &workload.name).await,
        None => Ok(false),
    }
}

/// Refuses a question about spans where none are kept.
fn require_spans(app: &AppState) -> Result<(), Problem> {
    if app.keeps_spans { Ok(()) } else { Err(Problem::missing("no spans are kept: set telemetry.endpoint=builtin")) }
}

fn micros(from: i64, to: i64) -> u64 {
    u64::try_from(to.saturating_sub(from) / 1000).unwrap_or_default()
}

fn rfc3339(nanos: i64) -> String {
    Timestamp::from_nanosecond(nanos.into()).unwrap_or(Timestamp::MAX).to_string()
}

impl From<RunSum> for RunItem {
    fn from(sum: RunSum) -> Self {
        let RunSum { trace, started, ended, spans, failed } = sum;
        Self { trace, start: rfc3339(started), duration_us: micros(started, ended), spans, failed }
    }
}

impl SpanWorkload {
    fn of(span: &StoredSpan) -> Self {
        let StoredSpan { kind, namespace, name, .. } = span;
        Self { kind: kind.clone(), namespace: namespace.clone(), name: name.clone() }
    }
}

impl RunSpan {
    /// Creates the span of a run that began at `start`, in nanoseconds since 1970.
    fn new(span: &StoredSpan, start: i64, is_visible: bool) -> Self {
        // One of another form was written by another version of this program.
        let mut document: SpanDocument = serde_json::from_str(&span.document).unwrap_or_default();
        Self {
            id: span.span.clone(),
            parent: document.parent.take(),
            after_us: micros(start, span.started),
            duration_us: micros(span.started, span.ended),
            hidden: !is_visible,
            workload: is_visible.then(|| SpanWorkload::of(span)),
            span: is_visible.then_some(document),
        }
    }
}
