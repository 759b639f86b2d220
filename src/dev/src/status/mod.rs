//! Progress of the objects: which have reached the state that their files ask for, which are on the way, and which need the user.
//!
//! Pure: objects come in as they are seen, time is a parameter, events come out.

mod watch;

use std::{collections::BTreeMap, time::Duration};

use crds::{ApiKind, Role, reason};
use kube::core::DynamicObject;
use meta::CommonStatus;
use serde_json::Value;
use tokio::time::Instant;
pub(crate) use watch::{Sight, sights};

use crate::{manifest::ObjectId, screen::Event};

/// Time after which a failure is shown: shorter ones are on the way to something better.
const FAILED_AFTER: Duration = Duration::from_millis(300);
/// Time after which it is shown that an object waits for something.
const WAITS_AFTER: Duration = Duration::from_secs(1);
/// Time after which it is shown that Pods do not become ready; many programs take seconds to start.
const DEPLOYS_AFTER: Duration = Duration::from_secs(10);

/// apiVersion and kind of Deployments.
const DEPLOYMENT: (&str, &str) = ("apps/v1", "Deployment");

/// State of an object, as far as it concerns the user.
#[derive(Debug, Clone, PartialEq, Eq)]
struct View {
    /// Its phase.
    phase: String,
    /// It is as it should be.
    is_good: bool,
    /// Explanation of the state.
    sentence: String,
    /// Reason of that, for machines.
    reason: String,
    /// Digest of what its Pods run; none for kinds without Pods.
    content: Option<String>,
    /// It runs Pods.
    is_workload: bool,
}

impl View {
    /// Returns the state of a Deployment of the user's.
    fn of_deployment(id: &ObjectId, object: &DynamicObject) -> Self {
        let number = |pointer: &str| object.data.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
        let wanted = object.data.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1);
        let available = number("/status/availableReplicas").min(number("/status/updatedReplicas"));
        let generation = object.metadata.generation.unwrap_or_default();
        // None of another template is left, either.
        let is_good = number("/status/observedGeneration") >= generation
            && available == wanted
            && number("/status/replicas") == wanted;
        Self {
            phase: if is_good { "Running" } else { "Deploying" }.to_owned(),
            is_good,
            sentence: format!(
                "Deployment {}/{} waits for its Pods: {available} of {wanted} are available.",
                id.namespace, id.name
            ),
            reason: String::new(),
            content: Some(generation.to_string()),
            is_workload: true,
        }
    }

    fn of(kind: &ApiKind, object: &DynamicObject) -> Self {
        let status = object.data.get("status").cloned();
        let status: Option<CommonStatus> = status.map(|status| serde_json::from_value(status).unwrap_or_default());
        let why = crds::why::why(kind.name, &object.metadata, status.as_ref());
        let digest = |pointer: &str| object.data.pointer(pointer).and_then(Value::as_str);
        let template = digest("/status/template").unwrap_or_default();
        Self {
            phase: why.phase.unwrap_or_default(),
            is_good: !why.attention,
            sentence: why.sentence,
            reason: why.reason.unwrap_or_default(),
            content: digest("/status/contentHash").map(|hash| [hash, template].join(" ")),
            is_workload: kind.role == Role::Workload,
        }
    }

    /// Returns how long this state may last before the user learns of it.
    fn patience(&self) -> Duration {
        match (self.phase.as_str(), self.reason.as_str()) {
            ("Failed" | "Error", _) => FAILED_AFTER,
            ("Deploying" | "Running", "" | "Deploying" | reason::NOT_READY | reason::PODS_NOT_READY) => DEPLOYS_AFTER,
            ("Rendering", "" | "Rendering") => DEPLOYS_AFTER,
            _ => WAITS_AFTER,
        }
    }
}

/// An object and what is known of it.
#[derive(Debug)]
struct Tracked {
    view: Option<View>,
    /// Beginning of the way to the state that is asked for.
    since: Instant,
    /// Time since which the state is what it is.
    steady_since: Instant,
    /// Digest of what its Pods ran when it was as it should be.
    good_content: Option<Option<String>>,
    /// Text of its trouble that was shown.
    shown: Option<String>,
}

/// Tracker of all objects.
#[derive(Debug)]
pub(crate) struct Tracker {
    namespace: String,
    /// Objects of files, in their order.
    expected: Vec<ObjectId>,
    /// Those of them that were refused the last time, of which the user knows.
    refused: Vec<ObjectId>,
    objects: BTreeMap<ObjectId, Tracked>,
    /// Ports of Services on this machine, by namespace and name.
    ports: BTreeMap<(String, String), u16>,
}

impl Tracker {
    /// Makes a tracker. Objects of this namespace are shown without it.
    pub(crate) fn new(namespace: String) -> Self {
        let (expected, refused) = (Vec::new(), Vec::new());
        Self { namespace, expected, refused, objects: BTreeMap::new(), ports: BTreeMap::new() }
    }

    /// Takes the objects that files hold, and those of them that were applied just now.
    pub(crate) fn expect(&mut self, expected: Vec<ObjectId>, applied: &[ObjectId], now: Instant) {
        self.expected = expected.into_iter().filter(is_tracked).collect();
        applied.iter().for_each(|id| self.begin(id, now));
    }

    /// Takes the objects of files that the API server has refused.
    pub(crate) fn refuse(&mut self, refused: Vec<ObjectId>) {
        self.refused = refused;
    }

    /// Begins the way of an object anew: its Pods are replaced without a change of its file.
    pub(crate) fn begin(&mut self, id: &ObjectId, now: Instant) {
        if is_tracked(id) {
            self.entry(id, now).since = now;
        }
    }

    fn entry(&mut self, id: &ObjectId, now: Instant) -> &mut Tracked {
        let new = || Tracked { view: None, since: now, steady_since: now, good_content: None, shown: None };
        self.objects.entry(id.clone()).or_insert_with(new)
    }

    /// Takes what was seen, and returns what to show of it.
    pub(crate) fn see(&mut self, sight: Sight, now: Instant) -> Option<Event> {
        match sight {
            Sight::Service { namespace, name, port } => {
                let service = (namespace, name);
                if let Some(port) = port {
                    self.ports.insert(service, port);
                } else {
                    self.ports.remove(&service);
                }
                None
            }
            Sight::Gone(id) => {
                self.objects.remove(&id);
                None
            }
            Sight::Object(id, object) => {
                let view = match kind_of(&id) {
                    Some(kind) => View::of(kind, &object),
                    None => View::of_deployment(&id, &object),
                };
                self.see_object(&id, view, now)
            }
        }
    }

    fn see_object(&mut self, id: &ObjectId, view: View, now: Instant) -> Option<Event> {
        let tracked = self.entry(id, now);
        let before = tracked.view.replace(view.clone());
        if before.as_ref() != Some(&view) {
            tracked.steady_since = now;
        }
        let was_good = before.as_ref().is_some_and(|before| before.is_good);
        if !view.is_good {
            if was_good {
                tracked.since = now;
            }
            return None;
        }
        let shown = tracked.shown.take().is_some();
        let known = tracked.good_content.replace(view.content.clone());
        if was_good && known.as_ref() == Some(&view.content) {
            return None;
        }
        let is_replaced = known.as_ref().is_some_and(|known| *known != view.content);
        let is_first = known.is_none();
        let after = now.saturating_duration_since(tracked.since);
        if !shown && !(view.is_workload && (is_first || is_replaced)) {
            return None;
        }
        let text = match (is_first, is_replaced) {
            (true, _) if view.is_workload => self.url(id),
            (_, true) if view.is_workload => "replaced".to_owned(),
            _ => String::new(),
        };
        Some(self.phase(id, &view, Some(after), text))
    }

    fn phase(&self, id: &ObjectId, view: &View, after: Option<Duration>, text: String) -> Event {
        Event::Phase { name: self.label(id), namespace: id.namespace.clone(), phase: view.phase.clone(), after, text }
    }

    /// Returns the URL of a workload on this machine; empty if it has none yet.
    fn url(&self, id: &ObjectId) -> String {
        let port = self.ports.get(&(id.namespace.clone(), id.name.clone()));
        port.map(|port| format!("http://127.0.0.1:{port}")).unwrap_or_default()
    }

    /// Returns the name of an object as a command takes it.
    pub(crate) fn label(&self, id: &ObjectId) -> String {
        if id.namespace.is_empty() || id.namespace == self.namespace {
            id.to_string()
        } else {
            format!("{id} -n {}", id.namespace)
        }
    }

    /// Returns what to show because time has passed: objects that wait for longer than is usual. `advice` is added to it.
    pub(crate) fn tick(&mut self, now: Instant, advice: impl Fn(&ObjectId) -> Option<String>) -> Vec<Event> {
        let mut late = Vec::new();
        for (id, tracked) in &mut self.objects {
            let Some(view) = tracked.view.as_ref().filter(|view| !view.is_good) else { continue };
            let is_late = now.saturating_duration_since(tracked.steady_since) >= view.patience();
            if is_late && tracked.shown.as_ref() != Some(&view.sentence) {
                tracked.shown = Some(view.sentence.clone());
                late.push((id.clone(), view.clone()));
            }
        }
        let event = |(id, view): (ObjectId, View)| {
            let text = match advice(&id) {
                Some(advice) => format!("{} {advice}", view.sentence),
                None => view.sentence.clone(),
            };
            self.phase(&id, &view, None, text)
        };
        late.into_iter().map(event).collect()
    }

    /// Reports whether each object of a file is as it should be.
    pub(crate) fn is_ready(&self) -> bool {
        self.expected.iter().all(|id| self.is_good(id))
    }

    fn is_good(&self, id: &ObjectId) -> bool {
        let view = self.objects.get(id).and_then(|tracked| tracked.view.as_ref());
        view.is_some_and(|view| view.is_good)
    }

    /// Returns the objects that are not as they should be, if all others are and the user knows of each of these; `None` also
    /// while there is nothing because all was refused.
    pub(crate) fn settled(&self) -> Option<Vec<String>> {
        if !self.refused.is_empty() && self.expected.iter().all(|id| self.refused.contains(id) && !self.is_good(id)) {
            return None;
        }
        let mut except = Vec::new();
        for id in self.expected.iter().filter(|id| !self.is_good(id)) {
            let is_told = self.objects.get(id).is_some_and(|tracked| tracked.shown.is_some());
            if !is_told && !self.refused.contains(id) {
                return None;
            }
            except.push(self.label(id));
        }
        Some(except)
    }

    /// Returns the sentences on the objects of files that are not as they should be.
    pub(crate) fn unready(&self) -> Vec<(ObjectId, String)> {
        let sentence = |id: &ObjectId| {
            let view = self.objects.get(id).and_then(|tracked| tracked.view.as_ref());
            view.map_or_else(|| format!("{} is not there.", self.label(id)), |view| view.sentence.clone())
        };
        self.expected.iter().filter(|id| !self.is_good(id)).map(|id| (id.clone(), sentence(id))).collect()
    }

    /// Returns the command with which to go on; a shell runs this program by the words `recif`.
    pub(crate) fn next_command(&self, recif: &str) -> String {
        let mut agents = self.expected.iter().filter(|id| id.kind == "Agent");
        let first = agents.clone().next();
        match agents.find(|id| self.is_good(id)).or(first) {
            Some(id) if self.is_good(id) => format!("{recif} chat {}", self.label(id)),
            Some(id) => format!("{recif} why {}", self.label(id)),
            None if self.expected.is_empty() => String::new(),
            None => format!("{recif} get"),
        }
    }
}

/// Reports whether the state of an object is followed.
fn is_tracked(id: &ObjectId) -> bool {
    kind_of(id).is_some() || (id.api_version == DEPLOYMENT.0 && id.kind == DEPLOYMENT.1)
}

/// Returns the kind of an object of ours.
fn kind_of(id: &ObjectId) -> Option<&'static ApiKind> {
    crds::KINDS.iter().find(|kind| kind.name == id.kind && kind.api_version() == id.api_version)
}

#[cfg(test)]
mod tests;
