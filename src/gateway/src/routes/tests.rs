use std::net::SocketAddr;

use super::*;
use crate::object::testing::object;

const KEY: &[u8] = b"flows/ns/f";

fn routes() -> Routes {
    let routes = Routes::new(Clock::new());
    routes.object(RoutedKind::Flow, &Key::new("ns", "f"), Some(Arc::new(object())));
    routes
}

fn slice(workload: &str, endpoints: &[(&str, u8, EndpointState)]) -> Arc<WorkloadEndpoints> {
    let endpoint = |(uid, at, state): &(&str, u8, EndpointState)| PodEndpoint {
        uid: (*uid).into(),
        address: SocketAddr::from(([10, 0, 0, *at], 8888)),
        state: *state,
    };
    let workload = Some((RoutedKind::Flow, workload.into()));
    Arc::new(WorkloadEndpoints { workload, service: "s".into(), endpoints: endpoints.iter().map(endpoint).collect() })
}

/// Returns the last byte of each Pod's address, sorted.
fn pods(routes: &Routes) -> Vec<u8> {
    let ip = |pod: &Arc<UpstreamPod>| match pod.address {
        SocketAddr::V4(address) => address.ip().octets()[3],
        SocketAddr::V6(_) => 0,
    };
    let mut found: Vec<_> = routes.find(KEY).unwrap().pods.iter().map(ip).collect();
    found.sort_unstable();
    found
}

#[test]
fn the_ready_pods_of_every_slice_are_used_each_once_and_leaving_ones_when_none_is_ready() {
    use EndpointState::{Leaving, Ready, Unready};
    let routes = routes();
    let (a, b) = (Key::new("ns", "f-a"), Key::new("ns", "f-b"));
    let first = slice("f", &[("p", 1, Ready), ("q", 2, Leaving), ("r", 3, Unready)]);
    routes.slice(&a, None, Some(&first));
    routes.slice(&b, None, Some(&slice("f", &[("p", 1, Ready), ("s", 4, Ready)])));
    assert_eq!(pods(&routes), [1, 4]);
    let second = slice("f", &[("p", 1, Leaving), ("q", 2, Leaving), ("r", 3, Unready)]);
    routes.slice(&a, Some(&first), Some(&second));
    routes.slice(&b, None, Some(&slice("f", &[])));
    assert_eq!(pods(&routes), [1, 2]);
    routes.slice(&a, Some(&second), None);
    assert!(pods(&routes).is_empty());
}

#[test]
fn only_slices_of_the_service_that_the_operator_made_count() {
    let routes = routes();
    let of = |service: &str, at| {
        let slice = slice("f", &[("p", at, EndpointState::Ready)]);
        Arc::new(WorkloadEndpoints {
            workload: slice.workload.clone(),
            service: service.into(),
            endpoints: slice.endpoints.clone(),
        })
    };
    routes.slice(&Key::new("ns", "f-a"), None, Some(&of("s", 1)));
    routes.slice(&Key::new("ns", "thief"), None, Some(&of("t", 2)));
    assert_eq!(pods(&routes), [1]);
    // The Service was recreated, and all slices are evaluated again.
    routes.object(
        RoutedKind::Flow,
        &Key::new("ns", "f"),
        Some(Arc::new(Object { service: Some("t".into()), ..object() })),
    );
    assert_eq!(pods(&routes), [2]);
    routes.slice(&Key::new("ns", "f-a"), Some(&of("s", 1)), Some(&of("t", 3)));
    routes.slice(&Key::new("ns", "thief"), Some(&of("t", 2)), None);
    assert_eq!(pods(&routes), [3]);
    routes.object(RoutedKind::Flow, &Key::new("ns", "f"), Some(Arc::new(Object { service: None, ..object() })));
    assert_eq!(pods(&routes), [0; 0], "as long as none is written down");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_answered_early_counts_until_its_slice_decides_or_a_minute_is_over() {
    use EndpointState::{Gone, Ready, Unready};
    let routes = routes();
    let key = Key::new("ns", "f-a");
    let of = |state| slice("f", &[("p", 1, state), ("q", 2, Unready)]);
    let unready = || routes.find(KEY).unwrap().unready.iter().map(|found| found.uid.clone()).collect::<Vec<_>>();
    let early = || routes.mark_self_reported(&routes.find(KEY).unwrap().workload, "p");
    routes.slice(&key, None, Some(&of(Unready)));
    assert_eq!((pods(&routes), unready()), (vec![], vec!["p".into(), "q".into()]));
    early();
    assert_eq!((pods(&routes), unready()), (vec![1], vec!["q".into()]));
    tokio::time::advance(Duration::from_secs(59)).await;
    routes.sweep();
    assert_eq!(pods(&routes), [1]);
    tokio::time::advance(Duration::from_secs(1)).await;
    routes.sweep();
    assert_eq!((pods(&routes), unready()), (vec![], vec!["q".into()]), "and is not asked again");
    early();
    assert_eq!(pods(&routes), [0; 0]);
    routes.slice(&key, Some(&of(Unready)), Some(&of(Ready)));
    routes.slice(&key, Some(&of(Ready)), Some(&of(Unready)));
    assert_eq!(pods(&routes), [0; 0], "its slice has said more since");
    early();
    assert_eq!(pods(&routes), [1]);
    routes.unmark_self_reported(&routes.find(KEY).unwrap().workload, &PodTag::of("p"));
    assert_eq!((pods(&routes), unready()), (vec![], vec!["p".into(), "q".into()]));
    early();
    routes.slice(&key, Some(&of(Unready)), Some(&of(Gone)));
    assert_eq!((pods(&routes), unready()), (vec![], vec!["q".into()]));
    routes.mark_self_reported(&routes.find(KEY).unwrap().workload, "another");
    assert!(routes.parts()[KEY].self_reported.is_empty(), "nothing is kept of a Pod that is not there");
}

#[test]
fn a_pod_stays_the_same_through_changes_until_it_moves() {
    let routes = routes();
    let key = Key::new("ns", "f-a");
    let of = |at: u8| slice("f", &[("p", at, EndpointState::Ready)]);
    routes.slice(&key, None, Some(&of(1)));
    let before = routes.find(KEY).unwrap().pods[0].clone();
    routes.slice(
        &key,
        Some(&of(1)),
        Some(&slice("f", &[("p", 1, EndpointState::Ready), ("q", 2, EndpointState::Ready)])),
    );
    assert!(routes.find(KEY).unwrap().pods.iter().any(|pod| Arc::ptr_eq(pod, &before)));
    routes.slice(&key, Some(&of(1)), Some(&of(9)));
    assert_eq!(pods(&routes), [9]);
}

#[test]
fn a_slice_that_changes_hands_leaves_nothing_behind() {
    let routes = routes();
    let key = Key::new("ns", "x");
    let (ours, other) = (slice("f", &[("p", 1, EndpointState::Ready)]), slice("g", &[("p", 1, EndpointState::Ready)]));
    routes.slice(&key, None, Some(&ours));
    routes.slice(&key, Some(&ours), Some(&other));
    assert!(pods(&routes).is_empty());
    assert!(routes.find(b"flows/ns/g").is_none(), "Pods alone are no workload");
    routes.slice(&key, Some(&other), None);
    routes.object(RoutedKind::Flow, &Key::new("ns", "f"), None);
    assert!(routes.find(KEY).is_none() && routes.parts().is_empty());
}
