//! Simulates the cluster's own controllers: Deployments, the garbage collector, namespaces. One call does everything that is due.

use std::time::Duration;

use crds::digest::digest;
use machine::Clock;
use serde_json::{Value, json};

use super::{Cascade, Health, Obj, ObjectId, Store};

/// Time from the creation of a Pod until it is ready.
const STARTUP: Duration = Duration::from_secs(3);
/// `progressDeadlineSeconds`.
const DEADLINE: Duration = Duration::from_secs(600);

impl Store {
    /// Runs every controller until nothing is left to do.
    pub(super) fn controllers(&mut self) {
        if self.rested.is_some_and(|(rv, until)| rv == self.last_rv() && self.clock.elapsed() < until) {
            return;
        }
        loop {
            let before = self.last_rv();
            self.namespaces();
            if !self.lazy && std::mem::take(&mut self.garbage) {
                self.collect_garbage();
                self.end_pods();
            }
            for id in self.busy.clone() {
                let before = self.last_rv();
                self.roll_out(&id);
                if self.last_rv() == before && self.is_at_rest(&id) {
                    self.busy.remove(&id);
                }
            }
            if self.last_rv() == before {
                self.rested = Some((before, self.next_at().unwrap_or(Duration::MAX)));
                return;
            }
        }
    }

    /// Returns the time at which a controller has work without a change of an object.
    pub(super) fn next_at(&self) -> Option<Duration> {
        let now = self.clock.elapsed();
        let pods = self.busy.iter().flat_map(|id| self.pods(id));
        let pods = pods.map(|(_, pod)| since(pod) + if pod.is_deleting() { self.grace } else { STARTUP });
        let deadlines = self.progressed.values().map(|at| *at + DEADLINE);
        pods.chain(deadlines).filter(|at| *at > now).min()
    }

    /// Reports whether the Deployment's controller can only wait for a change.
    fn is_at_rest(&self, id: &ObjectId) -> bool {
        let complete = self.at(id, "/status/complete") == json!(true);
        let pods = self.pods(id);
        let ready = pods.iter().all(|(_, pod)| pod.body["status"]["ready"] == json!(true) && !pod.is_deleting());
        self.get(id).map_or(pods.is_empty(), |_| complete && ready)
    }

    /// Returns the Pods of a Deployment, or those that outlive it.
    fn pods(&self, id: &ObjectId) -> Vec<(&ObjectId, &Obj)> {
        let first = ObjectId { kind: "Pod", namespace: id.namespace.clone(), name: format!("{}-", id.name) };
        let next = self.objs.range(first.clone()..);
        next.take_while(|(pod, _)| pod.kind == "Pod" && pod.name.starts_with(&first.name)).collect()
    }

    fn namespaces(&mut self) {
        if !self.has_terminating() {
            return;
        }
        let has_come_to = |id: &ObjectId| self.is_terminating(&id.namespace) && !self.not_yet_deleted.contains(id.kind);
        for (id, _) in self.all(|id, obj| has_come_to(id) && !obj.is_deleting()) {
            self.delete(&id, Cascade::Background);
        }
    }

    fn collect_garbage(&mut self) {
        let uids = self.uids.clone();
        for (id, mut obj) in self.all(|_, obj| !obj.owners().is_empty() || !obj.finalizers().is_empty()) {
            let owners = obj.owners();
            let alive = |owner: &Value| owner["uid"].as_str().is_some_and(|uid| uids.contains(uid));
            if !owners.is_empty() && !owners.iter().any(alive) && !obj.is_deleting() {
                self.delete(&id, Cascade::Background);
                continue;
            }
            let finalizers = obj.finalizers();
            let without = |gone: &str| finalizers.iter().filter(|found| *found != gone).cloned().collect::<Vec<_>>();
            let dependents = || self.all(|_, other| is_owned_by(other, obj.uid()));
            if finalizers.iter().any(|found| found == "orphan") {
                for (id, mut other) in dependents() {
                    other.metadata().remove("ownerReferences");
                    other.owned.remove("/metadata/ownerReferences");
                    self.put(&id, other);
                }
                obj.set_finalizers(&without("orphan"));
                self.put(&id, obj);
            } else if finalizers.iter().any(|found| found == "foregroundDeletion") {
                let waiting = dependents();
                for (id, other) in waiting.iter().filter(|(_, other)| !other.is_deleting()) {
                    let foreground = other.owners().iter().any(|owner| owner["blockOwnerDeletion"] == json!(true));
                    self.delete(id, if foreground { Cascade::Foreground } else { Cascade::Background });
                }
                if waiting.is_empty() {
                    obj.set_finalizers(&without("foregroundDeletion"));
                    self.put(&id, obj);
                }
            }
        }
    }

    fn roll_out(&mut self, id: &ObjectId) {
        let Some(deployment) = self.get(id).cloned().filter(|found| !found.is_deleting()) else { return };
        let now = self.clock.elapsed();
        let template = &deployment.body["spec"]["template"];
        let hash = digest(template)[..8].to_owned();
        let desired = usize::try_from(deployment.number("/spec/replicas")).unwrap_or_default();
        let mut pods = self.live_pods(&deployment, id);
        let is_current = |pod: &Obj| pod.text("/metadata/annotations/hash") == hash;
        if self.health == Health::NoReplicaSet && !pods.iter().any(|(_, pod)| is_current(pod)) {
            // As Kubernetes, which writes the observed generation with the first ReplicaSet of a template.
            let mut deployment = deployment;
            deployment.body["status"]["replicaSetFailure"] = json!("replicasets.apps is forbidden: exceeded quota");
            self.put(id, deployment);
            return;
        }
        for (id, pod) in pods.iter_mut().filter(|(_, pod)| is_current(pod)) {
            let ready = self.health == Health::Good && since(pod) + STARTUP <= now;
            pod.problem = if let Health::Bad(trouble) = &self.health { trouble.clone() } else { None };
            pod.body["status"] = json!({ "ready": ready });
            self.put(id, pod.clone());
        }
        let current = pods.iter().filter(|(_, pod)| is_current(pod)).count();
        for _ in current..desired {
            if self.health == Health::Refused {
                break;
            }
            let name = (0..).map(|n| format!("{}-{hash}-{n}", id.name));
            let mut names = name.map(|name| ObjectId { kind: "Pod", namespace: id.namespace.clone(), name });
            let Some(pod) = names.find(|id| self.get(id).is_none()) else { return };
            let owner = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": id.name, "uid": deployment.uid(), "controller": true});
            let labels = template.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!({}));
            let annotations = json!({"hash": hash, "since": now.as_millis().to_string()});
            let metadata = json!({"labels": labels, "annotations": annotations, "ownerReferences": [owner]});
            self.create(&pod, json!({"kind": "Pod", "metadata": metadata, "status": {"ready": false}}));
            self.progressed.insert(id.clone(), now);
        }
        let is_ready = |pod: &Obj| pod.body["status"]["ready"] == json!(true);
        let fresh = pods.iter().filter(|(_, pod)| is_current(pod) && is_ready(pod)).count();
        let surplus: Vec<_> = pods.iter().filter(|(_, pod)| is_current(pod)).skip(desired).collect();
        let old: Vec<_> = pods.iter().filter(|(_, pod)| !is_current(pod) && fresh >= desired).collect();
        for (id, _) in surplus.into_iter().chain(old) {
            self.delete(id, Cascade::Background);
        }
        let left = self.live_pods(&deployment, id);
        let updated = left.iter().filter(|(_, pod)| is_current(pod)).count();
        let ready = left.iter().filter(|(_, pod)| is_ready(pod)).count();
        let complete = updated == desired && ready == desired && left.len() == desired;
        let mut status = json!({
            "observedGeneration": deployment.number("/metadata/generation"),
            "replicas": left.len(), "updated": updated, "ready": ready,
        });
        if self.health == Health::Refused && updated < desired {
            status["replicaFailure"] = json!("pods \"a\" is forbidden: exceeded quota");
        }
        let complete_before = deployment.body.pointer("/status/complete") == Some(&json!(true));
        status["complete"] = json!(complete || (complete_before && deployment.text("/status/hash") == hash));
        status["hash"] = json!(hash);
        // A complete rollout never exceeds the deadline again.
        let going = status["complete"] == json!(false);
        if going && self.progressed.get(id).is_some_and(|at| *at + DEADLINE <= now) {
            status["stalled"] = json!("deadline exceeded");
        }
        if !going {
            self.progressed.remove(id);
        }
        let mut deployment = deployment;
        deployment.body["status"] = status;
        self.put(id, deployment);
    }

    fn end_pods(&mut self) {
        let now = self.clock.elapsed();
        for (id, pod) in self.all(|id, pod| id.kind == "Pod" && pod.is_deleting()) {
            if since(&pod) + self.grace <= now {
                self.remove(&id);
            } else {
                self.garbage = true;
            }
        }
    }

    fn live_pods(&self, deployment: &Obj, id: &ObjectId) -> Vec<(ObjectId, Obj)> {
        let pods =
            self.pods(id).into_iter().filter(|(_, pod)| is_owned_by(pod, deployment.uid()) && !pod.is_deleting());
        pods.map(|(id, pod)| (id.clone(), pod.clone())).collect()
    }

    fn all(&self, which: impl Fn(&ObjectId, &Obj) -> bool) -> Vec<(ObjectId, Obj)> {
        let found = self.objs.iter().filter(|(id, obj)| which(id, obj));
        found.map(|(id, obj)| (id.clone(), obj.clone())).collect()
    }
}

fn is_owned_by(obj: &Obj, uid: &str) -> bool {
    obj.owners().iter().any(|owner| owner["uid"] == json!(uid))
}

fn since(pod: &Obj) -> Duration {
    Duration::from_millis(pod.text("/metadata/annotations/since").parse().unwrap_or_default())
}
