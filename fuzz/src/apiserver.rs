//! Checks the API server in memory by sequences of requests: its routes, selectors, bodies and patches.

use apiserver::ApiServer;
use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use serde_json::Value;
use tower::ServiceExt;

/// Line between two requests.
const SEPARATOR: &str = "\n===\n";
/// Most requests of one input.
const MAX_REQUESTS: usize = 8;
/// Collections that are read after each request.
const COLLECTIONS: &[&str] =
    &["/api/v1/configmaps", "/api/v1/pods", "/apis/apps/v1/deployments", "/apis/agents.recif.dev/v1/models"];

/// Checks that each of some requests is answered as the API says, and that the store stays consistent. A request is a line
/// with method and target, a line with the media type of the body, and the body.
pub fn requests(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    // Watches need timers, which never run here.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let _guard = runtime.enter();
    let server = ApiServer::new(|| Timestamp::UNIX_EPOCH, |_| None);
    let mut state = State::of(&server);
    for request in text.split(SEPARATOR).take(MAX_REQUESTS) {
        let mut lines = request.splitn(3, '\n');
        let (method, target) = lines.next().unwrap_or_default().split_once(' ').unwrap_or_default();
        let (media_type, body) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        let Some((code, answer)) = send(&server, method, target, media_type, body) else { continue };
        if code.is_client_error() || code.is_server_error() {
            let is_status = answer["kind"] == "Status" && answer["code"] == code.as_u16();
            assert!(is_status || answer.is_string(), "{method} {target}: {code} {answer}");
        }
        let next = State::of(&server);
        assert!(next.version >= state.version, "versions only grow: {method} {target}");
        let is_read = method == "GET" || method == "HEAD";
        assert!(
            !(is_read || code.is_client_error()) || next == state,
            "{method} {target} is answered {code}, but it changed something"
        );
        state = next;
    }
}

/// Stored objects and their version.
#[derive(PartialEq)]
struct State {
    version: u64,
    objects: Vec<Value>,
}

impl State {
    /// Reads the state, and checks that each object is read alone as it is in its list.
    fn of(server: &ApiServer) -> Self {
        let (mut version, mut objects) = (0, Vec::new());
        for collection in COLLECTIONS {
            let (code, list) = get(server, collection);
            assert_eq!(code, StatusCode::OK);
            version = number(&list);
            let (root, plural) = collection.rsplit_once('/').unwrap_or_default();
            for item in list["items"].as_array().into_iter().flatten() {
                let metadata = &item["metadata"];
                let text = |field: &str| metadata[field].as_str().unwrap_or_default();
                let path = format!("{root}/namespaces/{}/{plural}/{}", text("namespace"), text("name"));
                let (code, mut alone) = get(server, &path);
                assert_eq!((code, &alone["metadata"]), (StatusCode::OK, metadata), "{path}");
                assert!(number(item) <= version, "{path}");
                let same = format!("{collection}?fieldSelector=metadata.name%3D{}", text("name"));
                let found = get(server, &same).1["items"].as_array().map_or(0, Vec::len);
                assert!(found > 0, "{same}");
                alone["kind"].take();
                objects.push(alone);
            }
        }
        Self { version, objects }
    }
}

fn number(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok()).unwrap_or_default()
}

fn get(server: &ApiServer, target: &str) -> (StatusCode, Value) {
    send(server, "GET", target, "", "").expect("the request can be sent")
}

/// Sends a request, and returns the code and body of the response; of a watch, its first line that is there. None: it is no
/// request of HTTP.
fn send(server: &ApiServer, method: &str, target: &str, media_type: &str, body: &str) -> Option<(StatusCode, Value)> {
    let request = Request::builder().method(method).uri(target).header(header::CONTENT_TYPE, media_type);
    let request = request.body(Full::new(Bytes::from(body.to_owned()))).ok()?;
    // The server has no sockets, so a request never waits.
    let response = server.clone().oneshot(request).now_or_never()?.ok()?;
    let code = response.status();
    let mut frames = Box::pin(response.into_body().into_data_stream());
    let mut all = Vec::new();
    while let Some(Some(Ok(frame))) = frames.next().now_or_never() {
        all.extend_from_slice(&frame);
    }
    let first = serde_json::Deserializer::from_slice(&all).into_iter::<Value>().next();
    let text = || Value::String(String::from_utf8_lossy(&all).into_owned());
    Some((code, first.and_then(Result::ok).unwrap_or_else(text)))
}
