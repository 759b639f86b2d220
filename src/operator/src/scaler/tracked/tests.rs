use std::net::Ipv4Addr;

use actions::ports::{DeploymentState, ReplicasManagers};

use super::*;
use crate::scaler::testing::{self, pod};

const SECOND: Duration = Duration::from_secs(1);

/// Gateways without any waiting request.
const QUIET: GatewayState = GatewayState {
    unmet: UnmetDemand { waiting: 0.0, refused: 0.0, halted: false },
    all_respond: true,
    no_gateway_known: false,
};

fn deployment(desired: i32, by: ReplicasManagers) -> Option<Arc<CachedChild>> {
    Some(Arc::new(testing::deployment(DeploymentState {
        desired,
        replicas: desired,
        updated: desired,
        replicas_managers: by,
        observed_generation: 1,
        ..DeploymentState::default()
    })))
}

/// Returns a workload with so many Pods, whose `replicas` the scaler owns.
fn seen(desired: i32, min: i32) -> WorkloadView {
    let by = ReplicasManagers { scaler: true, ..ReplicasManagers::default() };
    WorkloadView {
        uid: "u".into(),
        scaling: Some(Scaling { min_replicas: min, ..Scaling::default() }),
        stopped: false,
        failed: false,
        deployment: deployment(desired, by),
        pods: (0..desired).map(|at| Arc::new(pod(&format!("p{at}"), Ipv4Addr::LOCALHOST))).collect(),
        tool: None,
        status: ScalingStatus { desired: Some(desired), active: Some(active(true, "FollowsLoad", "x")) },
    }
}

/// Evaluates a round at this second, in which each Pod reports a constant number of requests in flight; `None`: it is
/// silent.
fn round(
    tracked: &mut TrackedWorkload,
    seen: &WorkloadView,
    gateways: GatewayState,
    second: u32,
    loads: &[Option<u64>],
) -> PlannedWrites {
    let now = SECOND * second;
    for (pod, _) in tracked.begin(seen) {
        let at: usize = pod.uid[1..].parse().unwrap();
        let uptime_ms = u64::from(second) * 1000;
        let Some(load) = loads[at] else {
            tracked.record_silence(&pod.uid, format!("attempt {second}"));
            continue;
        };
        let sample = PodSample {
            instance: pod.uid.clone(),
            uptime_ms,
            inflight: u32::try_from(load).unwrap(),
            busy_ms: load * uptime_ms,
            completed: 0,
            refused: 0,
        };
        tracked.record_response(&pod.uid, sample, None);
    }
    tracked.evaluate(seen, gateways, now)
}

#[test]
fn more_load_is_a_number_at_once_and_the_same_again_is_no_write() {
    let mut tracked = TrackedWorkload::new(Duration::ZERO);
    round(&mut tracked, &seen(1, 1), QUIET, 1, &[Some(20)]);
    let planned = round(&mut tracked, &seen(1, 1), QUIET, 2, &[Some(20)]);
    assert_eq!((planned.replicas, planned.direction), (Some(Some(3)), Some(Direction::Up)));
    assert_eq!(planned.status.unwrap().desired, Some(3));
    let mut there = seen(3, 1);
    there.status.active = tracked.scaling_condition(&there, None, SECOND);
    let loads = [Some(20), Some(0), Some(0)];
    assert!(round(&mut tracked, &there, QUIET, 3, &loads).is_empty());
    assert!(tracked.active);
}

#[test]
fn who_waits_in_a_gateway_wakes_what_sleeps() {
    let mut tracked = TrackedWorkload::new(Duration::ZERO);
    assert_eq!(round(&mut tracked, &seen(0, 0), QUIET, 400, &[]).replicas, None);
    let waits = GatewayState { unmet: UnmetDemand { waiting: 0.1, ..UnmetDemand::default() }, ..QUIET };
    assert_eq!(round(&mut tracked, &seen(0, 0), waits, 401, &[]).replicas, Some(Some(1)));
}

#[test]
fn the_last_pod_goes_after_long_without_calls_when_every_gateway_says_so() {
    let mut tracked = TrackedWorkload::new(Duration::ZERO);
    let silent = GatewayState { all_respond: false, ..QUIET };
    let mut at = |second, gateways| round(&mut tracked, &seen(1, 0), gateways, second, &[Some(0)]).replicas;
    assert_eq!(at(240, QUIET), None);
    assert_eq!(at(300, silent), None);
    assert_eq!(at(301, QUIET), Some(Some(0)));
}

#[test]
fn the_last_pod_stays_while_a_tool_refers_to_it_or_no_gateway_is_known_and_the_condition_says_why() {
    let mut tracked = TrackedWorkload::new(Duration::ZERO);
    let in_use = WorkloadView { tool: Some("ask".into()), ..seen(1, 0) };
    let reported = round(&mut tracked, &in_use, QUIET, 1000, &[Some(0)]).status.unwrap().active.unwrap();
    let text = "one Pod stays: Tool/ask refers to it, past the gateway";
    assert_eq!((reported.status, reported.reason.as_str(), reported.message.as_str()), (true, "InUse", text));
    let no_gateway = GatewayState { all_respond: false, no_gateway_known: true, ..QUIET };
    let reported = round(&mut tracked, &seen(1, 0), no_gateway, 2000, &[Some(0)]).status.unwrap().active.unwrap();
    assert_eq!(reported.reason, "NoGateway");
    assert_eq!(round(&mut tracked, &seen(0, 0), no_gateway, 3000, &[]).replicas, Some(Some(1)), "and comes back");
    let other = WorkloadView { tool: Some("ask".into()), ..seen(1, 1) };
    let reported = round(&mut tracked, &other, QUIET, 4000, &[Some(0)]).status;
    assert_eq!(reported.unwrap().active.unwrap().reason, "FollowsLoad", "it stays anyway");
}

#[test]
fn a_silent_pod_keeps_all_pods_and_is_named_when_it_was_silent_for_ten_seconds() {
    let mut tracked = TrackedWorkload::new(Duration::ZERO);
    let there = seen(3, 1);
    let loads = [Some(0), None, Some(0)];
    let first = round(&mut tracked, &there, QUIET, 100, &loads);
    assert_eq!((&first.status, first.is_empty()), (&None, true), "for a moment that is no news");
    let planned = round(&mut tracked, &there, QUIET, 110, &loads);
    assert!(planned.replicas.is_none() && planned.costs.is_empty());
    let reported = planned.status.unwrap();
    let active = reported.active.clone().unwrap();
    assert_eq!((active.status, active.reason.as_str()), (false, "PodUnreachable"));
    assert!(active.message.contains("Pod p1") && active.message.contains("attempt 100"), "{}", active.message);
    let there = WorkloadView { status: reported, ..there };
    assert!(round(&mut tracked, &there, QUIET, 130, &loads).is_empty(), "the same words");
    assert_eq!(tracked.unreachable(SECOND * 130).count(), 1);
    let again = round(&mut tracked, &there, QUIET, 131, &[Some(0), Some(0), Some(0)]);
    assert_eq!(again.status.unwrap().active.unwrap().reason, "FollowsLoad");
}

#[test]
fn a_new_leader_changes_nothing_about_a_pod_that_was_silent_before() {
    let mut tracked = TrackedWorkload::new(Duration::ZERO);
    let mut there = seen(1, 1);
    there.status.active = Some(active(false, "PodUnreachable", "as the last one said"));
    assert!(round(&mut tracked, &there, QUIET, 1, &[None]).is_empty());
}

#[test]
fn pods_are_marked_before_the_number_is_lowered_and_marks_are_taken_back() {
    let mut tracked = TrackedWorkload::new(Duration::ZERO);
    let mut there = seen(3, 1);
    there.status.active = tracked.scaling_condition(&there, None, SECOND);
    let loads = [Some(3), Some(0), Some(1)];
    round(&mut tracked, &there, QUIET, 99, &loads);
    let planned = round(&mut tracked, &there, QUIET, 100, &loads);
    let marked: Vec<_> = planned.costs.iter().map(|(pod, cost)| (pod.name.as_str(), *cost)).collect();
    assert_eq!((planned.replicas, marked), (None, vec![("p1", Some(MARK))]));
    let mut marked = there.clone();
    marked.pods[1] = Arc::new(WorkloadPod { deletion_cost: Some(MARK), ..pod("p1", Ipv4Addr::LOCALHOST) });
    let back = round(&mut tracked, &marked, QUIET, 101, &[Some(20), Some(20), Some(0)]);
    assert_eq!(back.replicas, Some(Some(10)));
    assert_eq!(back.costs.iter().map(|(pod, cost)| (pod.name.as_str(), *cost)).collect::<Vec<_>>(), [("p1", None)]);
    let planned = round(&mut tracked, &marked, QUIET, 200, &loads);
    assert_eq!((planned.replicas, planned.costs.len(), planned.direction), (Some(Some(2)), 0, Some(Direction::Down)));
}

#[test]
fn no_pod_goes_before_the_deployment_has_settled() {
    let mut tracked = TrackedWorkload::new(Duration::ZERO);
    let mut there = seen(3, 1);
    there.status.active = tracked.scaling_condition(&there, None, SECOND);
    let mut moving = there.deployment.as_deref().cloned().unwrap();
    moving.deployment.as_mut().unwrap().updated = 1;
    there.deployment = Some(Arc::new(moving));
    assert!(round(&mut tracked, &there, QUIET, 100, &[Some(0), Some(0), Some(0)]).is_empty());
}

#[test]
fn the_number_is_taken_over_and_given_back_whatever_the_load() {
    let operator = ReplicasManagers { operator: true, ..ReplicasManagers::default() };
    let both = ReplicasManagers { scaler: true, ..operator.clone() };
    let mut tracked = TrackedWorkload::new(Duration::ZERO);
    let on = WorkloadView { deployment: deployment(5, operator), status: ScalingStatus::default(), ..seen(5, 1) };
    let planned = tracked.handover(&on);
    assert_eq!((planned.replicas, planned.status.unwrap().desired), (Some(Some(5)), Some(5)));
    let loaded = [Some(20); 5];
    let waits = WorkloadView { deployment: deployment(5, both.clone()), ..seen(5, 1) };
    round(&mut tracked, &waits, QUIET, 1, &loaded);
    assert_eq!(round(&mut tracked, &waits, QUIET, 2, &loaded).replicas, None, "not before it has it alone");
    let off = WorkloadView { deployment: deployment(5, both), scaling: None, ..seen(5, 1) };
    let planned = tracked.handover(&off);
    assert_eq!((planned.replicas, planned.status), (Some(None), None));
}

#[test]
fn a_stopped_workload_is_not_scaled_and_says_so() {
    let mut tracked = TrackedWorkload::new(Duration::ZERO);
    let stopped = WorkloadView { stopped: true, ..seen(0, 1) };
    let planned = round(&mut tracked, &stopped, QUIET, 100, &[]);
    let reported = planned.status.unwrap();
    assert_eq!((planned.replicas, reported.desired), (None, Some(0)));
    assert_eq!(reported.active.clone().unwrap().reason, "Stopped");
    assert!(round(&mut tracked, &WorkloadView { status: reported, ..stopped }, QUIET, 101, &[]).is_empty());
}

/// Returns a workload that may scale to zero after 5 minutes, is Failed, and whose Pods are not ready.
fn failed(desired: i32) -> WorkloadView {
    let mut there = WorkloadView { failed: true, ..seen(desired, 0) };
    for pod in &mut there.pods {
        *pod = Arc::new(WorkloadPod { ready: false, ..pod.as_ref().clone() });
    }
    there
}

#[test]
fn a_failed_workload_keeps_one_pod_for_half_an_hour_so_that_it_can_become_ready() {
    let mut tracked = TrackedWorkload::new(Duration::ZERO);
    round(&mut tracked, &seen(1, 0), QUIET, 1, &[Some(0)]);
    let reported = round(&mut tracked, &failed(1), QUIET, 301, &[]).status.unwrap().active.unwrap();
    assert_eq!((reported.status, reported.reason.as_str()), (true, "Failed"));
    for second in [302, 360, 660, 2100] {
        assert_eq!(round(&mut tracked, &failed(1), QUIET, second, &[]).replicas, None, "{second}");
    }
    assert_eq!(round(&mut tracked, &failed(1), QUIET, 2101, &[]).replicas, Some(Some(0)));
    assert_eq!(round(&mut tracked, &failed(0), QUIET, 2102, &[]).replicas, None, "and stays");
    assert_eq!(
        round(&mut TrackedWorkload::new(Duration::ZERO), &failed(0), QUIET, 1, &[]).replicas,
        None,
        "a new leader too"
    );
}

#[test]
fn a_request_refused_for_a_failure_is_worth_one_pod_however_many_they_are_and_the_half_hour_begins_anew() {
    let mut tracked = TrackedWorkload::new(Duration::ZERO);
    let called = GatewayState { unmet: UnmetDemand { halted: true, ..UnmetDemand::default() }, ..QUIET };
    round(&mut tracked, &failed(0), QUIET, 7000, &[]);
    assert_eq!(round(&mut tracked, &failed(0), called, 7200, &[]).replicas, Some(Some(1)));
    for second in 7201..7400 {
        assert_eq!(round(&mut tracked, &failed(1), called, second, &[]).replicas, None, "never more than one");
    }
    assert_eq!(round(&mut tracked, &failed(1), QUIET, 7399 + 1799, &[]).replicas, None);
    assert_eq!(round(&mut tracked, &failed(1), QUIET, 7399 + 1800, &[]).replicas, Some(Some(0)));
    let two = WorkloadView { failed: true, ..seen(2, 0) };
    let mut tracked = TrackedWorkload::new(Duration::ZERO);
    round(&mut tracked, &two, QUIET, 1, &[Some(20), Some(4)]);
    let busy = round(&mut tracked, &two, called, 2, &[Some(20), Some(4)]).replicas;
    assert_eq!(busy, Some(Some(3)), "Pods of a failed update go on to follow the load");
}

#[test]
fn a_workload_that_recovered_scales_to_zero_as_ever() {
    let mut tracked = TrackedWorkload::new(Duration::ZERO);
    round(&mut tracked, &failed(1), QUIET, 1, &[]);
    assert_eq!(round(&mut tracked, &seen(1, 0), QUIET, 360, &[Some(0)]).replicas, Some(Some(0)));
}

#[test]
fn a_pod_that_was_ready_lately_and_is_overloaded_keeps_all() {
    let mut tracked = TrackedWorkload::new(Duration::ZERO);
    let there = seen(3, 1);
    let loads = [Some(9), Some(9), Some(6)];
    round(&mut tracked, &there, QUIET, 99, &loads);
    round(&mut tracked, &there, QUIET, 100, &loads);
    let mut overloaded = there.clone();
    for pod in &mut overloaded.pods[1..] {
        *pod = Arc::new(WorkloadPod { ready: false, ..pod.as_ref().clone() });
    }
    for second in [101, 200, 399] {
        let planned = round(&mut tracked, &overloaded, QUIET, second, &[Some(0), None, None]);
        assert_eq!((planned.replicas, planned.costs.len()), (None, 0), "{second}");
    }
    let planned = round(&mut tracked, &overloaded, QUIET, 401, &[Some(0), None, None]);
    assert_eq!(planned.replicas, Some(Some(2)), "for five minutes");
    let mut ending = there.clone();
    for pod in &mut ending.pods[1..] {
        *pod = Arc::new(WorkloadPod { ready: false, terminating: true, ..pod.as_ref().clone() });
    }
    let mut tracked = TrackedWorkload::new(Duration::ZERO);
    round(&mut tracked, &there, QUIET, 100, &loads);
    let planned = round(&mut tracked, &ending, QUIET, 200, &[Some(0), None, None]);
    assert_eq!(planned.replicas, Some(Some(2)), "one that is being deleted is none");
}

#[test]
fn a_pod_that_has_just_begun_and_may_serve_already_keeps_all_for_a_minute() {
    let unready = |there: &mut WorkloadView| {
        for pod in &mut there.pods {
            *pod = Arc::new(WorkloadPod { ready: false, ..pod.as_ref().clone() });
        }
    };
    let mut starting = seen(1, 0);
    starting.scaling.as_mut().unwrap().scale_to_zero_after = "5s".into();
    starting.scaling.as_mut().unwrap().stable_window = "5s".into();
    unready(&mut starting);
    let mut tracked = TrackedWorkload::new(Duration::ZERO);
    for second in [100, 130, 159] {
        assert_eq!(round(&mut tracked, &starting, QUIET, second, &[]).replicas, None, "{second}");
    }
    assert_eq!(round(&mut tracked, &starting, QUIET, 164, &[]).replicas, Some(Some(0)), "it never became ready");
}

#[test]
fn a_round_is_over_with_the_last_answer_and_not_before() {
    let sample = || PodSample { instance: "i".into(), uptime_ms: 1, inflight: 0, busy_ms: 0, completed: 0, refused: 0 };
    let mut tracked = TrackedWorkload::new(Duration::ZERO);
    tracked.begin(&seen(3, 1));
    assert!(!tracked.record_response("p0", sample(), None));
    assert!(!tracked.record_silence("p1", "refused".to_owned()));
    assert!(tracked.record_response("p2", sample(), None));
    tracked.begin(&seen(1, 1));
    assert!(tracked.record_silence("p0", "refused".to_owned()));
}

#[test]
fn a_silent_pod_is_told_of_when_it_is_the_only_one_and_no_longer_when_it_is_gone() {
    let mut tracked = TrackedWorkload::new(Duration::ZERO);
    round(&mut tracked, &seen(1, 1), QUIET, 100, &[None]);
    let reported = round(&mut tracked, &seen(1, 1), QUIET, 110, &[None]).status.unwrap();
    assert_eq!(reported.active.unwrap().reason, "PodUnreachable");
    let mut tracked = TrackedWorkload::new(Duration::ZERO);
    round(&mut tracked, &seen(2, 1), QUIET, 100, &[Some(0), None]);
    let reported = round(&mut tracked, &seen(2, 1), QUIET, 110, &[Some(0), None]).status.unwrap();
    assert_eq!(reported.active.as_ref().unwrap().reason, "PodUnreachable");
    let alone = WorkloadView { status: reported, ..seen(1, 1) };
    let reported = round(&mut tracked, &alone, QUIET, 111, &[Some(0)]).status.unwrap();
    assert_eq!(reported.active.unwrap().reason, "FollowsLoad");
    assert_eq!(tracked.unreachable(SECOND * 130).count(), 0);
}

#[test]
fn only_a_failure_of_what_may_sleep_is_said_to_keep_its_pod() {
    let text = |there: WorkloadView| {
        let there = WorkloadView { status: ScalingStatus::default(), ..there };
        let planned = round(&mut TrackedWorkload::new(Duration::ZERO), &there, QUIET, 1, &[Some(0)]);
        planned.status.unwrap().active.unwrap().reason
    };
    assert_eq!(text(seen(1, 0)), "FollowsLoad");
    assert_eq!(text(WorkloadView { failed: true, ..seen(1, 1) }), "FollowsLoad");
    assert_eq!(text(WorkloadView { failed: true, ..seen(1, 0) }), "Failed");
}

#[test]
fn the_number_of_a_stopped_workload_is_left_to_the_operator() {
    let mut tracked = TrackedWorkload::new(Duration::ZERO);
    let stopped = |by| WorkloadView { stopped: true, deployment: deployment(2, by), ..seen(2, 1) };
    assert_eq!(tracked.handover(&stopped(ReplicasManagers::default())).replicas, None);
    let both = ReplicasManagers { replicas_apply: true, scaler: true, ..ReplicasManagers::default() };
    assert_eq!(tracked.handover(&stopped(both)).replicas, Some(None));
}

#[test]
fn only_what_has_something_to_do_is_asked_in_every_round() {
    let mut tracked = TrackedWorkload::new(Duration::ZERO);
    let mut there = seen(3, 1);
    there.status.active = tracked.scaling_condition(&there, None, SECOND);
    let idle = [Some(0), Some(0), Some(0)];
    assert!(round(&mut tracked, &there, QUIET, 1, &idle).is_empty());
    assert!(!tracked.active);
    let planned = round(&mut tracked, &there, QUIET, 100, &idle);
    assert_eq!((planned.costs.len(), tracked.active), (1, true), "a step down has begun");
}
