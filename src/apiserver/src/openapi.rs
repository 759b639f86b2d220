//! OpenAPI v3: an index of documents, and for each group and version a document of its paths and schemas.
//!
//! Says what kubectl reads: of each kind the operation PATCH with its group, version and kind, and the parameters `dryRun` and
//! `fieldValidation`, without which kubectl checks fields by OpenAPI v2; of our kinds the schemas, for `kubectl
//! explain`. Of a list of objects kubectl asks for OpenAPI v2 alone: that document has no definitions, so kubectl checks nothing,
//! and the server each object. Strategic merge patches are in no document: for its own kinds kubectl knows the types of lists, and for others it
//! sends a JSON merge patch.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::{
    discovery::{MINOR, group_names, of, subresources, verbs},
    kinds::{Kind, Shape},
    object::field,
};

/// Schema of an object whose fields are not described, or of a list of them.
const OPEN: &str = "x-kubernetes-preserve-unknown-fields";

/// Media type of OpenAPI v2 in protobuf, as the API server answers: clients ask with `@`, which no media type may have.
const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// One document.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OpenApiDocument {
    /// JSON.
    pub(crate) text: String,
    /// Digest of the text, by which clients know whether they have it.
    pub(crate) hash: String,
}

/// Returns the index: for each path, such as `apis/apps/v1`, where its document is.
pub(crate) fn index(hashes: &[(String, String)]) -> Value {
    let entry = |(path, hash): &(String, String)| (path.clone(), json!({ "serverRelativeURL": address(path, hash) }));
    json!({ "paths": hashes.iter().map(entry).collect::<Map<_, _>>() })
}

/// Returns the path of each document with its hash.
pub(crate) fn hashes(kinds: &[Kind]) -> Vec<(String, String)> {
    let groups = group_names(kinds).into_iter().map(|group| format!("apis/{group}/v1"));
    let paths = std::iter::once("api/v1".to_owned()).chain(groups);
    paths.filter_map(|path| document(kinds, &path).map(|document| (path, document.hash))).collect()
}

/// Returns the media type and the text of the document of OpenAPI v2, which has no definitions.
pub(crate) fn v2(accepts: &str) -> (&'static str, String) {
    if accepts.contains("+protobuf") {
        // Field 1, `swagger`, of 3 bytes.
        return (V2_PROTOBUF, "\n\x032.0".to_owned());
    }
    let info = json!({ "title": "Kubernetes", "version": format!("v1.{MINOR}.0") });
    ("application/json", json!({ "swagger": "2.0", "info": info, "paths": {} }).to_string())
}

/// Returns where a document is.
pub(crate) fn address(path: &str, hash: &str) -> String {
    format!("/openapi/v3/{path}?hash={hash}")
}

/// Returns the document of a path such as `apis/apps/v1`; none if there is no such version of a group.
pub(crate) fn document(kinds: &[Kind], path: &str) -> Option<OpenApiDocument> {
    let (group, version) = match path.split('/').collect::<Vec<_>>()[..] {
        ["api", version] => ("", version),
        ["apis", group, version] if !group.is_empty() => (group, version),
        _ => return None,
    };
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    for kind in of(kinds, group, version) {
        paths.extend(paths_of(kind, &format!("/{path}")));
        schemas.insert(schema_name(kind), schema(kind));
    }
    if schemas.is_empty() {
        return None;
    }
    let document = json!({
        "openapi": "3.0.0", "info": { "title": "Kubernetes", "version": format!("v1.{MINOR}.0") },
        "paths": paths, "components": { "schemas": schemas },
    });
    let text = document.to_string();
    let hash = Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02X}")).collect();
    Some(OpenApiDocument { text, hash })
}

/// Returns the name of the schema of a kind, as the API server names it.
fn schema_name(kind: &Kind) -> String {
    let parent = match &kind.shape {
        Shape::Custom { .. } => kind.group.rsplit('.').collect::<Vec<_>>().join("."),
        _ if kind.group.is_empty() => "io.k8s.api.core".to_owned(),
        _ => format!("io.k8s.api.{}", kind.group.split('.').next().unwrap_or_default()),
    };
    format!("{parent}.{}.{}", kind.version, kind.name)
}

/// Returns group, version and kind, by which clients find operations and schemas.
fn type_of([group, version, kind]: [&str; 3]) -> Value {
    json!({ "group": group, "version": version, "kind": kind })
}

fn own_type(kind: &Kind) -> Value {
    type_of([kind.group, kind.version, kind.name])
}

/// Returns the schema of a kind: that of its definition, or that of any object.
fn schema(kind: &Kind) -> Value {
    let text = |description: &str| json!({ "type": "string", "description": description });
    let mut schema = match &kind.shape {
        Shape::Custom { definition, .. } => {
            let mut schema =
                definition.pointer("/spec/versions/0/schema/openAPIV3Schema").cloned().unwrap_or_else(|| json!({}));
            let properties = field(&mut schema, "properties");
            *field(properties, "apiVersion") = text("Group and version of the kind, such as agents.recif.dev/v1.");
            *field(properties, "kind") = text("Name of the kind, in CamelCase.");
            *field(properties, "metadata") =
                json!({ "type": "object", "description": "Name, namespace, labels, annotations, owners.", OPEN: true });
            schema
        }
        _ => {
            let description = format!(
                "The fields of {} are not described here: see https://kubernetes.io/docs/reference/kubernetes-api/",
                kind.name
            );
            json!({ "type": "object", "description": description, OPEN: true })
        }
    };
    *field(&mut schema, "x-kubernetes-group-version-kind") = json!([own_type(kind)]);
    schema
}

/// Returns the paths of a kind below the one of its version.
fn paths_of(kind: &Kind, root: &str) -> Vec<(String, Value)> {
    let schema = json!({ "$ref": format!("#/components/schemas/{}", schema_name(kind)) });
    let any = json!({ "type": "object", OPEN: true });
    let place = if kind.traits.cluster { root.to_owned() } else { format!("{root}/namespaces/{{namespace}}") };
    let collection = format!("{place}/{}", kind.plural);
    let own = own_type(kind);
    let operations = |methods: &[(&str, &str)], verbs: &[&str], own: &Value, schema: &Value| {
        let there = methods.iter().filter(|(_, verb)| verbs.contains(verb));
        let all: Map<String, Value> =
            there.map(|(method, verb)| ((*method).to_owned(), operation(verb, own, schema))).collect();
        Value::Object(all)
    };
    let verbs = verbs(kind);
    // A kind without patches has the operation, too: kubectl looks at it before any other request.
    let of_one = [verbs, &["patch"]].concat();
    let mut paths = vec![
        (
            collection.clone(),
            operations(&[("get", "list"), ("post", "create"), ("delete", "deletecollection")], verbs, &own, &schema),
        ),
        (
            format!("{collection}/{{name}}"),
            operations(
                &[("get", "get"), ("put", "update"), ("patch", "patch"), ("delete", "delete")],
                &of_one,
                &own,
                &schema,
            ),
        ),
    ];
    if !kind.traits.cluster {
        paths.push((format!("{root}/{}", kind.plural), operations(&[("get", "list")], verbs, &own, &schema)));
    }
    paths.extend(subresources(kind).into_iter().map(|(name, object, verbs)| {
        let methods = [("get", "get"), ("put", "update"), ("patch", "patch")];
        let schema = if name == "status" { &schema } else { &any };
        (format!("{collection}/{{name}}/{name}"), operations(&methods, verbs, &type_of(object), schema))
    }));
    paths
}

/// Returns the operation of a verb.
fn operation(verb: &str, own: &Value, schema: &Value) -> Value {
    let parameter = |name: &str, kind: &str| json!({ "name": name, "in": "query", "schema": { "type": kind } });
    let mut parameters = Vec::new();
    if matches!(verb, "create" | "update" | "patch" | "delete" | "deletecollection") {
        parameters.push(parameter("dryRun", "string"));
    }
    if matches!(verb, "create" | "update" | "patch") {
        parameters.extend(["fieldManager", "fieldValidation"].map(|name| parameter(name, "string")));
    }
    if verb == "patch" {
        parameters.push(parameter("force", "boolean"));
    }
    let mut operation = json!({
        "parameters": parameters,
        "responses": { "200": { "description": "OK", "content": { "application/json": { "schema": schema } } } },
        "x-kubernetes-action": verb, "x-kubernetes-group-version-kind": own,
    });
    let content: &[&str] = match verb {
        "create" | "update" => &["application/json", "application/yaml"],
        "patch" => &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"],
        _ => &[],
    };
    if !content.is_empty() {
        let body = |media_type: &&str| ((*media_type).to_owned(), json!({ "schema": schema }));
        operation["requestBody"] = json!({ "content": content.iter().map(body).collect::<Map<_, _>>() });
    }
    operation
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;

    /// Returns the document of a path as JSON.
    fn read(path: &str) -> Value {
        serde_json::from_str(&document(kinds::all(), path).unwrap().text).unwrap()
    }

    #[test]
    fn each_kind_has_a_patch_that_kubectl_finds() {
        let kinds = kinds::all();
        let paths: Vec<String> = hashes(kinds).into_iter().map(|(path, _)| path).collect();
        for kind in kinds {
            let path = if kind.group.is_empty() { "api/v1".to_owned() } else { format!("apis/{}/v1", kind.group) };
            assert!(paths.contains(&path), "{path} is in the index");
            let document = read(&path);
            let own = own_type(kind);
            let patches = document["paths"].as_object().unwrap().values().map(|path| &path["patch"]);
            let patches: Vec<_> = patches.filter(|patch| patch["x-kubernetes-group-version-kind"] == own).collect();
            assert!(!patches.is_empty(), "{path} {}", kind.name);
            for patch in patches {
                for name in ["fieldValidation", "dryRun"] {
                    let named = |found: &&Value| found["name"] == name && found["in"] == "query";
                    assert!(patch["parameters"].as_array().unwrap().iter().any(|found| named(&found)), "{path} {name}");
                }
                assert_eq!(patch["requestBody"]["content"].get("application/strategic-merge-patch+json"), None);
            }
            let schemas = document["components"]["schemas"].as_object().unwrap();
            assert!(schemas.values().any(|schema| schema["x-kubernetes-group-version-kind"] == json!([own])));
        }
    }

    #[test]
    fn every_reference_leads_to_a_schema() {
        fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
            match value {
                Value::Object(fields) => {
                    found.extend(fields.get("$ref").and_then(Value::as_str));
                    fields.values().for_each(|value| references(value, found));
                }
                Value::Array(items) => items.iter().for_each(|value| references(value, found)),
                _ => {}
            }
        }
        for (path, _) in hashes(kinds::all()) {
            let document = read(&path);
            let mut found = Vec::new();
            references(&document, &mut found);
            assert!(!found.is_empty());
            for reference in found {
                assert!(document.pointer(reference.strip_prefix('#').unwrap()).is_some(), "{path} {reference}");
            }
        }
    }

    #[test]
    fn the_schema_of_a_kind_of_ours_has_its_fields() {
        let document = read("apis/agents.recif.dev/v1");
        let model = &document["components"]["schemas"]["dev.recif.agents.v1.Model"];
        assert_eq!(model["properties"]["spec"]["properties"]["provider"]["type"], "string");
        assert_eq!(model["properties"]["metadata"]["type"], "object");
        let path = "/apis/agents.recif.dev/v1/namespaces/{namespace}/models";
        assert_eq!(document["paths"][path]["get"]["x-kubernetes-group-version-kind"]["kind"], "Model", "for explain");
    }

    #[test]
    fn a_path_that_is_none_has_no_document() {
        for path in ["api", "apis", "apis//v1", "api/v2", "apis/apps/v2", "apis/not.there/v1", "apis/apps/v1/x", ""] {
            assert_eq!(document(kinds::all(), path), None, "{path}");
        }
    }
}
