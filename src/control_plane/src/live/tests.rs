use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    super::{
        auth::Auth,
        fleet::testing::TestFleet,
        testing::{GrantedRights, app, app_with_rights},
    },
    subscribers::{MAX_SUBSCRIBERS, MAX_SUBSCRIBERS_PER_ACCOUNT},
    *,
};
use crate::live::subscribers::Subscribers;

/// Client of the stream in a test.
struct TestSubscriber(BodyChunks);

impl TestSubscriber {
    async fn new(app: &SharedAppState, last: Option<&str>) -> Self {
        Self::of(app, ApiCaller::default(), last).await
    }

    async fn of(app: &SharedAppState, caller: ApiCaller, last: Option<&str>) -> Self {
        Self(subscribe(app.clone(), caller, last).await.unwrap())
    }

    async fn piece(&mut self) -> String {
        String::from_utf8(self.0.next().await.unwrap().data().to_vec()).unwrap()
    }

    /// Describes the events in the next chunk, each by type, object and id.
    async fn events(&mut self) -> String {
        let piece = self.piece().await;
        let events = piece.split("\n\n").filter(|event| !event.is_empty()).map(|event| {
            let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            let data: Value = field("data").map(|data| serde_json::from_str(data).unwrap()).unwrap_or_default();
            let what = match field("event") {
                Some("change") => {
                    format!("{} {}", data["type"].as_str().unwrap(), data["object"]["name"].as_str().unwrap())
                }
                Some("transition") => format!("{}>{}", data["from"].as_str().unwrap(), data["to"].as_str().unwrap()),
                other => other.unwrap_or("id").to_owned(),
            };
            format!("{what} {}", field("id").unwrap_or_default()).trim().to_owned()
        });
        events.collect::<Vec<_>>().join(", ")
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_is_told_where_it_is_and_what_changes_from_there() {
    let mut stage = TestFleet::new();
    stage.agent("ns", "old", "Running");
    let app = app(&stage.fleet, "");
    let mut reported = TestSubscriber::new(&app, None).await;
    assert_eq!(reported.events().await, "id e-1");
    stage.agent("ns", "new", "Pending");
    assert_eq!(reported.events().await, "applied new e-2");
    stage.delete("Agent", "ns", "old");
    assert_eq!(reported.events().await, "deleted old e-3");
}

#[tokio::test(start_paused = true)]
async fn what_happens_while_a_client_does_not_read_comes_in_its_newest_state() {
    let mut stage = TestFleet::new();
    let app = app(&stage.fleet, "");
    let mut reported = TestSubscriber::new(&app, None).await;
    reported.piece().await;
    for _ in 0..1000 {
        stage.agent("ns", "a", "Pending");
    }
    stage.agent("ns", "b", "Pending");
    stage.agent("ns", "a", "Running");
    assert_eq!(reported.events().await, "applied b e-1001, applied a e-1002");
}

#[tokio::test(start_paused = true)]
async fn what_happens_within_a_moment_comes_together() {
    let mut stage = TestFleet::new();
    let app = app(&stage.fleet, "");
    let mut reported = TestSubscriber::new(&app, None).await;
    reported.piece().await;
    let begin = Instant::now();
    stage.agent("ns", "a", "Pending");
    assert_eq!(reported.events().await, "applied a e-1");
    assert_eq!(begin.elapsed(), Duration::ZERO, "the first event is sent at once");
    stage.agent("ns", "b", "Pending");
    tokio::time::advance(Duration::from_millis(20)).await;
    stage.agent("ns", "c", "Pending");
    assert_eq!(reported.events().await, "applied b e-2, applied c e-3");
}

#[tokio::test(start_paused = true)]
async fn all_who_see_everything_are_sent_the_same_bytes() {
    let mut stage = TestFleet::new();
    let app = app(&stage.fleet, "");
    let (mut one, mut other) = (TestSubscriber::new(&app, None).await, TestSubscriber::new(&app, None).await);
    one.piece().await;
    stage.agent("ns", "a", "Pending");
    other.piece().await;
    for _ in 0..3 {
        let (ours, theirs) = (one.0.next().await.unwrap().data(), other.0.next().await.unwrap().data());
        assert_eq!((ours.as_ptr(), ours.len()), (theirs.as_ptr(), theirs.len()));
        stage.agent("ns", "a", "Running");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_far_behind_is_told_everything_in_portions() {
    let mut stage = TestFleet::new();
    (0..600).for_each(|number| stage.agent("ns", &format!("a{number}"), "Running"));
    let app = app(&stage.fleet, "");
    let mut reported = TestSubscriber::new(&app, Some("e-0")).await;
    reported.piece().await;
    let mut all = Vec::new();
    for expected in [256, 256, 88] {
        let events = reported.events().await;
        assert_eq!(events.split(", ").count(), expected);
        all.push(events);
    }
    let all = all.join(", ");
    let expected: Vec<_> = (0..600).map(|number| format!("applied a{number} e-{}", number + 1)).collect();
    assert_eq!(all, expected.join(", "));
}

#[tokio::test(start_paused = true)]
async fn a_client_goes_on_where_it_was_or_begins_anew() {
    let mut stage = TestFleet::new();
    ["a", "b", "c"].iter().for_each(|name| stage.agent("ns", name, "Pending"));
    let app = app(&stage.fleet, "");
    let mut reported = TestSubscriber::new(&app, Some("e-1")).await;
    assert_eq!(reported.events().await, "id e-1");
    assert_eq!(reported.events().await, "applied b e-2, applied c e-3");
    for unknown in ["other-1", "e-4", "e-x", "e", "1", "e--1"] {
        let mut reported = TestSubscriber::new(&app, Some(unknown)).await;
        assert_eq!(reported.events().await, "reset e-3", "{unknown}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_missed_too_much_reads_its_lists_again() {
    let mut stage = TestFleet::new();
    stage.agent("ns", "a", "Running");
    let app = app(&stage.fleet, "");
    let mut reported = TestSubscriber::new(&app, None).await;
    reported.piece().await;
    for number in 0..4200 {
        let name = format!("n{number}");
        stage.agent("ns", &name, "Pending");
        stage.delete("Agent", "ns", &name);
    }
    assert_eq!(reported.events().await, format!("reset e-{}", stage.fleet.last()));
    stage.agent("ns", "a", "Failed");
    assert!(reported.events().await.starts_with("applied a"));
}

#[tokio::test(start_paused = true)]
async fn steps_come_before_the_change_that_they_led_to() {
    let mut stage = TestFleet::new();
    let app = app(&stage.fleet, "");
    let mut reported = TestSubscriber::new(&app, None).await;
    reported.piece().await;
    let entry = |seq: i64, from: &str, to: &str| json!({ "seq": seq, "at": "2026-01-01T00:00:00Z", "from": from, "to": to, "action": "x" });
    let history = json!([entry(1, "", "Pending"), entry(2, "Pending", "Resolving")]);
    stage.put("Prompt", "ns", "p", json!({ "content": "c" }), json!({ "phase": "Resolving", "history": history }));
    assert_eq!(reported.events().await, ">Pending, Pending>Resolving, applied p e-1");
}

#[tokio::test(start_paused = true)]
async fn silence_is_filled_and_the_end_is_an_end() {
    let stage = TestFleet::new();
    let stop = CancellationToken::new();
    let mut parts = Arc::into_inner(app(&stage.fleet, "")).unwrap();
    parts.subscribers = Subscribers::new(stop.clone());
    let app = Arc::new(parts);
    let mut reported = TestSubscriber::new(&app, None).await;
    reported.piece().await;
    let begin = Instant::now();
    assert_eq!(reported.piece().await, ":\n\n");
    assert_eq!(begin.elapsed(), KEEPALIVE_INTERVAL);
    assert_eq!(app.subscribers.count(), 1);
    stop.cancel();
    assert!(reported.0.next().await.is_none());
    drop(reported);
    assert_eq!(app.subscribers.count(), 0);
}

#[tokio::test]
async fn there_are_only_so_many_places() {
    let stage = TestFleet::new();
    let app = app(&stage.fleet, "");
    let all = app.subscribers.permits.clone().try_acquire_many_owned(u32::try_from(MAX_SUBSCRIBERS).unwrap()).unwrap();
    let refused = subscribe(app.clone(), ApiCaller::default(), None).await.map(drop).unwrap_err();
    assert_eq!(refused.status(), 503);
    drop(all);
    assert!(subscribe(app, ApiCaller::default(), None).await.is_ok());
}

fn caller(app: &SharedAppState, name: &str) -> ApiCaller {
    let mut fields = http::HeaderMap::new();
    fields.insert("authorization", format!("Bearer {name}").parse().unwrap());
    app.auth.caller(&fields).unwrap()
}

#[tokio::test]
async fn a_client_takes_no_permits_of_others() {
    let stage = TestFleet::new();
    let (app, _) = app_with_rights(&stage.fleet);
    let mut all = Vec::new();
    for _ in 0..MAX_SUBSCRIBERS_PER_ACCOUNT {
        all.push(subscribe(app.clone(), caller(&app, "alice"), None).await.unwrap());
    }
    let refused = subscribe(app.clone(), caller(&app, "alice"), None).await.map(drop).unwrap_err();
    assert_eq!(refused.status(), 503);
    assert!(subscribe(app.clone(), caller(&app, "bob"), None).await.is_ok());
    all.pop();
    assert!(subscribe(app.clone(), caller(&app, "alice"), None).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_a_client_may_not_see_is_passed_over() {
    let mut stage = TestFleet::new();
    let (app, given) = app_with_rights(&stage.fleet);
    assert!(matches!(app.auth, Auth::Kubernetes(..)));
    given.grant("alice list agents mine");
    let mut reported = TestSubscriber::of(&app, caller(&app, "alice"), None).await;
    reported.piece().await;
    stage.agent("theirs", "a", "Running");
    stage.put("Prompt", "mine", "p", json!({ "content": "c" }), json!(null));
    // That namespace had no objects when the stream began.
    stage.agent("mine", "b", "Running");
    assert_eq!(reported.events().await, "applied b e-3");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_last_object_of_a_namespace_is_told() {
    let mut stage = TestFleet::new();
    stage.agent("mine", "a", "Running");
    stage.delete("Agent", "mine", "a");
    let (app, given) = app_with_rights(&stage.fleet);
    given.grant("alice list agents mine");
    let mut reported = TestSubscriber::of(&app, caller(&app, "alice"), Some("e-1")).await;
    reported.piece().await;
    assert_eq!(reported.events().await, "deleted a e-2");
}

#[tokio::test(start_paused = true)]
async fn a_client_whose_rights_change_reads_its_lists_again() {
    let mut stage = TestFleet::new();
    stage.agent("mine", "a", "Running");
    let (app, given) = app_with_rights(&stage.fleet);
    let mut reported = TestSubscriber::of(&app, caller(&app, "alice"), None).await;
    reported.piece().await;
    for change in [GrantedRights::grant, GrantedRights::revoke] {
        change(&given, "alice list agents mine");
        let mut piece = reported.piece().await;
        for _ in 0..20 {
            if piece != ":\n\n" {
                break;
            }
            piece = reported.piece().await;
        }
        assert!(piece.starts_with("event: reset\n"), "{piece}");
    }
}
