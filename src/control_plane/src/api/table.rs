//! Table of all operations.

use futures::FutureExt as _;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::{
    children, diagnosis, graph,
    graph_types::{Graph, Machine},
    history, lists, object,
    operation::{ResponseSchema, RestOperation},
    overview,
    response::OperationResponse,
    runs,
    step_types::{History, Trace, Transitions},
    types::{Children, Events, FleetPage, Load, Me, Object, Page, Rendered, Status, ToolServers, Tools, Why},
    usage,
};
use crate::live;

/// All operations of the API.
pub(super) const OPERATIONS: &[RestOperation] = &[
    RestOperation {
        path: "/v1/fleet",
        id: "listFleet",
        about: "Everything, whatever its kind.",
        query: lists::FLEET,
        response: ResponseSchema::Json(schema::<FleetPage>),
        handle: lists::fleet,
    },
    RestOperation {
        path: "/v1/events",
        id: "followFleet",
        about: "Every change as it happens.",
        query: &[],
        response: ResponseSchema::Events,
        handle: |app, caller, asked| {
            async move { live::subscribe(app, caller, asked.last_event.as_deref()).await.map(OperationResponse::Events) }.boxed()
        },
    },
    RestOperation {
        path: "/v1/graph",
        id: "getGraph",
        about: "Who refers to what, and which references are broken.",
        query: graph::GRAPH,
        response: ResponseSchema::Json(schema::<Graph>),
        handle: graph::graph,
    },
    RestOperation {
        path: "/v1/history",
        id: "getHistory",
        about: "How far what happened is stored.",
        query: &[],
        response: ResponseSchema::Json(schema::<History>),
        handle: history::history_status,
    },
    RestOperation {
        path: "/v1/machines/{kind}",
        id: "getMachine",
        about: "The state machine of a kind.",
        query: &[],
        response: ResponseSchema::Json(schema::<Machine>),
        handle: overview::machine,
    },
    RestOperation {
        path: "/v1/me",
        id: "getMe",
        about: "Who you are here.",
        query: &[],
        response: ResponseSchema::Json(schema::<Me>),
        handle: overview::me,
    },
    RestOperation {
        path: "/v1/runs",
        id: "listRuns",
        about: "What became of requests, from the spans that were received; the newest first.",
        query: runs::RUNS,
        response: ResponseSchema::Json(schema::<runs::Runs>),
        handle: runs::list,
    },
    RestOperation {
        path: "/v1/runs/{trace}",
        id: "getRun",
        about: "What became of one request: which models and tools were asked, for how long, and what failed.",
        query: &[],
        response: ResponseSchema::Json(schema::<runs::Run>),
        handle: runs::run,
    },
    RestOperation {
        path: "/v1/toolservers",
        id: "listToolServers",
        about: "The MCP servers, those that run here and those elsewhere.",
        query: lists::SERVERS,
        response: ResponseSchema::Json(schema::<ToolServers>),
        handle: lists::servers,
    },
    RestOperation {
        path: "/v1/toolservers/{namespace}/{name}/tools",
        id: "listTools",
        about: "The tools of an MCP server.",
        query: object::TOOLS,
        response: ResponseSchema::Json(schema::<Tools>),
        handle: object::tools,
    },
    RestOperation {
        path: "/v1/transitions",
        id: "listTransitions",
        about: "What happened in the fleet, the newest first; also to what is gone.",
        query: history::TRANSITIONS,
        response: ResponseSchema::Json(schema::<Transitions>),
        handle: history::transitions,
    },
    RestOperation {
        path: "/v1/usage",
        id: "getUsage",
        about: "Tokens that models used, and what they cost.",
        query: usage::USAGE,
        response: ResponseSchema::Json(schema::<usage::Usage>),
        handle: usage::usage,
    },
    RestOperation {
        path: "/v1/{plural}",
        id: "listKind",
        about: "Everything of a kind.",
        query: lists::OF_KIND,
        response: ResponseSchema::Json(schema::<Page>),
        handle: lists::of_kind,
    },
    RestOperation {
        path: "/v1/{plural}/{namespace}/{name}",
        id: "getObject",
        about: "One object: metadata, spec with its credentials masked, status.",
        query: &[],
        response: ResponseSchema::Json(schema::<Object>),
        handle: object::object,
    },
    RestOperation {
        path: "/v1/{plural}/{namespace}/{name}/status",
        id: "getStatus",
        about: "Its status alone.",
        query: &[],
        response: ResponseSchema::Json(schema::<Status>),
        handle: object::status,
    },
    RestOperation {
        path: "/v1/{plural}/{namespace}/{name}/trace",
        id: "getTrace",
        about: "What it did, step by step; also of an object that is gone.",
        query: object::TRACE,
        response: ResponseSchema::Json(schema::<Trace>),
        handle: object::trace,
    },
    RestOperation {
        path: "/v1/{plural}/{namespace}/{name}/why",
        id: "getWhy",
        about: "Why it is as it is, and what to do.",
        query: &[],
        response: ResponseSchema::Json(schema::<Why>),
        handle: diagnosis::reason,
    },
    RestOperation {
        path: "/v1/{plural}/{namespace}/{name}/children",
        id: "listChildren",
        about: "What hangs on it: what the operator made for it, and its Pods.",
        query: &[],
        response: ResponseSchema::Json(schema::<Children>),
        handle: children::list,
    },
    RestOperation {
        path: "/v1/{plural}/{namespace}/{name}/rendered",
        id: "getRendered",
        about: "What was rendered from it, with what is in Secrets masked.",
        query: &[],
        response: ResponseSchema::Json(schema::<Rendered>),
        handle: children::rendered,
    },
    RestOperation {
        path: "/v1/{plural}/{namespace}/{name}/events",
        id: "listEvents",
        about: "Events about it, and warnings about its Deployment, ReplicaSets and Pods.",
        query: &[],
        response: ResponseSchema::Json(schema::<Events>),
        handle: object::events,
    },
    RestOperation {
        path: "/v1/{plural}/{namespace}/{name}/references",
        id: "getReferences",
        about: "What it refers to, and what refers to it.",
        query: &[],
        response: ResponseSchema::Json(schema::<Graph>),
        handle: graph::references,
    },
    RestOperation {
        path: "/v1/{plural}/{namespace}/{name}/load",
        id: "getLoad",
        about: "How busy its Pods are.",
        query: &[],
        response: ResponseSchema::Json(schema::<Load>),
        handle: object::load,
    },
];

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}
