//! Lists: the whole fleet, one kind, or MCP servers. A page is concatenated from serialized summaries.

use std::collections::BTreeMap;

use bytes::Bytes;
use crds::{ApiKind, KINDS, ReferencePhase, WorkloadPhase, digest::sha256_hex};
use futures::FutureExt as _;
use meta::Phase as _;

use super::{
    operation::{OperationFuture, OperationRequest, Param, ParamValues},
    problem::Problem,
    response::OperationResponse,
};
use crate::{
    app::SharedAppState,
    auth::{ApiCaller, Auth},
    fleet::{Cursor, FleetEntry, FleetListing, Selection, Sort, row},
};

/// Page size unless the caller gives a limit.
const DEFAULT_LIMIT: usize = 100;
/// Limit of the page size.
const MAX_LIMIT: i64 = 1000;
/// Name of the phase of objects without one.
const NO_PHASE: &str = "none";

const KIND: Param =
    Param { name: "kind", about: "Only these kinds.", values: ParamValues::OneOf(kinds), repeatable: true };
const NAMESPACE: Param = Param {
    name: "namespace",
    about: "Only what is in these namespaces.",
    values: ParamValues::Text,
    repeatable: true,
};
const PHASE: Param = Param {
    name: "phase",
    about: "Only what is in these phases; none: what has no phase.",
    values: ParamValues::OneOf(phases),
    repeatable: true,
};
const TEXT: Param = Param {
    name: "q",
    about: "Only what has this text in what a list shows of it, in upper or lower case.",
    values: ParamValues::Text,
    repeatable: false,
};
const SORT: Param = Param {
    name: "sort",
    about: "What to sort by; then by kind, namespace and name. attention: objects that need attention come first.",
    values: ParamValues::OneOf(sorts),
    repeatable: false,
};
const ORDER: Param = Param {
    name: "order",
    about: "Which end comes first.",
    values: ParamValues::OneOf(|| vec!["asc", "desc"]),
    repeatable: false,
};
const LIMIT: Param = Param {
    name: "limit",
    about: "The most objects on the page.",
    values: ParamValues::Number(1, MAX_LIMIT),
    repeatable: false,
};
const CONTINUE: Param = Param {
    name: "continue",
    about: "Where the page begins: what the page before it says.",
    values: ParamValues::Text,
    repeatable: false,
};

/// Parameters of the list of the fleet.
pub(super) const FLEET: &[Param] = &[KIND, NAMESPACE, PHASE, TEXT, SORT, ORDER, LIMIT, CONTINUE];
/// Parameters of the list of a kind.
pub(super) const OF_KIND: &[Param] = &[NAMESPACE, PHASE, TEXT, SORT, ORDER, LIMIT, CONTINUE];
/// Parameters of the list of servers.
pub(super) const SERVERS: &[Param] = &[NAMESPACE, PHASE, TEXT];

fn kinds() -> Vec<&'static str> {
    KINDS.iter().map(|kind| kind.name).collect()
}

fn sorts() -> Vec<&'static str> {
    Sort::ALL.iter().map(|(name, _)| *name).collect()
}

fn phases() -> Vec<&'static str> {
    let mut names: Vec<_> = WorkloadPhase::ALL.iter().map(|phase| phase.as_str()).collect();
    for phase in ReferencePhase::ALL.iter().map(|phase| phase.as_str()) {
        if !names.contains(&phase) {
            names.push(phase);
        }
    }
    names.push(NO_PHASE);
    names
}

/// Finds the kind that a path's first segment names.
///
/// # Errors
/// There is no kind with this plural.
pub(super) fn kind_of(asked: &OperationRequest) -> Result<&'static ApiKind, Problem> {
    let plural = asked.path_segment("plural");
    KINDS.iter().find(|kind| kind.plural == plural).ok_or_else(|| {
        let plurals: Vec<_> = KINDS.iter().map(|kind| kind.plural).collect();
        Problem::missing(format!("unknown kind {plural}; known kinds: {}", plurals.join(", ")))
    })
}

/// Lists the objects of all kinds.
pub(super) fn fleet(app: SharedAppState, caller: ApiCaller, asked: OperationRequest) -> OperationFuture {
    async move {
        let kinds: Vec<_> = asked.many("kind").filter_map(ApiKind::find).collect();
        let page = page(&app, &caller, &asked, &kinds, "fleet", Sort::Attention, true).await?;
        Ok(page.into_response(&app))
    }
    .boxed()
}

/// Lists the objects of one kind.
pub(super) fn of_kind(app: SharedAppState, caller: ApiCaller, asked: OperationRequest) -> OperationFuture {
    async move {
        let kind = kind_of(&asked)?;
        let page = page(&app, &caller, &asked, &[kind], "kind", Sort::Namespace, false).await?;
        Ok(page.into_response(&app))
    }
    .boxed()
}

/// Lists the MCP servers.
pub(super) fn servers(app: SharedAppState, caller: ApiCaller, asked: OperationRequest) -> OperationFuture {
    async move {
        let kinds: Vec<_> = ["MCPServer", "RemoteMCPServer"].into_iter().filter_map(ApiKind::find).collect();
        let page = page(&app, &caller, &asked, &kinds, "servers", Sort::Namespace, false).await?;
        let FleetListResponse { listing: FleetListing { items, .. }, .. } = page;
        let mut body = b"{\"items\":[".to_vec();
        for (number, FleetEntry { record, .. }) in items.iter().enumerate() {
            if number > 0 {
                body.push(b',');
            }
            // Merges two JSON objects into one: the summary and the server's facts.
            let facts = record.server.as_deref().and_then(|facts| facts.strip_prefix(b"{")).unwrap_or(b"}");
            body.extend_from_slice(record.summary.strip_suffix(b"}").unwrap_or_default());
            body.push(b',');
            body.extend_from_slice(facts);
        }
        body.extend_from_slice(b"]}");
        Ok(OperationResponse::Json { tag: list_etag(&app, &items, ""), body: body.into() })
    }
    .boxed()
}

/// Page of a list, with the data that its response adds.
struct FleetListResponse {
    listing: FleetListing,
    selection_key: String,
    with_counts: bool,
}

async fn page(
    app: &SharedAppState,
    caller: &ApiCaller,
    asked: &OperationRequest,
    kinds: &[&'static ApiKind],
    path: &str,
    usual: Sort,
    counted: bool,
) -> Result<FleetListResponse, Problem> {
    let given =
        |name: &'static str| asked.many(name).filter(|value| !value.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    let (namespaces, list) = (given("namespace"), asked.selection_key(path));
    let phases: Vec<_> = asked.many("phase").map(|name| if name == NO_PHASE { "" } else { name }.to_owned()).collect();
    // The counts cover all kinds, so the visibility of all kinds is needed.
    let looked_at = if counted { &[] } else { kinds };
    let visible = app.auth.visibility(caller, &app.fleet, looked_at, &namespaces).await?;
    Auth::require_visibility(&visible, &app.fleet, kinds, &namespaces)?;
    let rows: Vec<u8> = kinds.iter().filter_map(|kind| row(kind)).collect();
    let after = asked.one("continue").filter(|text| !text.is_empty());
    let after = after.map(|text| Cursor::decode(text, &list)).transpose();
    let after = after.map_err(|bad| Problem::parameter("continue", format!("continue: {bad}")))?;
    let sort = asked.one("sort").and_then(|name| Sort::ALL.iter().find(|(known, _)| *known == name));
    // The list of servers is short and has no pages.
    let whole = path == "servers";
    let selection = Selection {
        rows: &rows,
        namespaces: &namespaces,
        phases: &phases,
        text: asked.one("q").filter(|text| !text.is_empty()),
        visible: &visible,
        sort: sort.map_or(usual, |(_, sort)| *sort),
        descending: asked.one("order") == Some("desc"),
        limit: if whole {
            usize::MAX
        } else {
            asked.number("limit").map_or(DEFAULT_LIMIT, |limit| usize::try_from(limit).unwrap_or(DEFAULT_LIMIT))
        },
        after: after.as_ref(),
    };
    Ok(FleetListResponse { listing: app.fleet.list(&selection), selection_key: list, with_counts: counted })
}

impl FleetListResponse {
    fn into_response(self, app: &SharedAppState) -> OperationResponse {
        let FleetListing { items, total, next, counts } = self.listing;
        let length: usize = items.iter().map(|entry| entry.record.summary.len() + 1).sum();
        let mut end = format!("],\"total\":{total}");
        if let Some(next) = next {
            end += &format!(",\"continue\":\"{}\"", next.encode(&self.selection_key));
        }
        if self.with_counts {
            let counts: BTreeMap<_, BTreeMap<_, _>> = counts
                .into_iter()
                .map(|(kind, phases)| (kind, phases.into_iter().map(named_phase).collect()))
                .collect();
            // Serializing strings and numbers cannot fail.
            end += &format!(",\"counts\":{}", serde_json::to_string(&counts).unwrap_or_default());
        }
        end.push('}');
        let mut body = Vec::with_capacity(length + end.len() + 16);
        body.extend_from_slice(b"{\"items\":[");
        for (number, entry) in items.iter().enumerate() {
            if number > 0 {
                body.push(b',');
            }
            body.extend_from_slice(&entry.record.summary);
        }
        body.extend_from_slice(end.as_bytes());
        OperationResponse::Json { tag: list_etag(app, &items, &end), body: Bytes::from(body) }
    }
}

fn named_phase((phase, count): (Box<str>, usize)) -> (String, usize) {
    (if phase.is_empty() { NO_PHASE.into() } else { phase.into() }, count)
}

/// Returns the entity tag of a page: a digest of its objects, the stamps of their last changes, and the rest of the body.
fn list_etag(app: &SharedAppState, items: &[FleetEntry], end: &str) -> String {
    let mut text = Vec::with_capacity(items.len() * 8 + end.len() + 8);
    text.extend_from_slice(app.fleet.epoch().as_bytes());
    items.iter().for_each(|entry| text.extend_from_slice(&entry.stamp.to_be_bytes()));
    text.extend_from_slice(end.as_bytes());
    sha256_hex(&text)[..24].to_owned()
}
