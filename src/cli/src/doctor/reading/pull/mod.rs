//! Pulls each image by a Pod that prints its version, and removes the Pod: after a result, a time-out, Ctrl-C, and an answer of the API
//! server that was lost. A second Ctrl-C does not wait for that.

mod pod;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, pin::pin, time::Duration};

use futures::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::{sleep, timeout},
};

use super::{
    api::{Read, Unread, lacks_right, unread},
    images::ImageUse,
    views::{ARCHITECTURES, NodeView, Scope},
};
pub(in crate::doctor) use pod::PullOutcome;
use pod::{LONGEST, Plan, judge, late, version_pod};

use crate::{
    cluster::{ReadError, UserClient},
    error::CliError,
};

/// Longest wait for the answer to a creation, and to a deletion.
const ANSWER: Duration = Duration::from_secs(10);
/// Message when no Pod is left.
const REMOVED: &str = "stopped: the Pods that pulled images are removed";
/// Interval at which a Pod is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Result of one pull.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::doctor) struct Pulled {
    /// The image.
    pub image: String,
    /// Namespace of the Pod, and its architecture if the nodes have several.
    pub place: String,
    /// True if Pods of workloads use the image.
    pub of_workloads: bool,
    /// Outcome of the pull.
    pub outcome: PullOutcome,
    /// The Pod, if it could not be removed.
    pub left: Option<LeftPod>,
}

/// Pod that could not be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::doctor) struct LeftPod {
    /// Its namespace and name.
    pub pod: String,
    /// Reason why it is still there.
    pub why: String,
}

/// Returns the Pods that pull the images: where the images are used, and one for each architecture of the nodes.
fn plans(scope: &Scope, uses: &[ImageUse], nodes: &Read<Vec<NodeView>>) -> BTreeSet<Plan> {
    let ready = nodes.iter().flatten().filter(|node| node.ready && node.os == "linux");
    let known: BTreeSet<&str> =
        ready.map(|node| node.arch.as_str()).filter(|arch| ARCHITECTURES.contains(arch)).collect();
    let archs: Vec<Option<String>> = match known.len() {
        0 | 1 => vec![None],
        _ => known.into_iter().map(|arch| Some(arch.to_owned())).collect(),
    };
    let of = |one: &ImageUse, arch: &Option<String>| Plan {
        namespace: if one.puller.is_some() { scope.system.clone() } else { scope.namespace.clone() },
        image: one.image.clone(),
        puller: one.puller.clone(),
        arch: arch.clone(),
    };
    uses.iter().flat_map(|one| archs.iter().map(move |arch| of(one, arch))).collect()
}

/// Pulls the images, all at the same time.
///
/// # Errors
/// [`CliError::Interrupted`] after a signal; no Pod is left then, or it is named. After a second one each Pod is named that may
/// be left.
pub(super) async fn pull(
    live: &UserClient,
    scope: &Scope,
    uses: &[ImageUse],
    nodes: &Read<Vec<NodeView>>,
) -> Result<Vec<Pulled>, CliError> {
    let failed = |error| CliError::FailedAnswer(format!("wait for signals: {error}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let stop = async || {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    pull_until(live, plans(scope, uses, nodes), stop).await
}

/// Pulls until `stop` returns, then removes the Pods, until it returns again.
async fn pull_until(
    live: &UserClient,
    plans: BTreeSet<Plan>,
    mut stop: impl AsyncFnMut(),
) -> Result<Vec<Pulled>, CliError> {
    let (sender, stopped) = watch::channel(false);
    let pods = LivePods::default();
    let mut pulls = pin!(join_all(plans.into_iter().map(|plan| pull_one(live, plan, stopped.clone(), &pods))));
    tokio::select! {
        pulled = &mut pulls => return Ok(pulled),
        () = stop() => {}
    }
    sender.send_replace(true);
    let text = tokio::select! {
        pulled = &mut pulls => {
            let left = pulled.into_iter().filter_map(|pulled| pulled.left);
            let left: Vec<_> = left.map(|LeftPod { pod, why }| format!("Pod {pod} ({why})")).collect();
            match left.is_empty() {
                true => REMOVED.to_owned(),
                false => format!("stopped: not removed was {}: delete it", left.join(", ")),
            }
        }
        () = stop() => pods.text(),
    };
    Err(CliError::Interrupted(text))
}

/// Pods that may exist, by namespace and name.
#[derive(Debug, Default)]
struct LivePods(watch::Sender<BTreeSet<String>>);

impl LivePods {
    fn add(&self, pod: &str) {
        self.0.send_modify(|pods| {
            pods.insert(pod.to_owned());
        });
    }

    fn remove(&self, pod: &str) {
        self.0.send_modify(|pods| {
            pods.remove(pod);
        });
    }

    fn text(&self) -> String {
        let pods: Vec<_> = self.0.borrow().iter().map(|pod| format!("Pod {pod}")).collect();
        match pods.is_empty() {
            true => REMOVED.to_owned(),
            false => format!("stopped before all Pods were removed: delete those that are left of {}", pods.join(", ")),
        }
    }
}

async fn pull_one(live: &UserClient, plan: Plan, stopped: watch::Receiver<bool>, pods: &LivePods) -> Pulled {
    let name = match pod_name() {
        Ok(name) => name,
        Err(why) => return plan.ended(PullOutcome::Unread(why), None),
    };
    let pod = format!("{}/{name}", plan.namespace);
    pods.add(&pod);
    let (outcome, not_removed) = run_pod(live, &plan, &name, stopped).await;
    if not_removed.is_none() {
        pods.remove(&pod);
    }
    plan.ended(outcome, not_removed.map(|why| LeftPod { pod, why }))
}

/// Creates a Pod, looks at it and removes it; returns the result, and why the Pod could not be removed.
async fn run_pod(
    live: &UserClient,
    plan: &Plan,
    name: &str,
    mut stopped: watch::Receiver<bool>,
) -> (PullOutcome, Option<String>) {
    let pods = format!("/api/v1/namespaces/{}/pods", plan.namespace);
    let (path, body) = (format!("{pods}/{name}"), version_pod(name, plan));
    let created = timeout(ANSWER, live.request::<Value>("create pods", Method::POST, &pods, Some(&body))).await;
    let outcome = match created {
        Ok(Ok(_)) => tokio::select! {
            outcome = look(live, &path) => outcome,
            _ = stopped.changed() => PullOutcome::Unread(Unread::Failed("stopped".to_owned())),
        },
        Ok(Err(error)) if was_refused(&error) => return (PullOutcome::Unread(not_created(&error)), None),
        // It may have been created all the same.
        Ok(Err(error)) => PullOutcome::Unread(Unread::Failed(error.cause())),
        Err(_) => PullOutcome::Unread(Unread::Failed(no_answer())),
    };
    (outcome, remove(live, &path).await)
}

impl Plan {
    fn ended(self, outcome: PullOutcome, left: Option<LeftPod>) -> Pulled {
        let place = match self.arch {
            Some(arch) => format!("{} ({arch})", self.namespace),
            None => self.namespace,
        };
        Pulled { image: self.image, place, of_workloads: self.puller.is_none(), outcome, left }
    }
}

/// Returns a name that no other Pod has. It is known before the Pod is created, to remove it also when the answer is lost.
fn pod_name() -> Read<String> {
    let mut random = [0; 5];
    getrandom::fill(&mut random)
        .map_err(|error| Unread::Failed(format!("the system has no random numbers: {error}")))?;
    Ok(format!("recif-doctor-{}", hex::encode(random)))
}

/// Reports whether the API server surely created no Pod. A time-out (504) says nothing of it, and a conflict (409) may be one with
/// the Pod that an earlier attempt of the same request created.
fn was_refused(error: &ReadError) -> bool {
    error.status().is_some_and(|code| code < 500 && code != 409)
}

/// Returns why a Pod was not created: of a quota, for one, the words of the API server.
fn not_created(error: &ReadError) -> Unread {
    if lacks_right(error) { unread("create pods", error) } else { Unread::Failed(error.cause()) }
}

fn no_answer() -> String {
    format!("the API server did not answer within {} s", ANSWER.as_secs())
}

/// Looks at a Pod until there is a result.
async fn look(live: &UserClient, path: &str) -> PullOutcome {
    let mut seen = Value::Null;
    let looking = async {
        loop {
            match live.request::<Value>("get pods", Method::GET, path, None).await {
                Ok(pod) => match judge(&pod) {
                    Some(outcome) => return outcome,
                    None => seen = pod,
                },
                Err(error) if error.is_forbidden() => return PullOutcome::Unread(unread("get pods", &error)),
                // The next one may be answered.
                Err(_) => {}
            }
            sleep(LOOK_EVERY).await;
        }
    };
    let looked = timeout(LONGEST, looking).await;
    looked.unwrap_or_else(|_| late(&seen))
}

/// Removes a Pod; returns why it could not be removed.
async fn remove(live: &UserClient, path: &str) -> Option<String> {
    let now = json!({ "gracePeriodSeconds": 0 });
    match timeout(ANSWER, live.request::<Value>("delete pods", Method::DELETE, path, Some(&now))).await {
        Ok(Err(error)) if error.status() != Some(404) => Some(error.cause()),
        Ok(_) => None,
        Err(_) => Some(no_answer()),
    }
}
