//! OpenAPI v3 as clients read it: the index, and documents by their hashes.

#![allow(clippy::unwrap_used)]

mod common;

use bytes::Bytes;
use common::{call, server};
use http::{HeaderMap, Request, header};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;

/// Reads a target, and returns the code and the headers.
async fn head(server: &apiserver::ApiServer, target: &str) -> (u16, HeaderMap) {
    let request = Request::get(target).body(Full::new(Bytes::new())).unwrap();
    let response = server.clone().oneshot(request).await.unwrap();
    (response.status().as_u16(), response.headers().clone())
}

#[tokio::test]
async fn a_document_is_kept_by_clients_as_long_as_its_hash_is_right() {
    let server = server();
    let (code, index) = call(&server, "GET /openapi/v3", Value::Null).await;
    let paths = index["paths"].as_object().unwrap();
    assert!(
        code == 200 && ["api/v1", "apis/apps/v1", "apis/agents.recif.dev/v1"].iter().all(|it| paths.contains_key(*it))
    );
    for entry in paths.values() {
        let address = entry["serverRelativeURL"].as_str().unwrap();
        let (bare, hash) = address.split_once("?hash=").unwrap();
        let (code, headers) = head(&server, address).await;
        assert_eq!((code, headers[header::CACHE_CONTROL].to_str().unwrap()), (200, "public, immutable"), "{address}");
        assert_eq!(headers[header::ETAG].to_str().unwrap(), format!("\"{hash}\""));
        let (code, headers) = head(&server, bare).await;
        assert_eq!((code, headers.get(header::CACHE_CONTROL)), (200, None), "without hash it may be another one later");
        let (code, headers) = head(&server, &format!("{bare}?hash=OLD")).await;
        assert_eq!((code, headers[header::LOCATION].to_str().unwrap()), (301, address));
    }
}

/// A list of objects is checked by kubectl with this document alone.
#[tokio::test]
async fn version_2_has_no_definitions() {
    let server = server();
    let (code, document) = call(&server, "GET /openapi/v2", Value::Null).await;
    assert_eq!((code, &document["swagger"], &document["paths"]), (200, &json!("2.0"), &json!({})));
    let request = Request::get("/openapi/v2")
        .header(header::ACCEPT, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
        .body(Full::new(Bytes::new()))
        .unwrap();
    let response = server.clone().oneshot(request).await.unwrap();
    let media_type = response.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned();
    assert_eq!(
        media_type, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
        "without `@`, which Go refuses"
    );
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(&bytes[..], [0x0a, 3, b'2', b'.', b'0'], "the field `swagger` alone");
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let server = server();
    for target in ["/openapi/v4", "/openapi/v3/apis/not.there/v1", "/openapi/v3/api/v2"] {
        assert_eq!(call(&server, &format!("GET {target}"), Value::Null).await, (404, json!("404 page not found\n")));
    }
    assert_eq!(call(&server, "POST /openapi/v3", json!({})).await.0, 405);
}
