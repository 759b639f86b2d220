//! Load balancing by [power of two choices](https://docs.rs/tower/latest/tower/balance/p2c/index.html): of two Pods
//! picked at random, the less busy one gets the request.
//!
//! Comparing all Pods would send every gateway to the same Pod at once. Picking one Pod would ignore the load. The
//! other Pods are tried only if neither of the two has room.

use std::sync::Arc;

use super::pod::UpstreamPod;

/// Acquires a slot of one of these Pods. Returns `None` if none has room. `random` makes the choice.
pub(super) fn acquire(pods: &[Arc<UpstreamPod>], now: u64, random: u64) -> Option<Arc<UpstreamPod>> {
    let count = pods.len() as u64;
    if count == 0 {
        return None;
    }
    let first = random % count;
    // A Pod other than the first.
    let second = if count == 1 { first } else { (first + 1 + (random >> 32) % (count - 1)) % count };
    let load = |at: u64| pods[at as usize].load(now);
    let chosen = match (load(first), load(second)) {
        (Some(a), Some(b)) if b < a => Some(second),
        (Some(_), _) => Some(first),
        (None, Some(_)) => Some(second),
        (None, None) => None,
    };
    if let Some(pod) = chosen.map(|at| &pods[at as usize])
        && pod.try_acquire(now)
    {
        return Some(pod.clone());
    }
    let others = (0..count).map(|at| &pods[((first + at) % count) as usize]);
    others.into_iter().find(|pod| pod.try_acquire(now)).cloned()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use proptest::prelude::*;

    use super::*;

    fn pods(loads: &[u32], cap: u32) -> Vec<Arc<UpstreamPod>> {
        let pod = |(at, load): (usize, &u32)| {
            let pod = UpstreamPod::new(SocketAddr::from(([127, 0, 0, 1], at as u16)), cap);
            for _ in 0..*load {
                pod.try_acquire(0);
            }
            Arc::new(pod)
        };
        loads.iter().enumerate().map(pod).collect()
    }

    proptest! {
        #[test]
        fn there_is_a_slot_exactly_when_a_pod_has_room(loads in prop::collection::vec(0_u32..4, 0..6), random: u64) {
            let pods = pods(&loads, 3);
            let before: Vec<_> = pods.iter().map(|pod| pod.in_flight()).collect();
            let room = before.iter().any(|load| *load < 3);
            let taken = acquire(&pods, 0, random);
            prop_assert_eq!(taken.is_some(), room);
            let after: u32 = pods.iter().map(|pod| pod.in_flight()).sum();
            prop_assert_eq!(after, before.iter().sum::<u32>() + u32::from(room));
        }

        #[test]
        fn of_two_the_less_busy_one_is_taken(a in 0_u32..5, b in 0_u32..5, random: u64) {
            prop_assume!(a != b);
            let taken = acquire(&pods(&[a, b], 0), 0, random).unwrap();
            prop_assert_eq!(taken.address.port(), u16::from(a > b));
        }
    }

    #[test]
    fn every_pod_gets_its_share() {
        let pods = pods(&[0; 10], 0);
        for _ in 0..1000 {
            acquire(&pods, 0, super::super::clock::random()).unwrap();
        }
        assert!(pods.iter().all(|pod| (80..120).contains(&pod.in_flight())), "{pods:?}");
    }
}
