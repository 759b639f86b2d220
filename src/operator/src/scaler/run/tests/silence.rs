//! Tests of the control loop with Pods, gateways and an API server that do not answer, or answer late.

use std::collections::HashMap;

use prometheus_client::encoding::text::encode;
use tokio::sync::Semaphore;

use super::{super::notes::StatusNotes, *};

#[tokio::test]
async fn a_pod_that_never_answers_ends_no_scaling_and_keeps_no_connections() {
    let load = Arc::new(AtomicU64::new(0));
    let port = sidecars("127.0.0.1:0", load.clone()).await.port();
    let mute = TcpListener::bind(("127.0.0.78", port)).await.unwrap();
    let open = Arc::new(AtomicU64::new(0));
    let count = open.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = mute.accept().await.unwrap();
            let count = count.clone();
            tokio::spawn(async move {
                count.fetch_add(1, Ordering::Relaxed);
                while stream.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {}
                count.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
    let toy = FakeFleet::new(scaling(1), ours(), 2);
    toy.change(|seen| seen.pods[1] = Arc::new(pod("mute", [127, 0, 0, 78])));
    let _leading = toy.scaler(port);
    sleep(Duration::from_millis(500)).await;
    load.store(40, Ordering::Relaxed);
    toy.waits_for(|writes| writes.first().is_some_and(|first| first == "5")).await;
    toy.until(|| open.load(Ordering::Relaxed) <= 2).await;
}

#[tokio::test]
async fn a_workload_whose_pods_have_answered_waits_for_no_gateway() {
    let port = sidecars("127.0.0.1:0", Arc::new(AtomicU64::new(40))).await.port();
    // Connections to this gateway are made, and it never answers.
    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let toy = FakeFleet::new(scaling(1), ours(), 1);
    toy.gateways.lock().unwrap().push(mute.local_addr().unwrap());
    let _leading = toy.scaler_each(Duration::from_secs(3600), port);
    toy.waits_for(|writes| writes == ["5"]).await;
}

#[tokio::test]
async fn a_workload_whose_pods_were_not_listed_is_scaled_once_they_are() {
    let port = sidecars("127.0.0.1:0", Arc::new(AtomicU64::new(40))).await.port();
    let toy = FakeFleet::new(scaling(1), ours(), 1);
    toy.is_unlisted.store(true, Ordering::Relaxed);
    let _leading = toy.scaler(port);
    toy.changes.notify_one();
    sleep(Duration::from_millis(300)).await;
    assert_eq!(toy.writes(), Vec::<String>::new());
    toy.is_unlisted.store(false, Ordering::Relaxed);
    toy.waits_for(|writes| writes.first().is_some_and(|first| first == "5")).await;
}

#[tokio::test]
async fn time_in_which_the_pods_were_not_listed_is_no_time_without_load() {
    let port = sidecars("127.0.0.1:0", Arc::default()).await.port();
    let toy = FakeFleet::new(scaling(1), ours(), 4);
    toy.is_unlisted.store(true, Ordering::Relaxed);
    let _leading = toy.scaler(port);
    sleep(Duration::from_millis(1500)).await;
    let listed = Instant::now();
    toy.is_unlisted.store(false, Ordering::Relaxed);
    toy.waits_for(|writes| !writes.is_empty()).await;
    assert!(listed.elapsed() > Duration::from_millis(900), "{:?}: {:?}", listed.elapsed(), toy.writes());
}

/// Serves a gateway at which no request waits. It counts its answers, and gives none while `mute` is set.
async fn fickle_gateway(mute: Arc<AtomicBool>, answers: Arc<AtomicU64>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (mute, answers) = (mute.clone(), answers.clone());
            tokio::spawn(async move {
                let mut request = [0; 1024];
                while stream.read(&mut request).await.is_ok_and(|read| read > 0) {
                    while mute.load(Ordering::Relaxed) {
                        sleep(Duration::from_millis(5)).await;
                    }
                    let body = r#"{"instance":"g","uptimeMs":1,"workloads":[]}"#;
                    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                    answers.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn a_gateway_that_stopped_answering_keeps_the_last_pod() {
    let (mute, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let port = sidecars("127.0.0.1:0", Arc::default()).await.port();
    let gateway = fickle_gateway(mute.clone(), answers.clone()).await;
    let toy = FakeFleet::new(scaling(0), ours(), 1);
    toy.gateways.lock().unwrap().push(gateway);
    let _leading = toy.scaler(port);
    toy.until(|| answers.load(Ordering::Relaxed) > 0).await;
    mute.store(true, Ordering::Relaxed);
    sleep(Duration::from_millis(2500)).await;
    assert_eq!(toy.writes(), Vec::<String>::new());
    mute.store(false, Ordering::Relaxed);
    toy.waits_for(|writes| writes == ["0"]).await;
}

#[tokio::test]
async fn a_gateway_that_answers_nonsense_keeps_the_last_pod_and_one_that_is_gone_does_not() {
    let well = serve("127.0.0.1:0", || r#"{"instance":"g","uptimeMs":1,"workloads":[]}"#.to_owned()).await;
    let ill = serve("127.0.0.1:0", || "{}".to_owned()).await;
    let port = sidecars("127.0.0.1:0", Arc::default()).await.port();
    let toy = FakeFleet::new(scaling(0), ours(), 1);
    toy.gateways.lock().unwrap().extend([well, ill]);
    let _leading = toy.scaler(port);
    sleep(Duration::from_millis(2500)).await;
    assert_eq!(toy.writes(), Vec::<String>::new());
    toy.gateways.lock().unwrap()[1] = SocketAddr::from(([127, 0, 0, 77], 1));
    toy.waits_for(|writes| writes == ["0"]).await;
}

/// A [`FakeFleet`] whose API server takes half a second for each write.
struct SlowFleet(Arc<FakeFleet>);

#[async_trait]
impl WorkloadFleet for SlowFleet {
    fn all(&self) -> Vec<WorkloadId> {
        self.0.all()
    }

    async fn changed(&self) -> Vec<WorkloadId> {
        self.0.changed().await
    }

    fn view(&self, id: &WorkloadId) -> Result<WorkloadView, ViewError> {
        self.0.view(id)
    }

    fn gateways(&self) -> Vec<SocketAddr> {
        self.0.gateways()
    }

    async fn set_replicas(&self, deployment: &CachedChild, replicas: Option<i32>) -> Result<(), ApiError> {
        self.0.reported.lock().unwrap().push("begun".to_owned());
        sleep(Duration::from_millis(500)).await;
        self.0.set_replicas(deployment, replicas).await
    }

    async fn set_deletion_cost(&self, namespace: &str, pod: &WorkloadPod, cost: Option<i32>) -> Result<(), ApiError> {
        self.0.set_deletion_cost(namespace, pod, cost).await
    }

    async fn write_status(&self, id: &WorkloadId, uid: &str, reported: &ScalingStatus) -> Result<(), ApiError> {
        self.0.write_status(id, uid, reported).await
    }

    async fn note_models(&self, id: &WorkloadId, answered: &ModelCounts) -> Result<(), ApiError> {
        self.0.note_models(id, answered).await
    }

    async fn note_pending(&self, id: &WorkloadId, pending: &PendingCalls) -> Result<(), ApiError> {
        self.0.note_pending(id, pending).await
    }

    fn due_budgets(&self, reported: &HashMap<WorkloadId, ReportedTokens>) -> Vec<WorkloadId> {
        self.0.due_budgets(reported)
    }

    async fn note_budget(&self, id: &WorkloadId, reported: Option<ReportedTokens>) -> Result<(), ApiError> {
        self.0.note_budget(id, reported).await
    }
}

#[tokio::test]
async fn a_workload_has_one_write_under_way() {
    let port = sidecars("127.0.0.1:0", Arc::new(AtomicU64::new(40))).await.port();
    let toy = FakeFleet::new(scaling(1), ours(), 1);
    let metrics = ScalerMetrics::new(&mut Registry::default(), true);
    toy.port.store(port, Ordering::Relaxed);
    let fleet = Arc::new(SlowFleet(toy.clone()));
    let mut leading = JoinSet::new();
    leading.spawn(Arc::new(Scaler::new(fleet, Duration::from_millis(50), Keys::default(), metrics)).run());
    toy.waits_for(|writes| writes.iter().any(|one| one == "5")).await;
    assert_eq!(toy.writes().iter().position(|one| one == "5"), Some(1), "{:?}", toy.writes());
}

#[tokio::test]
async fn a_change_of_the_number_counts_once_it_is_written() {
    let port = sidecars("127.0.0.1:0", Arc::new(AtomicU64::new(40))).await.port();
    let toy = FakeFleet::new(Scaling { max_replicas: 5, ..scaling(1) }, ours(), 1);
    toy.refuses_replicas.store(true, Ordering::Relaxed);
    toy.refuses_status.store(true, Ordering::Relaxed);
    let mut registry = Registry::default();
    let metrics = ScalerMetrics::new(&mut registry, true);
    let decisions = || {
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text.lines().find(|line| line.contains("direction=\"up\"")).map(str::to_owned)
    };
    toy.port.store(port, Ordering::Relaxed);
    let mut leading = JoinSet::new();
    leading.spawn(Arc::new(Scaler::new(toy.clone(), Duration::from_millis(50), Keys::default(), metrics)).run());
    toy.waits_for(|writes| writes.iter().filter(|one| *one == "refused").count() > 2).await;
    assert_eq!(decisions(), None);
    toy.refuses_replicas.store(false, Ordering::Relaxed);
    toy.until(|| decisions().is_some()).await;
    toy.refuses_status.store(false, Ordering::Relaxed);
    toy.until(|| toy.seen.lock().unwrap().status.desired == Some(5)).await;
    assert!(decisions().is_some_and(|line| line.ends_with("direction=\"up\"} 1")), "{:?}", decisions());
}

#[test]
fn what_changed_at_the_same_moment_is_no_refusal() {
    for error in [ApiError::Stale, ApiError::WrongUid("v".into()), ApiError::NotFound] {
        assert!(!should_log(&error), "{error}");
    }
    let busy = ApiError::Transient { message: "busy".into(), after: None };
    assert!(should_log(&busy) && should_log(&ApiError::Forbidden("no".into())));
}

#[tokio::test]
async fn the_models_that_gateways_count_are_noted_for_the_agent() {
    let clock = Instant::now();
    let gateway = serve("127.0.0.1:0", move || {
        let uptime = clock.elapsed().as_millis() + 1;
        let queue = r#"{"kind":"Agent","namespace":"ns","name":"a","models":{"stub/echo (HTTP 503)":2}}"#;
        format!(r#"{{"instance":"g","uptimeMs":{uptime},"workloads":[{queue}]}}"#)
    })
    .await;
    let port = sidecars("127.0.0.1:0", Arc::default()).await.port();
    let toy = FakeFleet::new(scaling(1), ours(), 1);
    toy.gateways.lock().unwrap().push(gateway);
    let _leading = toy.scaler(port);
    let expected = r#"a {"stub/echo (HTTP 503)": 2}"#;
    toy.waits_for(|writes| writes.iter().any(|one| one == expected)).await;
}

#[tokio::test]
async fn the_models_of_an_agent_are_looked_at_once_in_a_while() {
    let toy = FakeFleet::new(scaling(1), ours(), 1);
    let fleet: Arc<dyn WorkloadFleet> = toy.clone();
    let permits = Arc::new(Semaphore::new(1));
    let mut notes = StatusNotes::default();
    for (second, looks) in [(0, 1), (1, 1), (4, 1), (5, 2), (6, 2)] {
        let models = HashMap::from([(id(), ModelCounts::from([("stub/echo".to_owned(), second)]))]);
        notes.begin(models, Duration::from_secs(second), &fleet, &permits);
        while notes.next().await.is_some() {}
        assert_eq!(toy.reported.lock().unwrap().len(), looks, "after {second} s");
    }
}
