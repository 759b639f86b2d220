//! OpenAPI document `/openapi.json`, generated from the same table as the router.

use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::{
    operation::{Param, ParamValues, ResponseSchema, RestOperation},
    problem::Problem,
    step_types::Transition,
    table::OPERATIONS,
};
use crate::fleet::Summary;

/// Generates the OpenAPI 3.1 document.
pub(super) fn document() -> Value {
    // The dialect of OpenAPI 3.1 is JSON Schema 2020-12, in which schemars generates the schemas.
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.definitions_path = "/components/schemas".into());
    let settings = settings.for_serialize();
    let mut generator = settings.into_generator();
    let problem = generator.subschema_for::<Problem>();
    // Payloads of the server-sent events, for clients that generate types from the document.
    generator.subschema_for::<Summary>();
    generator.subschema_for::<Transition>();
    let mut paths = Map::new();
    for operation in OPERATIONS {
        paths.insert(operation.path.to_owned(), json!({ "get": describe(operation, &mut generator) }));
    }
    let schemas = generator.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Récif control plane",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "What runs, why it does not, and what happens. Also below /api/v1.",
        },
        "servers": [{ "url": "/" }, { "url": "/api" }],
        "security": [{ "token": [] }, {}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": { "Problem": {
                "description": "What went wrong.",
                "content": { "application/problem+json": { "schema": problem } },
            } },
            "securitySchemes": { "token": {
                "type": "http", "scheme": "bearer", "description": "A token that the cluster knows, as of `kubectl create token`.",
            } },
        },
    })
}

fn describe(operation: &RestOperation, generator: &mut SchemaGenerator) -> Value {
    let path = operation.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut parameters: Vec<Value> = path.map(in_path).collect();
    parameters.extend(operation.query.iter().map(in_query));
    let mut responses = Map::new();
    let ok = match operation.response {
        ResponseSchema::Json(schema) => {
            let schema = schema(generator);
            json!({ "description": "The answer.", "content": {
                "application/json": { "schema": schema },
                "application/yaml": { "schema": schema },
            } })
        }
        ResponseSchema::Events => {
            parameters.push(json!({ "name": "Last-Event-ID", "in": "header", "schema": { "type": "string" },
                "description": "The id of the last event that was read." }));
            json!({ "description": "Server-sent events: `change` {type: applied or deleted, object: Summary}, `transition` \
                (Transition), `reset` (read the lists again).", "content": { "text/event-stream": { "schema": { "type": "string" } } } })
        }
    };
    responses.insert("200".into(), ok);
    for status in ["400", "401", "403", "404", "406", "429", "500", "503"] {
        responses.insert(status.into(), json!({ "$ref": "#/components/responses/Problem" }));
    }
    if matches!(operation.response, ResponseSchema::Json(_)) {
        responses.insert("304".into(), json!({ "description": "What If-None-Match names is still so." }));
    }
    json!({ "operationId": operation.id, "summary": operation.about, "parameters": parameters, "responses": responses })
}

fn in_path(name: &str) -> Value {
    let schema = match name {
        "plural" => json!({ "type": "string", "enum": crds::KINDS.iter().map(|kind| kind.plural).collect::<Vec<_>>() }),
        "kind" => json!({ "type": "string", "enum": crds::KINDS.iter().map(|kind| kind.name).collect::<Vec<_>>() }),
        _ => json!({ "type": "string", "minLength": 1 }),
    };
    json!({ "name": name, "in": "path", "required": true, "schema": schema })
}

fn in_query(param: &Param) -> Value {
    let value = match param.values {
        ParamValues::Text => json!({ "type": "string" }),
        ParamValues::OneOf(words) => json!({ "type": "string", "enum": words() }),
        ParamValues::Number(least, most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
    };
    let schema = if param.repeatable { json!({ "type": "array", "items": value }) } else { value };
    json!({ "name": param.name, "in": "query", "description": param.about, "schema": schema })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The web UI's types are generated from a copy of the document, which `make generate` writes.
    #[test]
    fn the_copy_that_the_web_ui_is_made_from_is_this_document() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/ui/openapi.json");
        let text = format!("{}\n", serde_json::to_string_pretty(&document()).unwrap());
        if std::env::var_os("RECIF_WRITE").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        let copy = std::fs::read_to_string(path).unwrap_or_default();
        assert!(copy == text, "{path} is out of date: run `make generate`");
    }
}
