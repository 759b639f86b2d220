use std::sync::Mutex;

use async_trait::async_trait;
use k8s_openapi::api::coordination::v1::LeaseSpec;
use kube::core::Status;

use super::*;

/// Lease in memory; `down`: requests fail as if the API server were unavailable.
#[derive(Default)]
struct Fake(Mutex<FakeState>);

#[derive(Default)]
struct FakeState {
    lease: Option<Lease>,
    version: u64,
    down: bool,
}

impl Fake {
    fn down(&self, down: bool) {
        self.0.lock().unwrap().down = down;
    }

    fn delete(&self) {
        self.0.lock().unwrap().lease = None;
    }

    fn holder(&self) -> String {
        self.0.lock().unwrap().lease.as_ref().map(holder).unwrap_or_default().to_owned()
    }

    fn store(state: &mut FakeState, mut lease: Lease) -> Lease {
        state.version += 1;
        lease.metadata.resource_version = Some(state.version.to_string());
        state.lease = Some(lease.clone());
        lease
    }
}

fn refusal(code: u16) -> RequestError {
    RequestError::Refused { what: "lease".into(), code, status: Box::new(Status::default()), after: None }
}

#[async_trait]
impl LeaseApi for Arc<Fake> {
    async fn get(&self) -> Result<Option<Lease>, RequestError> {
        let state = self.0.lock().unwrap();
        if state.down { Err(refusal(503)) } else { Ok(state.lease.clone()) }
    }

    async fn create(&self, spec: LeaseSpec) -> Result<Lease, RequestError> {
        let mut state = self.0.lock().unwrap();
        match (state.down, &state.lease) {
            (true, _) => Err(refusal(503)),
            (_, Some(_)) => Err(refusal(409)),
            (_, None) => Ok(Fake::store(&mut state, Lease { spec: Some(spec), ..Lease::default() })),
        }
    }

    async fn replace(&self, lease: &Lease) -> Result<Lease, RequestError> {
        let mut state = self.0.lock().unwrap();
        let current = state.lease.as_ref().map(|stored| stored.metadata.resource_version.clone());
        if state.down {
            return Err(refusal(503));
        }
        if current != Some(lease.metadata.resource_version.clone()) {
            return Err(refusal(409));
        }
        Ok(Fake::store(&mut state, lease.clone()))
    }
}

fn replica(fake: &Arc<Fake>, identity: &str) -> (LeaderElector, WriteGate) {
    let authority = WriteGate::by_lease();
    (LeaderElector::new(Arc::new(fake.clone()), identity.into(), authority.clone(), |_| {}), authority)
}

#[tokio::test(start_paused = true)]
async fn one_of_two_replicas_writes() {
    let fake = Arc::new(Fake::default());
    let (mut first, may_first) = replica(&fake, "first");
    let (mut second, may_second) = replica(&fake, "second");
    first.acquire().await;
    let race = tokio::time::timeout(Duration::from_secs(300), async {
        tokio::select! { () = first.renew() => "lost", () = second.acquire() => "taken" }
    });
    assert!(race.await.is_err(), "a lease that is renewed is neither lost nor taken");
    assert!(may_first.allows_writes() && !may_second.allows_writes());
}

#[tokio::test(start_paused = true)]
async fn a_dead_holder_is_followed_within_twelve_seconds() {
    let fake = Arc::new(Fake::default());
    let (mut first, may_first) = replica(&fake, "first");
    let (mut second, _) = replica(&fake, "second");
    first.acquire().await;
    let _ = tokio::time::timeout(Duration::from_secs(5), async {
        tokio::select! { () = first.renew() => {}, () = second.acquire() => {} }
    })
    .await;
    let killed = Instant::now();
    second.acquire().await;
    assert!(killed.elapsed() <= Duration::from_secs(12), "{:?}", killed.elapsed());
    assert_eq!(fake.holder(), "second");
    assert!(!may_first.allows_writes(), "a holder that was stopped may not write when it continues");
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_within_a_second() {
    let fake = Arc::new(Fake::default());
    let (mut first, may_first) = replica(&fake, "first");
    let (mut second, may_second) = replica(&fake, "second");
    first.acquire().await;
    let _ = tokio::time::timeout(Duration::from_secs(3), second.acquire()).await;
    first.release().await;
    let released = Instant::now();
    second.acquire().await;
    assert!(released.elapsed() <= Duration::from_secs(1));
    assert!(!may_first.allows_writes() && may_second.allows_writes());
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_stays_its_holders() {
    let fake = Arc::new(Fake::default());
    let (mut first, may_first) = replica(&fake, "first");
    let (mut second, may_second) = replica(&fake, "second");
    first.acquire().await;
    let keeping = tokio::spawn(async move { first.renew().await });
    let _ = tokio::time::timeout(Duration::from_secs(3), second.acquire()).await;
    fake.delete();
    let taken = tokio::time::timeout(Duration::from_secs(60), second.acquire()).await;
    assert!(taken.is_err() && !may_second.allows_writes(), "its holder knew of nothing and wrote");
    assert!(may_first.allows_writes());
    keeping.abort();
    let _ = keeping.await;
    fake.delete();
    let dead = Instant::now();
    second.acquire().await;
    assert!(dead.elapsed() <= Duration::from_secs(12), "{:?}", dead.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_restarted_container_takes_its_own_lease_back_at_once() {
    let fake = Arc::new(Fake::default());
    replica(&fake, "pod").0.acquire().await;
    let started = Instant::now();
    replica(&fake, "pod").0.acquire().await;
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_cannot_renew_stops_after_six_seconds_and_comes_back() {
    let fake = Arc::new(Fake::default());
    let (mut elector, may) = replica(&fake, "first");
    elector.acquire().await;
    fake.down(true);
    let down = Instant::now();
    elector.renew().await;
    assert!(down.elapsed() <= Duration::from_secs(7), "{:?}", down.elapsed());
    assert!(!may.allows_writes());
    fake.down(false);
    let back = Instant::now();
    elector.acquire().await;
    assert!(may.allows_writes() && back.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_costs_nothing() {
    let fake = Arc::new(Fake::default());
    let (mut elector, may) = replica(&fake, "first");
    elector.acquire().await;
    fake.down(true);
    let outage = async {
        sleep(Duration::from_secs(4)).await;
        fake.down(false);
        sleep(Duration::from_secs(30)).await;
    };
    tokio::select! { () = elector.renew() => panic!("lost"), () = outage => {} }
    assert!(may.allows_writes());
}
