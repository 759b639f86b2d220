//! Scripted API servers: before an install, with nothing that may be read, and none at all.

use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};

use super::{examine, finding::Verdict, reading::Scope};
use crate::{
    cluster::{DevCluster, UserClient},
    error::CliError,
    exit::Exit,
};

fn status(code: u16, message: &str) -> (u16, Value) {
    (
        code,
        json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message, "reason": "" }),
    )
}

/// Returns the answer of a cluster in which nothing of ours is installed.
fn empty_cluster(method: &Method, path: &str, body: &Value) -> (u16, Value) {
    match (method.as_str(), path) {
        (_, "/version") => (200, json!({ "gitVersion": "v1.34.2" })),
        ("GET", "/api/v1/nodes") => {
            let info = json!({ "kubeletVersion": "v1.34.2", "operatingSystem": "linux", "architecture": "arm64" });
            let node = json!({ "metadata": { "name": "n" }, "status": { "nodeInfo": info,
                "conditions": [{ "type": "Ready", "status": "True" }] } });
            (200, json!({ "metadata": {}, "items": [node] }))
        }
        ("GET", "/api/v1/namespaces/default") => (200, json!({ "metadata": { "name": "default" } })),
        ("POST", path) if path.ends_with("accessreviews") => (201, json!({ "status": { "allowed": true } })),
        // A dry run returns what would be created.
        ("POST", path) if path.starts_with("/api/v1/namespaces/team-a/pods") || path.contains("/deployments") => {
            (201, body.clone())
        }
        ("GET", path) if path.contains("agents.recif.dev") => {
            status(404, "the server could not find the requested resource")
        }
        ("GET", path)
            if path.ends_with("/deployments") || path.contains("/deployments/") || path.contains("/leases/") =>
        {
            status(404, "not found")
        }
        ("GET", _) => (200, json!({ "metadata": {}, "items": [] })),
        _ => status(405, "unexpected"),
    }
}

fn refused(_: &Method, path: &str, _: &Value) -> (u16, Value) {
    match path {
        "/version" => (200, json!({ "gitVersion": "v1.34.2" })),
        path => status(403, &format!("User \"x\" cannot create resource at {path}")),
    }
}

fn live(script: fn(&Method, &str, &Value) -> (u16, Value)) -> UserClient {
    let service = tower::service_fn(move |request: Request<Body>| async move {
        let (head, body) = request.into_parts();
        let bytes = body.collect_bytes().await.map_err(std::io::Error::other)?;
        let sent = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        let (code, answer) = script(&head.method, head.uri.path(), &sent);
        let body = Body::from(answer.to_string().into_bytes());
        Ok::<_, std::io::Error>(Response::builder().status(StatusCode::from_u16(code).unwrap()).body(body).unwrap())
    });
    UserClient::mocked(kube::Client::new(service, "team-a"), "team-a")
}

fn scope() -> Scope {
    let timeout = Duration::from_secs(5);
    Scope { namespace: "team-a".into(), system: "recif-system".into(), pull: false, timeout }
}

#[tokio::test]
async fn before_an_install_it_is_judged_whether_one_would_work() {
    let report = examine(&live(empty_cluster), scope()).await.unwrap();
    let verdict = |check: &str| report.findings.iter().find(|finding| finding.check == check).unwrap().verdict;
    for check in [
        "kubernetes",
        "sidecars",
        "admission-policies",
        "nodes",
        "your-rights",
        "pods",
        "network-policies",
        "api-server",
    ] {
        assert_eq!(verdict(check), Verdict::Ok, "{check}: {}", report.text());
    }
    let mut later = 0;
    for finding in report.findings.iter().filter(|finding| finding.verdict != Verdict::Ok) {
        assert!(finding.text.ends_with(": not installed yet"), "{}", finding.text);
        later += 1;
    }
    assert_eq!((report.findings.len(), later), (15, 7), "{}", report.text());
    assert_eq!(report.exit(true), Exit::Done);
}

#[tokio::test]
async fn what_is_missing_comes_back_as_it_was_installed() {
    fn defined(labels: &Value, method: &Method, path: &str, body: &Value) -> (u16, Value) {
        match path.contains("/customresourcedefinitions/") {
            true => (200, json!({ "metadata": { "name": "x", "labels": labels } })),
            false => empty_cluster(method, path, body),
        }
    }
    fn chart(method: &Method, path: &str, body: &Value) -> (u16, Value) {
        defined(&json!({ "app.kubernetes.io/managed-by": "Helm" }), method, path, body)
    }
    fn manifests(method: &Method, path: &str, body: &Value) -> (u16, Value) {
        defined(&json!({}), method, path, body)
    }
    let remedy = async |script: fn(&Method, &str, &Value) -> (u16, Value)| {
        let report = examine(&live(script), scope()).await.unwrap();
        report.findings.into_iter().find(|finding| finding.check == "operator").unwrap().text
    };
    let of_chart = remedy(chart).await;
    let of_manifests = remedy(manifests).await;
    assert!(of_chart.contains("in namespace recif-system: helm upgrade --install recif "), "{of_chart}");
    let applied = "in namespace recif-system: kubectl apply --server-side --force-conflicts -k ";
    assert!(of_manifests.contains(applied), "{of_manifests}");
}

#[tokio::test]
async fn of_a_local_api_server_its_parts_are_judged_and_nothing_of_a_cluster() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let at = |port: u16| url::Url::parse(&format!("http://127.0.0.1:{port}/")).unwrap();
    let dev = |control_plane| DevCluster { gateway: at(port), control_plane, folder: Some("/home/you/shop".into()) };
    let mut live = live(empty_cluster);
    live.dev = Some(dev(at(port)));
    let report = examine(&live, scope()).await.unwrap();
    let checks: Vec<_> = report.findings.iter().map(|finding| (finding.check, finding.verdict)).collect();
    let expected = [("recif-dev", Verdict::Ok), ("api-server", Verdict::Ok), ("objects", Verdict::Skip)];
    assert_eq!(checks, expected, "{}", report.text());
    assert!(report.text().contains("in /home/you/shop, gateway http://127.0.0.1:"), "{}", report.text());
    // Nothing listens at port 1.
    live.dev = Some(dev(at(1)));
    let report = examine(&live, scope()).await.unwrap();
    assert_eq!(
        report.findings[0].text,
        "recif dev: the control plane takes no connection: end recif dev by Ctrl-C and start it again"
    );
    assert_eq!(report.exit(false), Exit::NotReady);
}

#[tokio::test]
async fn a_namespace_that_takes_no_pods_fails_alone() {
    fn quota(method: &Method, path: &str, body: &Value) -> (u16, Value) {
        match path {
            "/api/v1/namespaces/team-a/pods" if *method == Method::POST => {
                let counts = "requested: pods=1, used: pods=0, limited: pods=0";
                status(403, &format!("pods \"x\" is forbidden: exceeded quota: none, {counts}"))
            }
            _ => empty_cluster(method, path, body),
        }
    }
    let report = examine(&live(quota), scope()).await.unwrap();
    let failed: Vec<_> = report.findings.iter().filter(|finding| finding.verdict == Verdict::Fail).collect();
    assert_eq!((failed.len(), failed[0].check), (1, "pods"), "{}", report.text());
    assert_eq!(report.exit(false), Exit::NotReady);
}

#[tokio::test]
async fn a_workload_whose_pods_are_refused_fails_alone() {
    fn restricted(method: &Method, path: &str, body: &Value) -> (u16, Value) {
        match path {
            "/apis/apps/v1/namespaces/team-a/deployments" if *method == Method::GET => {
                let said = "pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\": privileged";
                let condition = json!({ "type": "ReplicaFailure", "status": "True", "message": said });
                let owner = json!({ "kind": "Agent", "name": "x", "controller": true });
                let deployment = json!({ "metadata": { "name": "x", "ownerReferences": [owner] },
                    "status": { "conditions": [condition] } });
                (200, json!({ "metadata": {}, "items": [deployment] }))
            }
            _ => empty_cluster(method, path, body),
        }
    }
    let report = examine(&live(restricted), scope()).await.unwrap();
    let failed: Vec<_> = report.findings.iter().filter(|finding| finding.verdict == Verdict::Fail).collect();
    assert_eq!((failed.len(), failed[0].check), (1, "pods"), "{}", report.text());
    assert_eq!(report.exit(false), Exit::NotReady);
}

#[tokio::test]
async fn a_workload_beyond_the_level_of_the_operator_fails_alone() {
    fn privileged(method: &Method, path: &str, body: &Value) -> (u16, Value) {
        match path {
            "/apis/agents.recif.dev/v1/namespaces/team-a/agents" if *method == Method::GET => {
                let said = "podTemplate: spec.hostNetwork violates the Pod Security level baseline, which it enforces";
                let ready = json!({ "type": "Ready", "status": "False", "reason": "InvalidSpec", "message": said });
                let agent = json!({ "metadata": { "name": "x" }, "status": { "conditions": [ready] } });
                (200, json!({ "metadata": {}, "items": [agent] }))
            }
            _ => empty_cluster(method, path, body),
        }
    }
    let report = examine(&live(privileged), scope()).await.unwrap();
    let failed: Vec<_> = report.findings.iter().filter(|finding| finding.verdict == Verdict::Fail).collect();
    assert_eq!((failed.len(), failed[0].check), (1, "pods"), "{}", report.text());
    let words = "those of agent/x are refused, podTemplate: spec.hostNetwork violates";
    assert!(failed[0].text.contains(words), "{}", failed[0].text);
}

#[tokio::test]
async fn a_caller_who_may_read_nothing_is_told_so() {
    let error = examine(&live(refused), scope()).await.unwrap_err();
    assert!(matches!(error, CliError::Forbidden(_)) && error.code() == Exit::Forbidden, "{error}");
}

#[tokio::test]
async fn without_an_api_server_there_is_nothing_to_judge() {
    let service = tower::service_fn(|_: Request<Body>| async {
        Err::<Response<Body>, _>(std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "refused"))
    });
    let gone = UserClient::mocked(kube::Client::new(service, "team-a"), "team-a");
    let error = examine(&gone, scope()).await.unwrap_err();
    assert_eq!(error.code(), Exit::Unreachable, "{error}");
}

#[tokio::test]
async fn what_may_not_be_read_is_skipped_with_the_right_that_it_takes() {
    fn limited(method: &Method, path: &str, body: &Value) -> (u16, Value) {
        match (method.as_str(), path) {
            ("GET", "/api/v1/nodes") => status(403, "nodes is forbidden"),
            ("POST", path) if path.ends_with("/pods") => {
                status(403, "pods is forbidden: User \"x\" cannot create resource \"pods\" in API group \"\"")
            }
            _ => empty_cluster(method, path, body),
        }
    }
    let report = examine(&live(limited), scope()).await.unwrap();
    for line in [
        "skip  nodes: you may not list nodes\n",
        "skip  native sidecars: you may not create pods\n",
        "skip  pods in team-a: you may not create pods\n",
    ] {
        assert!(report.text().contains(line), "{}", report.text());
    }
    assert_eq!(report.exit(true), Exit::Done);
}
