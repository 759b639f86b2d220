//! Tests of the control loop against servers on loopback that act as Pods and gateways.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering},
};

use actions::ports::{CachedChild, DeploymentState, ReplicasManagers};
use async_trait::async_trait;
use cluster::cache::Keys;
use crds::{Scaling, pending_calls::PendingCalls};
use meta::Key;
use prometheus_client::registry::Registry;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    sync::Notify,
    time::timeout,
};

use super::*;
use crate::scaler::{
    ModelCounts, ReportedTokens, ScalingStatus,
    testing::{self, pod},
};

mod budgets;
mod silence;

/// Serves the result of `body` as JSON on every connection.
async fn serve(address: &str, body: impl Fn() -> String + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind(address).await.unwrap();
    let address = listener.local_addr().unwrap();
    let body = Arc::new(body);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let body = body.clone();
            tokio::spawn(async move {
                let mut request = [0; 1024];
                while stream.read(&mut request).await.is_ok_and(|read| read > 0) {
                    let body = body();
                    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
            });
        }
    });
    address
}

/// Serves sidecars that report this many requests in flight for as long as it is set.
async fn sidecars(address: &str, load: Arc<AtomicU64>) -> SocketAddr {
    let state = Mutex::new((Instant::now(), 0_u64, 1_u64));
    serve(address, move || {
        let mut state = state.lock().unwrap();
        let passed = u64::try_from(state.0.elapsed().as_millis()).unwrap();
        let load = load.load(Ordering::Relaxed);
        *state = (Instant::now(), state.1 + passed * load, state.2 + passed);
        format!(
            r#"{{"instance":"i","uptimeMs":{},"inflight":{load},"busyMs":{},"completed":0,"refused":0,"streams":0}}"#,
            state.2, state.1
        )
    })
    .await
}

/// Fleet of one workload, whose Deployment is settled at once.
struct FakeFleet {
    seen: Mutex<WorkloadView>,
    gateways: Mutex<Vec<SocketAddr>>,
    /// Port of the sidecars whose Pods do not say another one.
    port: AtomicU16,
    reported: Mutex<Vec<String>>,
    changes: Notify,
    /// True while its Pods are not listed.
    is_unlisted: AtomicBool,
    /// True while its API server refuses to set `replicas`.
    refuses_replicas: AtomicBool,
    /// True while its API server refuses to write a status.
    refuses_status: AtomicBool,
}

fn id() -> WorkloadId {
    WorkloadId { kind: "Agent", key: Key::new("ns", "a") }
}

impl FakeFleet {
    fn new(scaling: Scaling, replicas_by: ReplicasManagers, desired: i32) -> Arc<Self> {
        let state =
            DeploymentState { replicas_managers: replicas_by, observed_generation: 1, ..DeploymentState::default() };
        let deployment = testing::deployment(state);
        let seen = WorkloadView {
            uid: "u".into(),
            scaling: Some(scaling),
            stopped: false,
            failed: false,
            deployment: Some(Arc::new(deployment)),
            pods: Vec::new(),
            tool: None,
            status: ScalingStatus::default(),
        };
        let toy = Self {
            seen: Mutex::new(seen),
            gateways: Mutex::default(),
            port: AtomicU16::new(8888),
            reported: Mutex::default(),
            changes: Notify::new(),
            is_unlisted: AtomicBool::new(false),
            refuses_replicas: AtomicBool::new(false),
            refuses_status: AtomicBool::new(false),
        };
        toy.deploy(desired);
        Arc::new(toy)
    }

    fn deploy(&self, desired: i32) {
        self.change(|seen| {
            let mut deployment = seen.deployment.as_deref().cloned().unwrap();
            let state = deployment.deployment.as_mut().unwrap();
            (state.desired, state.replicas, state.updated) = (desired, desired, desired);
            seen.deployment = Some(Arc::new(deployment));
            let wanted = usize::try_from(desired).unwrap();
            // Marked Pods go first.
            seen.pods.sort_by_key(|pod| pod.deletion_cost.unwrap_or(0));
            while seen.pods.len() > wanted {
                seen.pods.remove(0);
            }
            while seen.pods.len() < wanted {
                let name = format!("p{}", self.reported.lock().unwrap().len() * 100 + seen.pods.len());
                seen.pods.push(Arc::new(pod(&name, [127, 0, 0, 1])));
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut WorkloadView)) {
        change(&mut self.seen.lock().unwrap());
        self.changes.notify_one();
    }

    fn by(&self, change: impl FnOnce(&mut ReplicasManagers)) {
        self.change(|seen| {
            let mut deployment = seen.deployment.as_deref().cloned().unwrap();
            change(&mut deployment.deployment.as_mut().unwrap().replicas_managers);
            seen.deployment = Some(Arc::new(deployment));
        });
    }

    fn writes(&self) -> Vec<String> {
        self.reported.lock().unwrap().clone()
    }

    /// Waits until the writes are enough, or panics after a long time.
    async fn waits_for(&self, enough: impl Fn(&[String]) -> bool) {
        self.until(|| enough(&self.writes())).await;
    }

    async fn until(&self, done: impl Fn() -> bool) {
        let wait = async {
            while !done() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let waited = timeout(Duration::from_secs(60), wait).await;
        assert!(waited.is_ok(), "{:?}", self.writes());
    }

    fn scaler(self: &Arc<Self>, port: u16) -> JoinSet<()> {
        self.scaler_each(Duration::from_millis(50), port)
    }

    fn scaler_each(self: &Arc<Self>, interval: Duration, port: u16) -> JoinSet<()> {
        self.port.store(port, Ordering::Relaxed);
        let metrics = ScalerMetrics::new(&mut Registry::default(), true);
        let mut leading = JoinSet::new();
        leading.spawn(Arc::new(Scaler::new(self.clone(), interval, Keys::default(), metrics)).run());
        leading
    }
}

#[async_trait]
impl WorkloadFleet for FakeFleet {
    fn all(&self) -> Vec<WorkloadId> {
        vec![id()]
    }

    async fn changed(&self) -> Vec<WorkloadId> {
        self.changes.notified().await;
        vec![id()]
    }

    fn view(&self, _: &WorkloadId) -> Result<WorkloadView, ViewError> {
        if self.is_unlisted.load(Ordering::Relaxed) {
            return Err(ViewError::NotListed);
        }
        let mut seen = self.seen.lock().unwrap().clone();
        let port = self.port.load(Ordering::Relaxed);
        for pod in seen.pods.iter_mut().filter(|pod| pod.port == 8888) {
            *pod = Arc::new(WorkloadPod { port, ..pod.as_ref().clone() });
        }
        Ok(seen)
    }

    fn gateways(&self) -> Vec<SocketAddr> {
        self.gateways.lock().unwrap().clone()
    }

    async fn set_replicas(&self, _: &CachedChild, replicas: Option<i32>) -> Result<(), ApiError> {
        if self.refuses_replicas.load(Ordering::Relaxed) {
            self.reported.lock().unwrap().push("refused".to_owned());
            return Err(ApiError::Stale);
        }
        let text = replicas.map_or("left out".to_owned(), |replicas| replicas.to_string());
        self.reported.lock().unwrap().push(text);
        self.by(|by| by.scaler = replicas.is_some());
        if let Some(replicas) = replicas {
            self.deploy(replicas);
        }
        Ok(())
    }

    async fn set_deletion_cost(&self, _: &str, pod: &WorkloadPod, cost: Option<i32>) -> Result<(), ApiError> {
        self.reported.lock().unwrap().push("mark".to_owned());
        self.change(|seen| {
            for found in seen.pods.iter_mut().filter(|found| found.uid == pod.uid) {
                *found = Arc::new(WorkloadPod { deletion_cost: cost, ..pod.clone() });
            }
        });
        Ok(())
    }

    async fn write_status(&self, _: &WorkloadId, _: &str, reported: &ScalingStatus) -> Result<(), ApiError> {
        if self.refuses_status.load(Ordering::Relaxed) {
            return Err(ApiError::Stale);
        }
        let reported = reported.clone();
        self.change(|seen| seen.status = reported);
        Ok(())
    }

    async fn note_models(&self, id: &WorkloadId, answered: &ModelCounts) -> Result<(), ApiError> {
        self.reported.lock().unwrap().push(format!("{} {answered:?}", id.key.name));
        Ok(())
    }

    async fn note_pending(&self, id: &WorkloadId, pending: &PendingCalls) -> Result<(), ApiError> {
        self.reported.lock().unwrap().push(format!("{} {} wait", id.key.name, pending.calls));
        if self.refuses_status.load(Ordering::Relaxed) { Err(ApiError::Stale) } else { Ok(()) }
    }

    fn due_budgets(&self, reported: &HashMap<WorkloadId, ReportedTokens>) -> Vec<WorkloadId> {
        reported.keys().cloned().collect()
    }

    async fn note_budget(&self, id: &WorkloadId, reported: Option<ReportedTokens>) -> Result<(), ApiError> {
        let spent = reported.map(|tokens| tokens.spent);
        self.reported.lock().unwrap().push(format!("{} {spent:?}", id.key.name));
        if self.refuses_status.load(Ordering::Relaxed) { Err(ApiError::Stale) } else { Ok(()) }
    }
}

fn ours() -> ReplicasManagers {
    ReplicasManagers { scaler: true, ..ReplicasManagers::default() }
}

fn scaling(min: i32) -> Scaling {
    let short = || "1s".into();
    Scaling { min_replicas: min, stable_window: short(), scale_to_zero_after: short(), ..Scaling::default() }
}

#[tokio::test]
async fn the_number_follows_the_load_up_at_once_and_down_by_halves_of_marked_pods() {
    let load = Arc::new(AtomicU64::new(40));
    let port = sidecars("127.0.0.1:0", load.clone()).await.port();
    let toy = FakeFleet::new(scaling(1), ours(), 1);
    let _leading = toy.scaler(port);
    toy.waits_for(|writes| writes.first().is_some_and(|first| first == "5")).await;
    load.store(0, Ordering::Relaxed);
    toy.waits_for(|writes| writes.last().is_some_and(|last| last == "1")).await;
    let writes = toy.writes();
    let down = &writes[writes.iter().rposition(|one| one.parse::<i32>().is_ok_and(|number| number >= 5)).unwrap()..];
    let numbers: Vec<i32> = down.iter().filter_map(|one| one.parse().ok()).collect();
    let halved = numbers.windows(2).all(|step| step[0] > step[1] && step[0] - step[1] <= (step[0] / 2).max(1));
    assert!(halved, "{writes:?}");
    let marks = down.iter().filter(|one| *one == "mark").count();
    assert_eq!(marks, usize::try_from(numbers[0] - 1).unwrap(), "{writes:?}");
    toy.until(|| toy.seen.lock().unwrap().status.desired == Some(1)).await;
}

#[tokio::test]
async fn pods_that_share_an_address_are_asked_at_their_own_ports() {
    let [idle, busy] = [Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(40))];
    let ports = [sidecars("127.0.0.1:0", idle).await.port(), sidecars("127.0.0.1:0", busy).await.port()];
    let toy = FakeFleet::new(scaling(1), ours(), 2);
    toy.change(|seen| {
        for (pod, port) in seen.pods.iter_mut().zip(ports) {
            *pod = Arc::new(WorkloadPod { port, ..pod.as_ref().clone() });
        }
    });
    // Nothing listens at port 1: only what the Pods themselves say counts.
    let _leading = toy.scaler(1);
    toy.waits_for(|writes| writes.first().is_some_and(|first| first == "5")).await;
}

#[tokio::test]
async fn a_silent_pod_forbids_every_step_down_until_it_answers() {
    let port = sidecars("127.0.0.1:0", Arc::default()).await.port();
    let toy = FakeFleet::new(scaling(1), ours(), 2);
    // Nothing listens there.
    toy.change(|seen| seen.pods[1] = Arc::new(pod("silent", [127, 0, 0, 77])));
    let _leading = toy.scaler(port);
    sleep(Duration::from_millis(2500)).await;
    assert_eq!(toy.writes(), Vec::<String>::new());
    toy.change(|seen| seen.pods[1] = Arc::new(pod("speaks", [127, 0, 0, 1])));
    toy.waits_for(|writes| writes.last().is_some_and(|last| last == "1")).await;
}

#[tokio::test]
async fn a_request_that_waits_in_a_gateway_wakes_a_workload_that_sleeps_again_without_requests() {
    let waiting = Arc::new(AtomicU64::new(0));
    let (asked, clock) = (waiting.clone(), Instant::now());
    let gateway = serve("127.0.0.1:0", move || {
        let (waiting, uptime) = (asked.load(Ordering::Relaxed), clock.elapsed().as_millis() + 1);
        let counts = format!(r#""waiting":{waiting},"waitingMs":{},"refused":0"#, u128::from(waiting) * uptime);
        let queue = format!(r#"{{"kind":"Agent","namespace":"ns","name":"a",{counts}}}"#);
        format!(r#"{{"instance":"g","uptimeMs":{uptime},"workloads":[{queue}]}}"#)
    })
    .await;
    let port = sidecars("127.0.0.1:0", Arc::default()).await.port();
    let toy = FakeFleet::new(scaling(0), ours(), 0);
    toy.gateways.lock().unwrap().push(gateway);
    let leading = toy.scaler(port);
    waiting.store(1000, Ordering::Relaxed);
    toy.waits_for(|writes| writes == ["10"]).await;
    waiting.store(0, Ordering::Relaxed);
    drop(leading);
    let _next = toy.scaler(port);
    toy.waits_for(|writes| writes.last().is_some_and(|last| last == "0")).await;
}

/// Serves a gateway where this many requests wait, all of which began to wait when there was no Pod.
async fn cold_gateway(waiting: Arc<AtomicU64>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let waiting = waiting.clone();
            tokio::spawn(async move {
                let mut request = [0; 1024];
                while let Ok(read) = stream.read(&mut request).await
                    && read > 0
                {
                    let request = String::from_utf8_lossy(&request[..read]);
                    let path = request.split(' ').nth(1).unwrap();
                    let now = || waiting.load(Ordering::Relaxed);
                    let body = if let Some(query) = path.strip_prefix("/_recif/demand/cold") {
                        while query == format!("?after={}", now()) {
                            sleep(Duration::from_millis(5)).await;
                        }
                        let queue = format!(r#"{{"kind":"Agent","namespace":"ns","name":"a","waiting":{}}}"#, now());
                        format!(r#"{{"times":{},"workloads":[{}]}}"#, now(), if now() > 0 { &queue } else { "" })
                    } else {
                        r#"{"instance":"g","uptimeMs":1,"workloads":[]}"#.to_owned()
                    };
                    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn who_begins_to_wait_is_noticed_long_before_the_next_round() {
    let waiting = Arc::new(AtomicU64::new(0));
    let toy = FakeFleet::new(scaling(0), ours(), 0);
    let gateway = cold_gateway(waiting.clone()).await;
    toy.gateways.lock().unwrap().push(gateway);
    let _leading = toy.scaler_each(Duration::from_secs(3600), 1);
    sleep(Duration::from_millis(500)).await;
    assert_eq!(toy.writes(), Vec::<String>::new());
    waiting.store(1, Ordering::Relaxed);
    toy.waits_for(|writes| writes == ["1"]).await;
}

#[tokio::test]
async fn the_number_changes_hands_without_waiting_for_any_answer() {
    let operator = ReplicasManagers { operator: true, ..ReplicasManagers::default() };
    let toy = FakeFleet::new(scaling(1), operator, 5);
    // No process listens on this port.
    let _leading = toy.scaler(1);
    toy.waits_for(|writes| writes == ["5"]).await;
    toy.by(|by| by.operator = false);
    toy.change(|seen| seen.scaling = None);
    toy.by(|by| by.operator = true);
    toy.waits_for(|writes| writes == ["5", "left out"]).await;
}
