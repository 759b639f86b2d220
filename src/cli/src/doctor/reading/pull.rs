//! Pulls each image by a Pod that prints its version, and removes the Pod.

use std::time::Duration;

use futures::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    api::{Read, Unread, text, unread},
    images::{ImageUse, waiting_images},
    views::{Installed, Scope},
};
use crate::cluster::UserClient;

/// Longest time for one image.
const LONGEST: Duration = Duration::from_secs(60);
/// Interval at which a Pod is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Result of one pull.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::doctor) struct Pulled {
    /// The image.
    pub image: String,
    /// `Ok(None)`: it was pulled and its program ran; `Ok(Some(_))`: why not, in the kubelet's words.
    pub result: Read<Option<String>>,
}

/// Pulls the images, all at the same time: where the parts run, before an install in the namespace of the agent.
pub(super) async fn pull(live: &UserClient, scope: &Scope, installed: Installed, uses: &[ImageUse]) -> Vec<Pulled> {
    let namespace = if installed == Installed::Yes { &scope.system } else { &scope.namespace };
    let mut images: Vec<&String> = uses.iter().map(|one| &one.image).collect();
    images.sort();
    images.dedup();
    join_all(images.into_iter().map(async |image| {
        let result = pull_one(live, namespace, image).await;
        Pulled { image: image.clone(), result }
    }))
    .await
}

async fn pull_one(live: &UserClient, namespace: &str, image: &str) -> Read<Option<String>> {
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    let refused = |doing: &'static str| move |error| unread(doing, &error);
    let created = live.request::<Value>("create pods", Method::POST, &path, Some(&pod(image))).await;
    let name = text(&created.map_err(refused("create pods"))?, "/metadata/name");
    let path = format!("{path}/{name}");
    let watched = watch(live, &path).await;
    let now = json!({ "gracePeriodSeconds": 0 });
    let removed = live.request::<Value>("delete pods", Method::DELETE, &path, Some(&now)).await;
    let watched = watched?;
    match removed {
        Err(error) if error.status() != Some(404) => {
            let why = format!("Pod {namespace}/{name} could not be removed ({}); delete it", error.cause());
            Err(Unread::Failed(why))
        }
        _ => Ok(watched),
    }
}

async fn watch(live: &UserClient, path: &str) -> Read<Option<String>> {
    let end = Instant::now() + LONGEST;
    loop {
        let pod: Value =
            live.request("get pods", Method::GET, path, None).await.map_err(|error| unread("get pods", &error))?;
        if let Some(result) = judge(&pod) {
            return Ok(result);
        }
        if Instant::now() >= end {
            return Ok(Some(format!("it was not pulled and started within {} s", LONGEST.as_secs())));
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Returns the result if there is one: `Some(None)` if the program ran.
fn judge(pod: &Value) -> Option<Option<String>> {
    if let Some(ended) = pod.pointer("/status/containerStatuses/0/state/terminated") {
        let code = ended["exitCode"].as_i64().unwrap_or(-1);
        let why = format!("{} (exit code {code}) {}", text(ended, "/reason"), text(ended, "/message"));
        return Some((code != 0).then(|| why.trim().to_owned()));
    }
    // The first attempt may fail by chance, and is followed by another one: only the wait between them counts.
    let waiting = waiting_images(pod).into_iter().find(|waiting| !waiting.said.starts_with("ErrImagePull"));
    waiting.map(|waiting| Some(waiting.said))
}

/// Returns a Pod that prints the version of its image, under the restricted Pod Security profile.
fn pod(image: &str) -> Value {
    let policy = if image.contains('/') { "IfNotPresent" } else { "Never" };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "generateName": "recif-doctor-", "labels": { "app.kubernetes.io/name": "recif-doctor" } },
        "spec": {
            "restartPolicy": "Never", "automountServiceAccountToken": false, "activeDeadlineSeconds": 120,
            "securityContext": { "runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{
                "name": "version", "image": image, "imagePullPolicy": policy, "args": ["--version"],
                "resources": { "requests": { "cpu": "10m", "memory": "16Mi" } },
                "securityContext": { "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                    "capabilities": { "drop": ["ALL"] } },
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    #[test]
    fn an_image_is_good_when_its_program_has_ended_well() {
        let state = |state: Value| json!({ "status": { "containerStatuses": [{ "image": "x", "state": state }] } });
        for (pod, result) in [
            (json!({}), None),
            (state(json!({ "running": {} })), None),
            (state(json!({ "terminated": { "exitCode": 0 } })), Some(None)),
            (state(json!({ "waiting": { "reason": "ErrImagePull", "message": "m" } })), None),
            (
                state(json!({ "waiting": { "reason": "ImagePullBackOff", "message": "m" } })),
                Some(Some("ImagePullBackOff: m".to_owned())),
            ),
            (
                state(json!({ "terminated": { "exitCode": 1, "reason": "Error", "message": "exec format error" } })),
                Some(Some("Error (exit code 1) exec format error".to_owned())),
            ),
        ] {
            assert_eq!(judge(&pod), result, "{pod}");
        }
        assert_eq!(pod("corail:latest")["spec"]["containers"][0]["imagePullPolicy"], "Never");
    }

    /// Returns the result of a pull whose Pod is read with this status code, and the requests that were sent.
    async fn pulled(code: u16) -> (Read<Option<String>>, Vec<String>) {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let log = sent.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            log.lock().unwrap().push(format!("{method} {path}"));
            let pod = json!({ "metadata": { "name": "recif-doctor-x" },
                "status": { "containerStatuses": [{ "state": { "terminated": { "exitCode": 0 } } }] } });
            let refusal = json!({ "status": "Failure", "code": code, "message": "refused", "reason": "Forbidden" });
            let (code, body) = if method == Method::GET && code != 200 { (code, refusal) } else { (200, pod) };
            let answer = Response::builder().status(code).body(Body::from(body.to_string().into_bytes())).unwrap();
            async move { Ok::<_, std::io::Error>(answer) }
        });
        let live = UserClient::mocked(kube::Client::new(service, "a"), "a");
        let result = pull_one(&live, "a", "r.io/x:1").await;
        let sent = sent.lock().unwrap().clone();
        (result, sent)
    }

    #[tokio::test]
    async fn the_pod_is_removed_whatever_was_read() {
        for (code, result) in [(200, Ok(None)), (403, Err(Unread::Forbidden("get pods".into())))] {
            let (pulled, sent) = pulled(code).await;
            let pod = "/api/v1/namespaces/a/pods/recif-doctor-x";
            let expected = ["POST /api/v1/namespaces/a/pods".to_owned(), format!("GET {pod}"), format!("DELETE {pod}")];
            assert_eq!((pulled, sent), (result, expected.to_vec()));
        }
    }
}
