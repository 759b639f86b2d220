//! Tests of the schedule of queries, with servers that behave as a test says.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use actions::discovery::{Catalog, Discovered, DiscoveryError, DiscoveryTarget, Schedule, ToolDiscovery};
use async_trait::async_trait;
use mcp::Era;
use meta::Key;
use tokio::time::{Instant, sleep};

use super::next_poll_delay;
use crate::discovery::{
    Discoverer,
    lister::{ChangeStream, ListError, ToolLister, ToolListing},
};

const RESYNC: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// Behaviour of a server.
#[derive(Clone, Copy)]
enum ServerBehavior {
    Answers,
    /// Answers, and says that the result holds for so long.
    Holds(Duration),
    /// Answers, and notifies of a change a thousand times a second.
    Changes,
    /// Has other tools each time.
    Differs,
    /// Fails after so long.
    Fails(Duration),
    /// Its headers cannot be read.
    Unready,
}

/// Queried server, time, and era.
type ListCall = (String, Instant, Option<Era>);

/// Servers by address, and the queries they received.
#[derive(Clone, Default)]
struct FakeServers {
    behaviors: Arc<Mutex<BTreeMap<String, ServerBehavior>>>,
    calls: Arc<Mutex<Vec<ListCall>>>,
    at_once: Arc<AtomicUsize>,
    listened_to: Arc<AtomicUsize>,
}

/// Server that notifies of changes for as long as its stream is open.
#[derive(Debug)]
struct EndlessChanges(Arc<AtomicUsize>);

#[async_trait]
impl ChangeStream for EndlessChanges {
    async fn next(&mut self) {
        sleep(Duration::from_millis(1)).await;
    }

    async fn close(self: Box<Self>) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl FakeServers {
    fn behave(&self, url: &str, way: ServerBehavior) {
        self.behaviors.lock().unwrap().insert(url.to_owned(), way);
    }

    /// Returns the times at which a server was queried since `begin`, in seconds.
    fn times(&self, url: &str, begin: Instant) -> Vec<f64> {
        let asked = self.calls.lock().unwrap();
        asked.iter().filter(|(asked, ..)| asked == url).map(|(_, at, _)| (*at - begin).as_secs_f64()).collect()
    }

    fn count(&self, url: &str) -> usize {
        self.times(url, Instant::now() - HOUR).len()
    }
}

#[async_trait]
impl ToolLister for FakeServers {
    async fn list_tools(&self, target: &DiscoveryTarget, era: Option<Era>) -> Result<ToolListing, ListError> {
        self.calls.lock().unwrap().push((target.url.clone(), Instant::now(), era));
        let way = self.behaviors.lock().unwrap().get(&target.url).copied().unwrap_or(ServerBehavior::Answers);
        let why = DiscoveryError { reason: "ServerTimeout", message: "the MCP server is slow".to_owned() };
        let flood = || {
            self.listened_to.fetch_add(1, Ordering::Relaxed);
            Box::new(EndlessChanges(self.listened_to.clone())) as Box<dyn ChangeStream>
        };
        let changes = matches!(way, ServerBehavior::Changes).then(flood);
        let holds = match way {
            ServerBehavior::Answers | ServerBehavior::Changes | ServerBehavior::Differs => Duration::ZERO,
            ServerBehavior::Holds(holds) => holds,
            ServerBehavior::Fails(after) => {
                self.at_once.fetch_add(1, Ordering::Relaxed);
                sleep(after).await;
                return Err(ListError::Failed(why));
            }
            ServerBehavior::Unready => return Err(ListError::Unready(why)),
        };
        let mut catalogue = Catalog::of([], false);
        if matches!(way, ServerBehavior::Differs) {
            catalogue.digest = format!("{}", self.calls.lock().unwrap().len());
        }
        let (server, era) = (Default::default(), "discover".to_owned());
        let discovered = Discovered { catalog: catalogue, server, era, changes: 0 };
        Ok(ToolListing { discovered, era: Era::Discover, ttl: holds, changes })
    }
}

fn target(url: &str) -> DiscoveryTarget {
    DiscoveryTarget {
        kind: "RemoteMCPServer",
        key: Key::new("team", url),
        uid: "u".to_owned(),
        url: url.to_owned(),
        headers: Vec::new(),
        tls: Default::default(),
        sse: false,
        silence: RESYNC,
        terminates: true,
        timeout: RESYNC,
        resync: RESYNC,
        data: BTreeMap::new(),
    }
}

/// Creates a discoverer whose objects observe their results, if `looks` says so.
fn discoverer(servers: &FakeServers, looks: bool) -> Arc<Discoverer> {
    let discoverer = Arc::new(Discoverer::with_lister(servers.clone()));
    let weak = Arc::downgrade(&discoverer);
    discoverer.on_change(move |_, key| {
        let (weak, key) = (weak.clone(), key.clone());
        tokio::spawn(async move {
            let Some(discoverer) = weak.upgrade().filter(|_| looks) else { return };
            let known = discoverer.servers().get(&("RemoteMCPServer", key.clone())).map(|server| server.target.clone());
            discoverer.query(&known.unwrap_or_else(|| target(&key.name)), Schedule::OnResync);
        });
    });
    discoverer
}

#[test]
fn a_failure_is_followed_by_ever_longer_pauses_and_an_answer_by_the_longer_of_resync_and_ttl() {
    let seconds = |failures, holds| next_poll_delay(RESYNC, failures, Duration::from_secs(holds)).as_secs();
    let found: Vec<_> = (1..=7).map(|failures| seconds(failures, 0)).collect();
    assert_eq!(found, [2, 4, 8, 16, 32, 60, 60]);
    assert_eq!(seconds(u32::MAX, 0), 60);
    assert_eq!((seconds(0, 0), seconds(0, 59), seconds(0, 300)), (60, 60, 300));
    assert_eq!(seconds(0, u64::MAX), 24 * 3600);
}

#[tokio::test(start_paused = true)]
async fn a_server_is_asked_in_its_turn_and_not_before_its_list_is_old() {
    let (servers, begin) = (FakeServers::default(), Instant::now());
    servers.behave("short", ServerBehavior::Answers);
    servers.behave("long", ServerBehavior::Holds(10 * RESYNC));
    let discoverer = discoverer(&servers, true);
    for url in ["short", "long"] {
        assert!(discoverer.query(&target(url), Schedule::Now).is_none());
    }
    sleep(20 * RESYNC).await;
    let (short, long) = (servers.times("short", begin), servers.times("long", begin));
    assert!((17..=26).contains(&short.len()), "{short:?}");
    assert!((2..=3).contains(&long.len()), "{long:?}");
    let between =
        |times: &[f64], least: f64, most: f64| times.windows(2).all(|two| (least..=most).contains(&(two[1] - two[0])));
    assert!(between(&short, 48.0, 72.1) && between(&long, 480.0, 720.1), "{short:?} {long:?}");
    assert!(discoverer.query(&target("short"), Schedule::Now).unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_tools_keep_changing_is_asked_ever_more_rarely_and_its_object_is_told() {
    for (url, way) in [("tells", ServerBehavior::Changes), ("differs", ServerBehavior::Differs)] {
        let (servers, begin) = (FakeServers::default(), Instant::now());
        servers.behave(url, way);
        let discoverer = discoverer(&servers, true);
        let often = DiscoveryTarget { resync: Duration::from_secs(1), ..target(url) };
        discoverer.query(&often, Schedule::Now);
        let restless =
            || discoverer.query(&often, Schedule::OnResync).unwrap().as_ref().as_ref().unwrap().is_restless();
        sleep(Duration::from_secs(1)).await;
        assert!(!restless(), "a change or two are no news");
        sleep(HOUR).await;
        let times = servers.times(url, begin);
        assert!(times[1] < 1.5 && (14..=24).contains(&times.len()), "{url}: {times:?}");
        let last = times[times.len() - 1] - times[times.len() - 2];
        assert!((300.0..=361.0).contains(&last), "{url}: {times:?}");
        assert!(restless(), "{url}");
        assert!(servers.listened_to.load(Ordering::Relaxed) <= 1, "one session is open at a time");
        servers.behave(url, ServerBehavior::Answers);
        sleep(HOUR).await;
        assert!(!restless(), "{url}: when it has been quiet");
        assert!(servers.times(url, begin).len() > times.len() + 1000, "{url}: it is asked in its turn again");
    }
}

#[tokio::test(start_paused = true)]
async fn the_era_that_worked_is_asked_first_until_it_fails() {
    let servers = FakeServers::default();
    let discoverer = discoverer(&servers, true);
    discoverer.query(&target("a"), Schedule::Now);
    sleep(2 * RESYNC).await;
    servers.behave("a", ServerBehavior::Fails(Duration::ZERO));
    sleep(2 * RESYNC).await;
    let eras: Vec<_> = servers.calls.lock().unwrap().iter().map(|(_, _, era)| *era).collect();
    assert_eq!(eras[..2], [None, Some(Era::Discover)]);
    assert_eq!(eras.last(), Some(&None), "it may have come back as another one: {eras:?}");
}

#[tokio::test(start_paused = true)]
async fn servers_that_hang_delay_no_others() {
    let (servers, begin) = (FakeServers::default(), Instant::now());
    let discoverer = discoverer(&servers, true);
    for n in 0..400 {
        let url = format!("hangs-{n}");
        servers.behave(&url, ServerBehavior::Fails(HOUR));
        discoverer.query(&target(&url), Schedule::Now);
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!(servers.at_once.load(Ordering::Relaxed), 400);
    let now = (Instant::now() - begin).as_secs_f64();
    discoverer.query(&target("new"), Schedule::Now);
    servers.behave("was-down", ServerBehavior::Fails(Duration::ZERO));
    discoverer.query(&target("was-down"), Schedule::Now);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(servers.times("new", begin), [now]);
    assert!(servers.count("was-down") >= 3, "failed ones have places of their own");
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_object_does_not_look_is_left_alone_until_it_does() {
    let servers = FakeServers::default();
    let discoverer = discoverer(&servers, false);
    discoverer.query(&target("stopped"), Schedule::Now);
    sleep(10 * RESYNC).await;
    assert_eq!(servers.count("stopped"), 1);
    assert!(discoverer.query(&target("stopped"), Schedule::OnResync).is_some(), "what it said is known");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(servers.count("stopped"), 2);
}

#[tokio::test(start_paused = true)]
async fn what_a_server_said_stands_while_its_headers_cannot_be_read() {
    let servers = FakeServers::default();
    let discoverer = discoverer(&servers, true);
    discoverer.query(&target("a"), Schedule::Now);
    sleep(Duration::from_secs(1)).await;
    servers.behave("a", ServerBehavior::Unready);
    sleep(3 * RESYNC).await;
    assert!(servers.count("a") > 3, "it is tried again and again");
    assert!(discoverer.query(&target("a"), Schedule::OnResync).unwrap().is_ok());
    discoverer.clear();
    discoverer.query(&target("b"), Schedule::Now);
    servers.behave("b", ServerBehavior::Unready);
    sleep(Duration::from_secs(1)).await;
    let text = discoverer.query(&target("b"), Schedule::OnResync).unwrap();
    assert!(text.is_err(), "nothing is known of it, so it is said why");
}
