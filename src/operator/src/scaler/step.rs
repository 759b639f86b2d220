//! Scale-down: selects the Pods to delete, and the moment at which the Deployment is lowered.
//!
//! The cluster selects by the deletion cost of each Pod. So the Pods with the least in flight are marked first, and the number is lowered
//! only when the marks are seen. A mark of a step that is not taken is removed: it would select the wrong Pod later.

use std::sync::Arc;

use actions::ports::{CachedChild, WorkloadPod};

/// Deletion cost of a Pod that is to be deleted; no other client would write this number.
pub(super) const MARK: i32 = -2_000_000_000;

/// Next step of a scale-down.
#[derive(Debug, PartialEq)]
pub(super) enum ScaleDownStep {
    /// Mark these Pods.
    Mark(Vec<Arc<WorkloadPod>>),
    /// Lower `replicas`.
    LowerReplicas,
}

/// Prepares a scale-down of these Pods to `target`. `in_flight` returns a Pod's requests when it was last queried, by uid.
pub(super) fn prepare(pods: &[Arc<WorkloadPod>], target: i32, in_flight: impl Fn(&str) -> u32) -> ScaleDownStep {
    let target = usize::try_from(target).unwrap_or_default();
    let live = || pods.iter().filter(|pod| !pod.terminating);
    let surplus = live().count().saturating_sub(target);
    // Pods that are not ready are deleted first of all, whatever their cost.
    let unready = live().filter(|pod| !pod.ready).count();
    let marked = live().filter(|pod| pod.ready && is_marked(pod)).count();
    let missing = surplus.saturating_sub(unready + marked);
    if target == 0 || missing == 0 {
        return ScaleDownStep::LowerReplicas;
    }
    let mut free: Vec<_> = live().filter(|pod| pod.ready && !is_marked(pod)).cloned().collect();
    free.sort_by_key(|pod| in_flight(&pod.uid));
    free.truncate(missing);
    ScaleDownStep::Mark(free)
}

/// Returns the marks to be removed while no step is being taken. Pods beyond the desired number are being deleted.
pub(super) fn stale_marks(pods: &[Arc<WorkloadPod>], desired: i32) -> Vec<Arc<WorkloadPod>> {
    let live = pods.iter().filter(|pod| !pod.terminating);
    if live.clone().count() > usize::try_from(desired).unwrap_or_default() {
        return Vec::new();
    }
    live.filter(|pod| is_marked(pod)).cloned().collect()
}

/// Reports whether the Deployment has settled, so that the effect of the last step is known.
pub(super) fn is_settled(deployment: &CachedChild) -> bool {
    let Some(state) = &deployment.deployment else { return false };
    state.observed_generation >= deployment.generation
        && state.replicas <= state.desired
        && state.updated == state.replicas
}

fn is_marked(pod: &WorkloadPod) -> bool {
    pod.deletion_cost == Some(MARK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scaler::testing::pod;

    fn names(step: ScaleDownStep) -> Vec<String> {
        match step {
            ScaleDownStep::Mark(pods) => pods.iter().map(|pod| pod.name.clone()).collect(),
            ScaleDownStep::LowerReplicas => vec!["take".to_owned()],
        }
    }

    fn fleet(changes: &[fn(&mut WorkloadPod)]) -> Vec<Arc<WorkloadPod>> {
        let pods = changes.iter().enumerate().map(|(at, change)| {
            let mut pod = pod(&format!("p{at}"), [127, 0, 0, 1]);
            change(&mut pod);
            Arc::new(pod)
        });
        pods.collect()
    }

    const PLAIN: fn(&mut WorkloadPod) = |_| {};
    const MARKED: fn(&mut WorkloadPod) = |pod| pod.deletion_cost = Some(MARK);
    const UNREADY: fn(&mut WorkloadPod) = |pod| pod.ready = false;
    const ENDING: fn(&mut WorkloadPod) = |pod| pod.terminating = true;

    const ENDING_MARKED: fn(&mut WorkloadPod) = |pod| {
        pod.terminating = true;
        pod.deletion_cost = Some(MARK);
    };
    const UNREADY_MARKED: fn(&mut WorkloadPod) = |pod| {
        pod.ready = false;
        pod.deletion_cost = Some(MARK);
    };
    const THEIRS: fn(&mut WorkloadPod) = |pod| pod.deletion_cost = Some(7);

    /// Returns fewer requests in flight for later Pods.
    fn load(uid: &str) -> u32 {
        9 - uid[1..].parse::<u32>().unwrap()
    }

    #[test]
    fn the_least_busy_are_marked_then_the_step_is_taken() {
        let step = |pods: &[fn(&mut WorkloadPod)], target| names(prepare(&fleet(pods), target, load));
        assert_eq!(step(&[PLAIN, PLAIN, PLAIN, PLAIN], 2), ["p3", "p2"]);
        assert_eq!(step(&[PLAIN, MARKED, PLAIN, PLAIN], 2), ["p3"], "the Pod that is marked already goes");
        assert_eq!(step(&[PLAIN, MARKED, PLAIN, MARKED], 2), ["take"]);
        assert_eq!(step(&[PLAIN, UNREADY, PLAIN, PLAIN], 2), ["p3"], "one that is not ready goes unasked");
        assert_eq!(step(&[PLAIN, ENDING, PLAIN, PLAIN], 2), ["p3"]);
        assert_eq!(step(&[PLAIN, PLAIN, PLAIN, MARKED], 2), ["p2"], "not the one that is marked");
        assert_eq!(step(&[PLAIN, PLAIN, PLAIN, UNREADY], 2), ["p2"], "nor one that goes anyway");
        assert_eq!(step(&[PLAIN, PLAIN, PLAIN, UNREADY_MARKED], 2), ["p2"], "which counts once");
        assert_eq!(step(&[PLAIN, PLAIN], 0), ["take"], "all go");
        assert_eq!(step(&[PLAIN, PLAIN], 2), ["take"]);
    }

    #[test]
    fn marks_are_taken_back_unless_their_pods_are_on_their_way_out() {
        assert_eq!(stale_marks(&fleet(&[PLAIN, MARKED, PLAIN]), 3).len(), 1);
        assert_eq!(stale_marks(&fleet(&[PLAIN, MARKED, PLAIN]), 2).len(), 0, "the Deployment has yet to delete it");
        assert_eq!(stale_marks(&fleet(&[PLAIN, ENDING_MARKED, PLAIN]), 2).len(), 0);
        assert_eq!(stale_marks(&fleet(&[THEIRS]), 1).len(), 0, "not ours");
    }
}
