use std::sync::Mutex;

use meta::Key;
use tokio::sync::mpsc::UnboundedReceiver;

use super::*;
use crate::testing::{
    ScriptedRequest, ScriptedResponse, hanging_watch, no_connection, response, scripted, watch_events,
};

/// Decodes the value of `data`, which may be malformed.
fn decode(_head: &ObjectVersion, json: &str) -> Result<u64, serde_json::Error> {
    #[derive(Deserialize)]
    struct WireValue {
        data: u64,
    }
    serde_json::from_str::<WireValue>(json).map(|wire| wire.data)
}

fn object(name: &str, version: u64, data: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"ns","uid":"{name}","resourceVersion":"{version}"}},"data":{data}}}"#
    )
}

fn list(version: u64, items: &[String]) -> ScriptedResponse {
    response(200, format!(r#"{{"metadata":{{"resourceVersion":"{version}"}},"items":[{}]}}"#, items.join(",")))
}

fn event(type_: &str, object: &str) -> String {
    format!(r#"{{"type":"{type_}","object":{object}}}"#)
}

struct RunningWatch {
    map: Arc<ObjectMap<u64>>,
    watch_health: Arc<WatchHealth>,
    requests: UnboundedReceiver<ScriptedRequest>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for RunningWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl RunningWatch {
    fn start(answers: Vec<ScriptedResponse>) -> Self {
        Self::start_in(answers, None)
    }

    fn start_in(answers: Vec<ScriptedResponse>, kept: Option<KeptNamespaces>) -> Self {
        let (transport, asked) = scripted(answers);
        let (map, board) = (Arc::new(ObjectMap::default()), Arc::new(WatchHealth::default()));
        let source = WatchSource {
            resource: Resource::of::<crds::Agent>(),
            labels: Some("a=b"),
            fields: None,
            decode: Arc::new(decode),
        };
        let mut watch = Watch::new(source, None, transport, map.clone(), board.clone());
        watch.kept = kept;
        Self { map, watch_health: board, requests: asked, task: tokio::spawn(watch.run()) }
    }

    /// Returns the query of the next request, after the path and the selector.
    async fn next(&mut self) -> String {
        let line = self.requests.recv().await.unwrap().line;
        line.strip_prefix("GET /apis/agents.recif.dev/v1/agents?labelSelector=a%3Db&").unwrap().to_owned()
    }

    fn value(&self, name: &str) -> Option<u64> {
        self.map.get(&Key::new("ns", name)).map(|value| *value)
    }
}

/// Waits until `what` is true, for at most a minute of paused time.
async fn until(what: impl Fn() -> bool) {
    let check = async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), check).await.expect("it should have become so");
}

const FROM: &str = "watch=true&allowWatchBookmarks=true&timeoutSeconds=25&resourceVersion=";

#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_from_the_last_version_it_saw() {
    let modified = event("MODIFIED", &object("a", 12, "2"));
    let bookmark = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"20"}}}"#;
    let mut run = RunningWatch::start(vec![
        list(10, &[object("a", 5, "1")]),
        watch_events(&[&modified]),
        watch_events(&[bookmark]),
        watch_events(&[&event("DELETED", &object("a", 21, "2"))]),
    ]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    run.map.subscribe(move |change| log.lock().unwrap().push(change.new.as_deref().copied()));
    assert_eq!(run.watch_health.unready(), ["watch /apis/agents.recif.dev/v1/agents: not started"]);
    assert_eq!(run.next().await, "limit=100");
    assert_eq!(run.next().await, format!("{FROM}10"));
    assert!(run.watch_health.unready().is_empty());
    assert_eq!(run.next().await, format!("{FROM}12"));
    assert_eq!(run.next().await, format!("{FROM}20"));
    assert_eq!(run.next().await, format!("{FROM}21"));
    assert_eq!(*seen.lock().unwrap(), [Some(1), Some(2), None]);
}

#[tokio::test(start_paused = true)]
async fn what_comes_for_a_namespace_that_is_not_kept_is_left_out_and_the_watch_goes_on_after_it() {
    let elsewhere = |name: &str, version: u64| object(name, version, "1").replace("\"ns\"", "\"elsewhere\"");
    let kept: KeptNamespaces = Arc::new(|namespace: &str| namespace == "ns");
    let answers = vec![
        list(10, &[object("a", 5, "1"), elsewhere("b", 6)]),
        watch_events(&[&event("ADDED", &elsewhere("c", 11))]),
        watch_events(&[&event("ADDED", &object("d", 12, "2"))]),
        hanging_watch(&[]),
    ];
    let mut run = RunningWatch::start_in(answers, Some(kept));
    for expected in ["limit=100".to_owned(), format!("{FROM}10"), format!("{FROM}11"), format!("{FROM}12")] {
        assert_eq!(run.next().await, expected);
    }
    assert_eq!((run.value("a"), run.value("d")), (Some(1), Some(2)));
    assert!(["b", "c"].iter().all(|name| run.map.get(&Key::new("elsewhere", *name)).is_none()));
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_too_old_means_listing_again_and_finding_what_is_gone() {
    let gone = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}"#;
    let mut run = RunningWatch::start(vec![
        list(10, &[object("a", 5, "1"), object("b", 6, "1")]),
        watch_events(&[gone]),
        list(30, &[object("a", 5, "1")]),
    ]);
    for expected in ["limit=100".to_owned(), format!("{FROM}10"), "limit=100".into(), format!("{FROM}30")] {
        assert_eq!(run.next().await, expected);
    }
    assert_eq!((run.value("a"), run.value("b")), (Some(1), None));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_stops_neither_list_nor_watch() {
    let broken = event("MODIFIED", &object("a", 11, "{}"));
    let fine = event("ADDED", &object("c", 12, "3"));
    let mut run = RunningWatch::start(vec![
        list(10, &[object("a", 5, "1"), object("b", 6, "\"text\"")]),
        watch_events(&[&broken, &fine]),
        hanging_watch(&[]),
    ]);
    for _ in 0..3 {
        run.next().await;
    }
    assert_eq!(run.value("b"), None);
    assert_eq!(run.value("a"), None, "it must not be acted on as it was before");
    assert_eq!(run.value("c"), Some(3));
}

#[tokio::test(start_paused = true)]
async fn a_connection_on_which_nothing_comes_is_given_up_within_thirty_seconds() {
    let mut run = RunningWatch::start(vec![list(10, &[]), hanging_watch(&[&event("ADDED", &object("a", 11, "1"))])]);
    run.next().await;
    run.next().await;
    let silent_since = tokio::time::Instant::now();
    assert_eq!(run.next().await, format!("{FROM}11"));
    assert!(silent_since.elapsed() <= Duration::from_secs(30), "{:?}", silent_since.elapsed());
    assert_eq!(run.value("a"), Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_comes_back_is_noticed_within_two_seconds() {
    let mut run = RunningWatch::start((0..20).map(|_| no_connection()).collect());
    run.next().await;
    let begun = tokio::time::Instant::now();
    for _ in 0..20 {
        let before = tokio::time::Instant::now();
        run.next().await;
        assert!(before.elapsed() <= Duration::from_secs(2), "{:?}", before.elapsed());
    }
    assert!(begun.elapsed() >= Duration::from_secs(12), "twenty attempts in {:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_is_named_until_it_is_given() {
    let message = r#"agents.agents.recif.dev is forbidden: User \"x\" cannot list resource \"agents\""#;
    let refusal = response(403, format!(r#"{{"message":"{message}","reason":"Forbidden","code":403}}"#));
    let mut run = RunningWatch::start(vec![refusal, list(10, &[]), hanging_watch(&[])]);
    run.next().await;
    until(|| run.watch_health.unready().iter().any(|line| line.contains("cannot list resource"))).await;
    until(|| run.watch_health.unready().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_long_list_comes_in_pages() {
    let page =
        format!(r#"{{"metadata":{{"resourceVersion":"10","continue":"x/y"}},"items":[{}]}}"#, object("a", 5, "1"));
    let mut run = RunningWatch::start(vec![response(200, page), list(10, &[object("b", 6, "2")]), hanging_watch(&[])]);
    assert_eq!(run.next().await, "limit=100");
    assert_eq!(run.next().await, "limit=100&continue=x%2Fy");
    assert_eq!(run.next().await, format!("{FROM}10"));
    assert_eq!((run.value("a"), run.value("b")), (Some(1), Some(2)));
}

fn refusal(code: u16, more: &str) -> ScriptedResponse {
    response(code, format!(r#"{{"message":"no","code":{code}{more}}}"#))
}

#[tokio::test(start_paused = true)]
async fn a_right_that_is_lost_after_the_first_list_is_asked_for_again_and_costs_the_objects_after_ten_minutes() {
    let again = |_| refusal(403, "");
    let mut answers = vec![list(10, &[object("a", 5, "1")]), watch_events(&[&event("ADDED", &object("b", 11, "2"))])];
    answers.extend((0..60).map(again));
    let mut run = RunningWatch::start(answers);
    run.next().await;
    run.next().await;
    let lost = tokio::time::Instant::now();
    until(|| !run.watch_health.notes().is_empty()).await;
    let mut last = lost.elapsed();
    while last < Duration::from_secs(565) {
        assert_eq!(run.next().await, format!("{FROM}11"), "the version is kept");
        let asked = lost.elapsed();
        assert!(asked < last + Duration::from_secs(31), "{last:?} {asked:?}");
        last = asked;
        assert_eq!((run.value("a"), run.watch_health.unready()), (Some(1), vec![]));
    }
    while run.value("a").is_some() {
        run.next().await;
        assert!(lost.elapsed() < Duration::from_secs(700));
    }
    assert_eq!(run.value("b"), None);
    assert_eq!(run.watch_health.unready(), [""; 0], "it stays ready");
    assert!(run.watch_health.unlisted("Agent", "ns").unwrap().refused, "what there is, is unknown");
    assert_eq!(run.next().await, "limit=100");
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_defined_has_no_objects() {
    let mut answers = vec![list(10, &[object("a", 5, "1")]), watch_events(&[&event("ADDED", &object("b", 11, "2"))])];
    answers.extend((0..40).map(|_| refusal(404, "")));
    let mut run = RunningWatch::start(answers);
    run.next().await;
    run.next().await;
    let gone = tokio::time::Instant::now();
    while run.value("a").is_some() {
        run.next().await;
        assert!(gone.elapsed() < Duration::from_secs(20));
    }
    assert!(gone.elapsed() >= Duration::from_secs(10), "an API server that has just begun may not know it yet");
    assert_eq!((run.watch_health.unready(), run.watch_health.unlisted("Agent", "ns")), (vec![], None));
    assert!(run.watch_health.notes()[0].contains("CustomResourceDefinition"));
}

#[tokio::test(start_paused = true)]
async fn a_page_that_takes_too_long_is_asked_for_in_halves_and_what_came_before_is_kept() {
    let first =
        format!(r#"{{"metadata":{{"resourceVersion":"10","continue":"x"}},"items":[{}]}}"#, object("a", 5, "1"));
    let more = format!(r#"{{"metadata":{{"resourceVersion":"10","continue":"y"}},"items":[{}]}}"#, object("b", 6, "2"));
    let large = refusal(413, "");
    let answers = vec![
        response(200, first),
        hanging_watch(&[]),
        large,
        response(200, more),
        list(10, &[object("c", 7, "3")]),
        hanging_watch(&[]),
    ];
    let mut run = RunningWatch::start(answers);
    for expected in ["limit=100", "limit=100&continue=x", "limit=50&continue=x", "limit=25&continue=x"] {
        assert_eq!(run.next().await, expected);
    }
    assert_eq!(run.next().await, "limit=25&continue=y");
    assert_eq!(run.next().await, format!("{FROM}10"));
    assert_eq!((run.value("a"), run.value("b"), run.value("c")), (Some(1), Some(2), Some(3)));
}

#[tokio::test(start_paused = true)]
async fn a_server_with_too_much_to_do_is_left_alone_for_as_long_as_it_says_and_keeps_the_version() {
    let busy = || refusal(429, r#","details":{"retryAfterSeconds":7}"#);
    let mut run = RunningWatch::start(vec![busy(), list(10, &[]), busy(), busy(), busy(), busy(), hanging_watch(&[])]);
    run.next().await;
    let before = tokio::time::Instant::now();
    assert_eq!(run.next().await, "limit=100");
    assert!(before.elapsed() >= Duration::from_secs(7), "{:?}", before.elapsed());
    for _ in 0..5 {
        assert_eq!(run.next().await, format!("{FROM}10"));
    }
    assert!(before.elapsed() >= Duration::from_secs(35), "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_was_put_back_is_taken_as_it_is_after_a_second_look() {
    let mut run = RunningWatch::start(vec![
        list(100, &[object("a", 50, "1"), object("late", 90, "2")]),
        watch_events(&[]),
        list(40, &[]),
        list(41, &[object("a", 30, "7"), object("back", 20, "3")]),
        watch_events(&[&event("MODIFIED", &object("a", 45, "8"))]),
    ]);
    for expected in ["limit=100", &format!("{FROM}100"), "limit=1", "limit=100", &format!("{FROM}41")] {
        assert_eq!(run.next().await, expected);
    }
    assert_eq!((run.value("late"), run.value("back")), (None, Some(3)));
    assert_eq!(run.next().await, format!("{FROM}45"));
    assert_eq!(run.value("a"), Some(8), "it follows from there");
}

#[tokio::test(start_paused = true)]
async fn one_list_that_is_behind_changes_nothing() {
    let gone = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}"#;
    let mut run = RunningWatch::start(vec![
        list(100, &[object("a", 50, "1")]),
        watch_events(&[gone]),
        list(40, &[]),
        list(101, &[object("a", 50, "1")]),
        hanging_watch(&[]),
    ]);
    let seen = Arc::new(Mutex::new(0));
    let changes = seen.clone();
    run.map.subscribe(move |_| *changes.lock().unwrap() += 1);
    for expected in ["limit=100", &format!("{FROM}100"), "limit=100", "limit=100", &format!("{FROM}101")] {
        assert_eq!(run.next().await, expected);
    }
    assert_eq!((run.value("a"), *seen.lock().unwrap()), (Some(1), 1));
}

#[tokio::test(start_paused = true)]
async fn where_a_lease_shows_the_stores_version_nothing_is_asked_for_it() {
    let mut run = RunningWatch::start(vec![
        list(100, &[object("a", 50, "1")]),
        watch_events(&[]),
        list(41, &[object("a", 30, "7")]),
        hanging_watch(&[]),
    ]);
    run.watch_health.record_store_version(40);
    for expected in ["limit=100", &format!("{FROM}100"), "limit=100", &format!("{FROM}41")] {
        assert_eq!(run.next().await, expected);
    }
    assert_eq!(run.value("a"), Some(7));
}
