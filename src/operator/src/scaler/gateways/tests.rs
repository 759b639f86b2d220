//! Tests of what gateways report.

use serde_json::{Value, json};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 8081))
}

fn id(name: &str) -> WorkloadId {
    WorkloadId { kind: "Agent", key: Key::new("ns", name) }
}

fn sample(instance: &str, uptime_ms: u64, workloads: Value) -> GatewaySample {
    serde_json::from_value(json!({"instance": instance, "uptimeMs": uptime_ms, "workloads": workloads})).unwrap()
}

fn queue(name: &str, waiting: u32, waiting_ms: u64, refused: u64) -> Value {
    json!({"kind": "Agent", "namespace": "ns", "name": name,
        "waiting": waiting, "waitingMs": waiting_ms, "refused": refused})
}

#[test]
fn the_models_of_all_gateways_are_summed_and_those_of_a_newer_sample_replace_them() {
    let used = json!({"day": 7, "spent": 60});
    let answered =
        |models: Value| json!([{"kind": "Agent", "namespace": "ns", "name": "a", "models": models, "tokens": used}]);
    let mut gateways = Gateways::new(Duration::ZERO);
    gateways.set_addresses(&[address(1), address(2)]);
    let both = answered(json!({"openai/gpt": 1, "stub/echo": 2}));
    gateways.record_sample(address(1), sample("x", 1000, both.clone()), None, SECOND);
    gateways.record_sample(address(2), sample("y", 1000, both), None, SECOND);
    let expected = ModelCounts::from([("openai/gpt".to_owned(), 2), ("stub/echo".to_owned(), 4)]);
    assert_eq!(gateways.models(60 * SECOND), HashMap::from([(id("a"), expected)]));
    assert_eq!(gateways.models(61 * SECOND), HashMap::new(), "none answered within a minute");
    let tokens = ReportedTokens { day: 7, spent: 60, cost: 0, reporting: None };
    assert_eq!(gateways.tokens(60 * SECOND), HashMap::from([(id("a"), tokens)]));
    assert_eq!(gateways.tokens(61 * SECOND), HashMap::new());
    gateways.record_sample(address(1), sample("x", 2000, json!([])), None, SECOND);
    gateways.set_addresses(&[address(1)]);
    assert_eq!((gateways.models(SECOND), gateways.tokens(SECOND)), (HashMap::new(), HashMap::new()));
}

#[test]
fn of_calls_that_wait_the_newest_report_to_any_gateway_counts() {
    let report = |name: &str, at: i64, calls: u64| {
        let pending = json!({"at": at, "calls": calls, "since": 1, "until": 2});
        json!({"kind": "Agent", "namespace": "ns", "name": name, "pending": pending})
    };
    let mut gateways = Gateways::new(Duration::ZERO);
    gateways.set_addresses(&[address(1), address(2)]);
    let first = json!([report("a", 7, 0), report("b", 3, 1), queue("c", 0, 0, 0)]);
    gateways.record_sample(address(1), sample("x", 1000, first), None, SECOND);
    gateways.record_sample(address(2), sample("y", 1000, json!([report("a", 6, 2), report("b", 4, 5)])), None, SECOND);
    let known = |at: i64, calls: u64| PendingCalls { at, calls, since: 1, until: 2 };
    let newest = HashMap::from([(id("a"), known(7, 0)), (id("b"), known(4, 5))]);
    assert_eq!(gateways.pending_calls(60 * SECOND), newest);
    assert_eq!(gateways.pending_calls(61 * SECOND), HashMap::new(), "none answered within a minute");
    gateways.record_sample(address(2), sample("z", 10, json!([])), None, SECOND);
    let left = HashMap::from([(id("a"), known(7, 0)), (id("b"), known(3, 1))]);
    assert_eq!(gateways.pending_calls(SECOND), left, "a gateway that restarted knows nothing");
}

fn one() -> Gateways {
    let mut gateways = Gateways::new(Duration::ZERO);
    gateways.set_addresses(&[address(1)]);
    gateways
}

#[test]
fn rates_are_differences_of_two_answers_of_one_instance() {
    let mut gateways = one();
    let mut hear = |sample| gateways.record_sample(address(1), sample, None, SECOND);
    assert!(hear(sample("i", 9000, json!([queue("a", 0, 700, 50)]))).is_empty());
    let called = hear(sample("i", 11_000, json!([queue("a", 0, 1700, 54), queue("b", 1, 500, 0)])));
    assert_eq!(called.len(), 2);
    assert_eq!(gateways.unmet(&id("a")), UnmetDemand { waiting: 0.5, refused: 2.0, halted: false });
    assert_eq!(gateways.unmet(&id("b")), UnmetDemand { waiting: 0.25, ..UnmetDemand::default() });
    gateways.record_sample(address(1), sample("i", 12_000, json!([queue("a", 0, 1700, 54)])), None, SECOND);
    assert_eq!(gateways.unmet(&id("a")), UnmetDemand::default());
}

#[test]
fn a_restarted_gateway_begins_anew_but_who_waits_in_it_counts() {
    let mut gateways = one();
    gateways.record_sample(address(1), sample("i", 9000, json!([queue("a", 0, 9000, 9)])), None, SECOND);
    gateways.record_sample(address(1), sample("j", 10, json!([queue("a", 2, 10, 1)])), None, SECOND);
    assert_eq!(gateways.unmet(&id("a")), UnmetDemand { waiting: 2.0, ..UnmetDemand::default() });
}

#[test]
fn a_request_refused_for_a_failure_counts_at_any_gateway_until_its_next_answer() {
    let mut gateways = Gateways::new(Duration::ZERO);
    gateways.set_addresses(&[address(1), address(2)]);
    let halted = |number: u64| json!([{"kind": "Agent", "namespace": "ns", "name": "a", "halted": number}]);
    for last in [1, 2] {
        gateways.record_sample(address(last), sample("i", 1000, json!([])), None, SECOND);
    }
    let called = gateways.record_sample(address(1), sample("i", 2000, halted(1)), None, SECOND);
    assert_eq!((called, gateways.unmet(&id("a")).halted), (vec![id("a")], true));
    gateways.record_sample(address(1), sample("i", 3000, halted(1)), None, SECOND);
    assert!(!gateways.unmet(&id("a")).halted, "no request came again");
    gateways.record_sample(address(2), sample("i", 2000, halted(3)), None, SECOND);
    assert!(gateways.unmet(&id("a")).halted);
}

#[test]
fn gateways_are_added_up_until_they_are_gone_and_a_silent_one_counts_as_it_was() {
    let mut gateways = Gateways::new(Duration::ZERO);
    gateways.set_addresses(&[address(1), address(2)]);
    for last in [1, 2] {
        gateways.record_sample(address(last), sample("i", 10, json!([queue("a", 3, 30, 0)])), None, SECOND);
    }
    assert!(gateways.all_respond());
    gateways.set_addresses(&[address(1), address(2)]);
    gateways.record_sample(address(1), sample("i", 10, json!([])), None, SECOND);
    gateways.end_round();
    assert_eq!((gateways.unmet(&id("a")).waiting, gateways.all_respond()), (6.0, false));
    gateways.set_addresses(&[address(1)]);
    assert_eq!((gateways.unmet(&id("a")).waiting, gateways.all_respond()), (3.0, true));
}

#[test]
fn without_a_listener_there_is_no_gateway_to_wait_for() {
    let mut gateways = Gateways::new(Duration::ZERO);
    gateways.set_addresses(&[address(1), address(2)]);
    gateways.record_sample(address(1), sample("i", 10, json!([])), None, SECOND);
    gateways.record_sample(address(2), sample("i", 10, json!([queue("a", 3, 30, 0)])), None, SECOND);
    gateways.set_absent(address(2));
    assert!(gateways.all_respond() && gateways.unmet(&id("a")) == UnmetDemand::default());
    gateways.set_absent(address(1));
    assert!(!gateways.all_respond());
}

#[test]
fn none_is_known_when_none_has_answered_for_long() {
    let mut gateways = one();
    assert!(!gateways.all_respond(), "not heard yet");
    assert!(!gateways.no_gateway_known(29 * SECOND), "a new leader wakes no workload for this");
    assert!(gateways.no_gateway_known(30 * SECOND));
    gateways.record_sample(address(1), sample("i", 10, json!([])), None, 31 * SECOND);
    assert!(!gateways.no_gateway_known(60 * SECOND) && gateways.all_respond());
}
