//! Every operation.

use futures::FutureExt as _;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::{
    answer::Answer,
    history, lists, object,
    operation::{Operation, Schematic},
    overview,
    types::{
        Children, Events, FleetPage, Graph, History, Load, Machine, Me, Object, Page, Rendered, Status, ToolServers,
        Tools, Trace, Transitions, Why,
    },
};
use crate::live;

/// Every operation.
pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        path: "/v1/fleet",
        id: "listFleet",
        about: "Everything, whatever its kind.",
        query: lists::FLEET,
        answer: Schematic::Json(schema::<FleetPage>),
        handle: lists::fleet,
    },
    Operation {
        path: "/v1/events",
        id: "followFleet",
        about: "Every change as it happens.",
        query: &[],
        answer: Schematic::Events,
        handle: |app, caller, asked| {
            async move { live::follow(app, caller, asked.last_event.as_deref()).await.map(Answer::Events) }.boxed()
        },
    },
    Operation {
        path: "/v1/graph",
        id: "getGraph",
        about: "Who refers to what, and which references are broken.",
        query: overview::GRAPH,
        answer: Schematic::Json(schema::<Graph>),
        handle: overview::graph,
    },
    Operation {
        path: "/v1/history",
        id: "getHistory",
        about: "How far what happened is stored.",
        query: &[],
        answer: Schematic::Json(schema::<History>),
        handle: history::how_far,
    },
    Operation {
        path: "/v1/machines/{kind}",
        id: "getMachine",
        about: "The state machine of a kind.",
        query: &[],
        answer: Schematic::Json(schema::<Machine>),
        handle: overview::machine,
    },
    Operation {
        path: "/v1/me",
        id: "getMe",
        about: "Who you are here.",
        query: &[],
        answer: Schematic::Json(schema::<Me>),
        handle: overview::me,
    },
    Operation {
        path: "/v1/toolservers",
        id: "listToolServers",
        about: "The MCP servers, those that run here and those elsewhere.",
        query: lists::SERVERS,
        answer: Schematic::Json(schema::<ToolServers>),
        handle: lists::servers,
    },
    Operation {
        path: "/v1/toolservers/{namespace}/{name}/tools",
        id: "listTools",
        about: "The tools of an MCP server.",
        query: object::TOOLS,
        answer: Schematic::Json(schema::<Tools>),
        handle: object::tools,
    },
    Operation {
        path: "/v1/transitions",
        id: "listTransitions",
        about: "What happened in the fleet, the newest first; also to what is gone.",
        query: history::TRANSITIONS,
        answer: Schematic::Json(schema::<Transitions>),
        handle: history::transitions,
    },
    Operation {
        path: "/v1/{plural}",
        id: "listKind",
        about: "Everything of a kind.",
        query: lists::OF_KIND,
        answer: Schematic::Json(schema::<Page>),
        handle: lists::of_kind,
    },
    Operation {
        path: "/v1/{plural}/{namespace}/{name}",
        id: "getObject",
        about: "One object: metadata, spec with its credentials masked, status.",
        query: &[],
        answer: Schematic::Json(schema::<Object>),
        handle: object::object,
    },
    Operation {
        path: "/v1/{plural}/{namespace}/{name}/status",
        id: "getStatus",
        about: "Its status alone.",
        query: &[],
        answer: Schematic::Json(schema::<Status>),
        handle: object::status,
    },
    Operation {
        path: "/v1/{plural}/{namespace}/{name}/trace",
        id: "getTrace",
        about: "What it did, step by step; also of an object that is gone.",
        query: object::TRACE,
        answer: Schematic::Json(schema::<Trace>),
        handle: object::trace,
    },
    Operation {
        path: "/v1/{plural}/{namespace}/{name}/why",
        id: "getWhy",
        about: "Why it is as it is, and what to do.",
        query: &[],
        answer: Schematic::Json(schema::<Why>),
        handle: object::reason,
    },
    Operation {
        path: "/v1/{plural}/{namespace}/{name}/children",
        id: "listChildren",
        about: "What hangs on it: what the operator made for it, and its Pods.",
        query: &[],
        answer: Schematic::Json(schema::<Children>),
        handle: object::children,
    },
    Operation {
        path: "/v1/{plural}/{namespace}/{name}/rendered",
        id: "getRendered",
        about: "What was rendered from it, with what is in Secrets masked.",
        query: &[],
        answer: Schematic::Json(schema::<Rendered>),
        handle: object::rendered,
    },
    Operation {
        path: "/v1/{plural}/{namespace}/{name}/events",
        id: "listEvents",
        about: "Events about it.",
        query: &[],
        answer: Schematic::Json(schema::<Events>),
        handle: object::events,
    },
    Operation {
        path: "/v1/{plural}/{namespace}/{name}/load",
        id: "getLoad",
        about: "How busy its Pods are.",
        query: &[],
        answer: Schematic::Json(schema::<Load>),
        handle: object::load,
    },
];

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}
