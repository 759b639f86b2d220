//! Pulls each image by a Pod that prints its version, and removes the Pod: after a result, a time-out, Ctrl-C, and an answer of the API
//! server that was lost.

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
    images::{ImageUse, Puller},
    views::{ARCHITECTURES, NodeView, Scope},
};
pub(in crate::doctor) use pod::PullOutcome;
use pod::{judge, late, version_pod};

use crate::{
    cluster::{ReadError, UserClient},
    error::CliError,
};

/// Longest time for one image.
const LONGEST: Duration = Duration::from_secs(60);
/// Longest wait for the answer to a creation, and to a deletion.
const ANSWER: Duration = Duration::from_secs(10);
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
    /// What became of it.
    pub outcome: PullOutcome,
    /// The Pod, if it could not be removed.
    pub left: Option<LeftPod>,
}

/// Pod that could not be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::doctor) struct LeftPod {
    /// Its namespace and name.
    pub pod: String,
    /// Why it is still there.
    pub why: String,
}

/// Pod that pulls an image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Plan {
    namespace: String,
    image: String,
    /// `None`: an image of workloads, whose Secrets are their own.
    puller: Option<Puller>,
    arch: Option<String>,
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
/// [`CliError::Interrupted`]; no Pod is left then, or it is named.
pub(super) async fn pull(
    live: &UserClient,
    scope: &Scope,
    uses: &[ImageUse],
    nodes: &Read<Vec<NodeView>>,
) -> Result<Vec<Pulled>, CliError> {
    let failed = |error| CliError::FailedAnswer(format!("wait for signals: {error}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let stop = async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    pull_until(live, plans(scope, uses, nodes), stop).await
}

async fn pull_until(
    live: &UserClient,
    plans: BTreeSet<Plan>,
    stop: impl Future<Output = ()>,
) -> Result<Vec<Pulled>, CliError> {
    let (sender, stopped) = watch::channel(false);
    let mut pulls = pin!(join_all(plans.into_iter().map(|plan| pull_one(live, plan, stopped.clone()))));
    tokio::select! {
        pulled = &mut pulls => return Ok(pulled),
        () = stop => {}
    }
    sender.send_replace(true);
    let left = pulls.await.into_iter().filter_map(|pulled| pulled.left);
    let left: Vec<_> = left.map(|LeftPod { pod, why }| format!("Pod {pod} ({why})")).collect();
    Err(CliError::Interrupted(match left.is_empty() {
        true => "stopped: the Pods that pulled images are removed".to_owned(),
        false => format!("stopped: not removed was {}: delete it", left.join(", ")),
    }))
}

async fn pull_one(live: &UserClient, plan: Plan, mut stopped: watch::Receiver<bool>) -> Pulled {
    let name = match pod_name() {
        Ok(name) => name,
        Err(why) => return plan.ended(PullOutcome::Unread(why), None),
    };
    let pods = format!("/api/v1/namespaces/{}/pods", plan.namespace);
    let (path, body) = (format!("{pods}/{name}"), version_pod(&name, &plan));
    let created = timeout(ANSWER, live.request::<Value>("create pods", Method::POST, &pods, Some(&body))).await;
    let outcome = match created {
        Ok(Ok(_)) => tokio::select! {
            outcome = look(live, &path) => outcome,
            _ = stopped.changed() => PullOutcome::Unread(Unread::Failed("stopped".to_owned())),
        },
        Ok(Err(error)) if error.status().is_some() => {
            return plan.ended(PullOutcome::Unread(not_created(&error)), None);
        }
        // It may have been created all the same.
        Ok(Err(error)) => PullOutcome::Unread(Unread::Failed(error.cause())),
        Err(_) => PullOutcome::Unread(Unread::Failed(no_answer())),
    };
    let left = remove(live, &path).await.map(|why| LeftPod { pod: format!("{}/{name}", plan.namespace), why });
    plan.ended(outcome, left)
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
