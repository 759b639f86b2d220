//! Tests pulls against scripted API servers: whatever happens, the Pod is removed or named.

use std::sync::{Arc, Mutex};

use http::{Request, Response, StatusCode};
use kube::client::Body;
use tokio::sync::Notify;

use super::*;
use crate::{doctor::reading::images::Puller, exit::Exit};

/// Answers of an API server: status code and body by method.
type Script = fn(&Method) -> (u16, Value);

fn status(code: u16, message: &str) -> (u16, Value) {
    (code, json!({ "kind": "Status", "status": "Failure", "code": code, "message": message, "reason": "" }))
}

fn with_state(state: Value) -> (u16, Value) {
    (200, json!({ "status": { "containerStatuses": [{ "name": "version", "state": state }] } }))
}

fn all_well(_: &Method) -> (u16, Value) {
    with_state(json!({ "terminated": { "exitCode": 0 } }))
}

fn plan() -> Plan {
    Plan { namespace: "a".into(), image: "r.io/x:1".into(), puller: None, arch: None }
}

/// API server with a script, the methods that it was asked, and a signal for each time that a Pod is read.
struct Server {
    live: UserClient,
    asked: Arc<Mutex<Vec<String>>>,
    read: Arc<Notify>,
}

impl Server {
    fn of(script: Script) -> Self {
        let (asked, read) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Notify::new()));
        let (log, reads) = (asked.clone(), read.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let path = request.uri().path();
            let is_one = path.starts_with("/api/v1/namespaces/a/pods/recif-doctor-");
            let right = if *request.method() == Method::POST { path == "/api/v1/namespaces/a/pods" } else { is_one };
            assert!(right, "{path}");
            log.lock().unwrap().push(request.method().to_string());
            if *request.method() == Method::GET {
                reads.notify_one();
            }
            let (code, body) = script(request.method());
            let answer = Response::builder().status(StatusCode::from_u16(code).unwrap());
            let answer = answer.body(Body::from(body.to_string().into_bytes())).unwrap();
            async move { Ok::<_, std::io::Error>(answer) }
        });
        Self { live: UserClient::mocked(kube::Client::new(service, "a"), "a"), asked, read }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

#[tokio::test]
async fn the_pod_is_removed_whatever_was_read() {
    let cases: [(Script, PullOutcome, &[&str]); 6] = [
        (all_well, PullOutcome::Started, &["POST", "GET", "DELETE"]),
        (
            |method| if *method == Method::GET { status(403, "no") } else { all_well(method) },
            PullOutcome::Unread(Unread::Forbidden("get pods".into())),
            &["POST", "GET", "DELETE"],
        ),
        (
            |_| status(403, "pods \"x\" is forbidden: exceeded quota: small"),
            PullOutcome::Unread(Unread::Failed("pods \"x\" is forbidden: exceeded quota: small".into())),
            &["POST"],
        ),
        (
            |_| status(403, "pods is forbidden: User \"x\" cannot create resource \"pods\""),
            PullOutcome::Unread(Unread::Forbidden("create pods".into())),
            &["POST"],
        ),
        // These do not say that there is no Pod.
        (
            |method| if *method == Method::POST { status(409, "it exists") } else { all_well(method) },
            PullOutcome::Unread(Unread::Failed("it exists".into())),
            &["POST", "DELETE"],
        ),
        (
            |method| if *method == Method::POST { status(504, "too slow") } else { status(404, "not found") },
            PullOutcome::Unread(Unread::Failed("too slow".into())),
            &["POST", "DELETE"],
        ),
    ];
    for (script, outcome, requests) in cases {
        let server = Server::of(script);
        let (_sender, stopped) = watch::channel(false);
        let pods = LivePods::default();
        let pulled = pull_one(&server.live, plan(), stopped, &pods).await;
        assert_eq!((pulled.outcome, pulled.left), (outcome, None));
        assert_eq!(server.asked(), requests);
        assert_eq!(pods.text(), REMOVED);
    }
}

#[tokio::test]
async fn the_pod_is_removed_when_the_answer_to_its_creation_is_lost() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        log.lock().unwrap().push(request.method().to_string());
        let lost = *request.method() == Method::POST;
        async move {
            match lost {
                true => Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset)),
                false => Ok(Response::new(Body::from(b"{}".to_vec()))),
            }
        }
    });
    let live = UserClient::mocked(kube::Client::new(service, "a"), "a");
    let (_sender, stopped) = watch::channel(false);
    let pulled = pull_one(&live, plan(), stopped, &LivePods::default()).await;
    assert!(matches!(pulled.outcome, PullOutcome::Unread(Unread::Failed(_))), "{pulled:?}");
    assert_eq!((pulled.left, asked.lock().unwrap().clone()), (None, vec!["POST".to_owned(), "DELETE".to_owned()]));
}

#[tokio::test]
async fn what_is_stopped_removes_its_pods_and_says_so() {
    let scripts: [(Script, &str); 2] = [
        (|_| with_state(json!({ "running": {} })), "the Pods that pulled images are removed"),
        (
            |method| match *method == Method::DELETE {
                true => status(403, "not yours"),
                false => with_state(json!({ "running": {} })),
            },
            "(not yours): delete it",
        ),
    ];
    for (script, words) in scripts {
        let server = Server::of(script);
        let stop = async || server.read.notified().await;
        let stopped = pull_until(&server.live, BTreeSet::from([plan()]), stop).await;
        let error = stopped.unwrap_err();
        assert_eq!(error.code(), Exit::Interrupted);
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(server.asked().last().map(String::as_str), Some("DELETE"));
    }
}

#[tokio::test]
async fn a_second_signal_ends_at_once_and_names_the_pods_that_may_be_left() {
    let [read, removing] = [Arc::new(Notify::new()), Arc::new(Notify::new())];
    let signals = [read.clone(), removing.clone()];
    let service = tower::service_fn(move |request: Request<Body>| {
        let is_delete = *request.method() == Method::DELETE;
        match *request.method() {
            Method::GET => read.notify_one(),
            Method::DELETE => removing.notify_one(),
            _ => {}
        }
        async move {
            if is_delete {
                // Its answer never comes.
                std::future::pending::<()>().await;
            }
            let (_, running) = with_state(json!({ "running": {} }));
            Ok::<_, std::io::Error>(Response::new(Body::from(running.to_string().into_bytes())))
        }
    });
    let live = UserClient::mocked(kube::Client::new(service, "a"), "a");
    let mut signals = signals.iter();
    let stop = async || signals.next().unwrap().notified().await;
    let ended = tokio::time::timeout(ANSWER / 2, pull_until(&live, BTreeSet::from([plan()]), stop)).await;
    let error = ended.unwrap().unwrap_err();
    assert_eq!(error.code(), Exit::Interrupted);
    assert!(error.to_string().contains("delete those that are left of Pod a/recif-doctor-"), "{error}");
}

#[test]
fn each_image_is_pulled_where_it_is_used_and_on_each_architecture() {
    let scope = Scope {
        namespace: "team-a".into(),
        system: "recif-system".into(),
        pull: true,
        timeout: Duration::from_secs(1),
    };
    let one = |part, image: &str, account: Option<&str>| ImageUse {
        part,
        image: image.into(),
        puller: account.map(|name| Puller { account: name.into(), ..Puller::default() }),
    };
    let uses = [
        one("operator", "r/o", Some("s")),
        one("gateway", "r/o", Some("s")),
        one("sidecar", "r/p", None),
        one("agents", "r/a", None),
    ];
    let node = |arch: &str, ready| NodeView { os: "linux".into(), arch: arch.into(), ready, ..NodeView::default() };
    let planned = |nodes: Read<Vec<NodeView>>| -> Vec<String> {
        let all = plans(&scope, &uses, &nodes).into_iter();
        all.map(|plan| format!("{} {} {}", plan.namespace, plan.image, plan.arch.unwrap_or_default())).collect()
    };
    let anywhere = ["recif-system r/o ", "team-a r/a ", "team-a r/p "];
    assert_eq!(planned(Ok(vec![node("amd64", true), node("arm64", false), node("s390x", true)])), anywhere);
    assert_eq!(planned(Err(Unread::Forbidden("list nodes".into()))), anywhere);
    let both = planned(Ok(vec![node("amd64", true), node("arm64", true)]));
    assert_eq!(both.len(), 6, "{both:?}");
    assert_eq!(both[..2], ["recif-system r/o amd64", "recif-system r/o arm64"]);
}
