//! Measures the lookup of a request's route among 10 000 workloads, and the update of one route.

use std::{hint::black_box, net::SocketAddr, sync::Arc};

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use gateway::{Clock, EndpointState, Listing, Object, PodEndpoint, RoutedKind, Routes, WorkloadEndpoints};
use meta::Key;

const WORKLOADS: usize = 10_000;

fn object() -> Arc<Object> {
    Arc::new(Object {
        uid: "u".into(),
        timeout: None,
        concurrency: Some(8),
        service: Some("s".into()),
        sidecar: true,
        anonymous_paths: Box::default(),
        last_invocation_at: None,
        no_pod: None,
        left_out: Box::default(),
        limits: None,
        budgets: None,
        cost: None,
        approvals: false,
        listing: Listing::default(),
    })
}

/// Creates the EndpointSlice of a workload with `count` Pods.
fn slice(name: &str, count: u8) -> Arc<WorkloadEndpoints> {
    let endpoint = |at: u8| PodEndpoint {
        uid: format!("pod-{at}").into(),
        address: SocketAddr::from(([10, 0, 0, at], 8888)),
        state: EndpointState::Ready,
    };
    let endpoints = (0..count).map(endpoint).collect();
    Arc::new(WorkloadEndpoints { workload: Some((RoutedKind::Agent, name.into())), service: "s".into(), endpoints })
}

fn benches(criterion: &mut Criterion) {
    let routes = Routes::new(Clock::new());
    let names: Vec<_> = (0..WORKLOADS).map(|at| format!("agent-{at}")).collect();
    for name in &names {
        let key = Key::new("namespace", name);
        routes.object(RoutedKind::Agent, &key, Some(object()));
        routes.slice(&key, None, Some(&slice(name, 2)));
    }
    let keys: Vec<_> = names.iter().map(|name| format!("agents/namespace/{name}")).collect();
    let mut at = 0;
    let mut next = |step: usize| {
        at = (at + step) % WORKLOADS;
        at
    };
    criterion.bench_function("find a route among 10000", |bencher| {
        // A request has its path at hand, so it is in the processor's cache: only the lookup is measured.
        let path = || keys[next(7919)].clone();
        bencher.iter_batched_ref(path, |key| routes.find(black_box(key.as_bytes())), BatchSize::SmallInput);
    });
    let (two, ten) = (slice(&names[0], 2), slice(&names[0], 10));
    let key = Key::new("namespace", &names[0]);
    criterion.bench_function("take in 8 Pods more and 8 fewer", |bencher| {
        bencher.iter(|| {
            routes.slice(&key, Some(&two), Some(&ten));
            routes.slice(&key, Some(&ten), Some(&two));
        })
    });
}

criterion_group!(all, benches);
criterion_main!(all);
