//! Index of the Pods by workload.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use actions::ports::WorkloadPod;
use meta::Key;

use crate::Change;

/// Returns the label that names the workload of this kind, such as `recif.dev/agent`.
pub fn workload_label(kind: &str) -> String {
    format!("recif.dev/{}", kind.to_lowercase())
}

/// Index of the Pods by workload, in the order of their names.
///
/// Invariant: a workload without Pods has no entry.
#[derive(Debug, Default)]
pub struct PodIndex(Mutex<HashMap<WorkloadKey, BTreeMap<String, Arc<WorkloadPod>>>>);

/// Label of a workload's kind, and the workload's key.
type WorkloadKey = (String, Key);

impl PodIndex {
    /// Updates the index by a change of a Pod.
    pub fn follow(&self, change: &Change<WorkloadPod>) {
        let mut index = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for old in change.old.iter().flat_map(|pod| workloads(&change.key, pod)) {
            if let Some(pods) = index.get_mut(&old) {
                pods.remove(&change.key.name);
                if pods.is_empty() {
                    index.remove(&old);
                }
            }
        }
        if let Some(pod) = &change.new {
            for workload in workloads(&change.key, pod) {
                index.entry(workload).or_default().insert(change.key.name.clone(), pod.clone());
            }
        }
    }

    /// Returns the Pods of one workload.
    pub fn of(&self, kind: &str, key: Key) -> Vec<Arc<WorkloadPod>> {
        let index = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        index.get(&(workload_label(kind), key)).map(|pods| pods.values().cloned().collect()).unwrap_or_default()
    }
}

fn workloads(key: &Key, pod: &WorkloadPod) -> Vec<WorkloadKey> {
    let ours = pod.labels.iter().filter(|(label, _)| label.starts_with("recif.dev/"));
    ours.map(|(label, name)| (label.clone(), Key::new(&key.namespace, name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ChangeSource;

    fn pod(name: &str, agent: &str) -> Arc<WorkloadPod> {
        Arc::new(WorkloadPod {
            name: name.into(),
            uid: name.into(),
            resource_version: 1,
            labels: BTreeMap::from([("recif.dev/agent".into(), agent.into())]),
            ready: true,
            terminating: false,
            ip: None,
            port: 8888,
            deletion_cost: None,
            problem: None,
        })
    }

    fn change(name: &str, old: Option<Arc<WorkloadPod>>, new: Option<Arc<WorkloadPod>>) -> Change<WorkloadPod> {
        Change { key: Key::new("ns", name), old, new, source: ChangeSource::Watch }
    }

    #[test]
    fn pods_are_found_by_their_workload_until_they_are_gone() {
        let index = PodIndex::default();
        let names =
            |agent: &str| index.of("Agent", Key::new("ns", agent)).iter().map(|p| p.name.clone()).collect::<Vec<_>>();
        index.follow(&change("b", None, Some(pod("b", "x"))));
        index.follow(&change("a", None, Some(pod("a", "x"))));
        assert_eq!(names("x"), ["a", "b"]);
        index.follow(&change("a", Some(pod("a", "x")), Some(pod("a", "y"))));
        assert_eq!((names("x"), names("y")), (vec!["b".to_owned()], vec!["a".to_owned()]));
        index.follow(&change("b", Some(pod("b", "x")), None));
        assert!(index.0.lock().unwrap().len() == 1, "nothing is kept of a workload without Pods");
    }
}
