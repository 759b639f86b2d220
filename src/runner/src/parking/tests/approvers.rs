//! Turns that an approver decides on.

use super::*;
use crate::caller::CallerKey;

/// Returns an approver of this name.
fn approver(name: &str) -> CallerContext {
    CallerContext { user: Some(name.into()), is_approver: true, ..CallerContext::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approver_decides_for_the_caller_and_alone_where_an_approver_has_to() {
    let server = PostgresServer::start().await;
    let (ada, bob): (UserName, UserName) = (Some("ada".into()), Some("bob".into()));
    let for_approver = || ParkedTurn { by: Decider::Approver, ..turn(60, false) };
    for parked in both(&server) {
        for (task, turn) in [("caller", turn(60, false)), ("approver", for_approver())] {
            assert!(is_parked(parked.park(&id(task), &ada, &turn).await));
        }
        let asked = |turns: Vec<WaitingTurn>| {
            let shown = turns.into_iter().map(|turn| serde_json::to_value(turn).unwrap());
            let mut shown: Vec<_> = shown.map(|turn| (turn["user"].clone(), turn["approval"]["by"].clone())).collect();
            shown.sort_by_key(|(_, by)| by.to_string());
            shown
        };
        let expected = [(json!("ada"), json!("Approver")), (json!("ada"), json!("Caller"))];
        assert_eq!(asked(parked.all_waiting().await.unwrap()), expected);
        assert_eq!(asked(parked.waiting(&ada).await.unwrap()), expected);
        assert!(parked.waiting(&bob).await.unwrap().is_empty());
        for (user, is_approver, expected) in [(&ada, false, true), (&bob, false, false), (&bob, true, true)] {
            let shown = parked.waiting_for("approver", user, is_approver).await.unwrap();
            assert_eq!(shown.is_some(), expected, "{user:?} {is_approver}");
        }

        let plain = |user: &UserName| CallerContext { user: user.clone(), ..CallerContext::default() };
        for (caller, expected) in [
            (
                plain(&ada),
                "an approver other than the caller decides this: it takes the right to create agents/approve",
            ),
            (
                approver("ada"),
                "an approver other than the caller decides this: it takes the right to create agents/approve",
            ),
            (
                plain(&bob),
                "an approver other than the caller decides this: it takes the right to create agents/approve",
            ),
            (plain(&None), "sign in to approve: the gateway needs --auth kubernetes"),
        ] {
            let refused = parked.decide("approver", &caller, false, decisions(true)).await.unwrap_err();
            assert!(refused.to_string().starts_with(expected), "{:?}: {refused}", caller.user);
        }
        let claimed = parked.decide("approver", &approver("bob"), false, decisions(true)).await.unwrap();
        assert_eq!((&claimed.owner, &claimed.turn), (&ada, &for_approver()));
        assert_eq!(claimed.ruling.unwrap().by_whom(), " by bob");
        let late = parked.decide("approver", &approver("eve"), false, decisions(false)).await.unwrap_err();
        assert_eq!(late.to_string(), "already decided by bob");

        let stranger = parked.decide("caller", &plain(&bob), false, decisions(true)).await.unwrap_err();
        assert!(matches!(stranger, DecisionError::UnknownTask(_)), "{stranger}");
        let claimed = parked.decide("caller", &approver("bob"), false, decisions(false)).await.unwrap();
        assert_eq!((claimed.owner, claimed.ruling.unwrap().by_whom()), (ada.clone(), " by bob".to_owned()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_decision_of_an_approver_waits_for_a_caller_whose_headers_or_key_are_needed() {
    let server = PostgresServer::start().await;
    let ada: UserName = Some("ada".into());
    let keyed = CallerContext { key: Some(CallerKey("k".into())), user: ada.clone(), ..CallerContext::default() };
    let nothing: Decisions = serde_json::from_value(json!({ "approvals": [] })).unwrap();
    for parked in both(&server) {
        for (task, needs_key) in [("headers", false), ("key", true)] {
            let turn = ParkedTurn { by: Decider::Approver, ..turn(60, true) };
            assert!(is_parked(parked.park(&id(task), &ada, &turn).await));
            let undecided = parked.claim_decided(task, &keyed, needs_key).await.unwrap();
            assert!(undecided.is_none(), "{task} waits for a decision");
            for is_first in [true, false] {
                let kept = parked.decide(task, &approver("bob"), needs_key, decisions(true)).await.unwrap_err();
                let DecisionError::Kept(kept) = kept else { panic!("{kept}") };
                assert!(kept.waiting.decided && kept.is_new == is_first, "{task}");
            }
            let other = parked.decide(task, &approver("eve"), needs_key, decisions(true)).await.unwrap_err();
            assert_eq!(other.to_string(), "already decided by bob");
            let against = parked.decide(task, &keyed, needs_key, decisions(false)).await.unwrap_err();
            assert!(matches!(against, DecisionError::NotApprover), "{against}");
            if needs_key {
                let keyless = CallerContext { key: None, ..keyed.clone() };
                let refused = parked.decide(task, &keyless, needs_key, decisions(true)).await.unwrap_err();
                assert!(matches!(refused, DecisionError::Model(_)), "{refused}");
                assert!(parked.claim_decided(task, &keyless, needs_key).await.unwrap().is_none());
            }
            assert!(parked.claim_due().await.unwrap().is_none(), "it waits for its caller");
            let others = parked.claim_decided(task, &approver("bob"), needs_key).await.unwrap();
            assert!(others.is_none(), "{task} is another user's");
            let again = if needs_key { decisions(true) } else { nothing.clone() };
            let claimed = parked.decide(task, &keyed, needs_key, again).await.unwrap();
            assert_eq!((&claimed.owner, claimed.ruling.unwrap().by_whom()), (&ada, " by bob".to_owned()));
            let continued = parked.claim_decided(task, &keyed, needs_key).await.unwrap();
            assert!(continued.is_none(), "{task} is being continued");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approver_sees_first_what_waits_and_of_that_a_bounded_number() {
    let server = PostgresServer::start().await;
    let (ada, bob): (UserName, UserName) = (Some("ada".into()), Some("bob".into()));
    for parked in both(&server) {
        for (task, seconds, user) in [("decided", 50, &ada), ("late", 70, &bob), ("soon", 60, &ada)] {
            assert!(is_parked(parked.park(&id(task), user, &turn(seconds, false)).await));
        }
        parked.decided("decided", &ada, decisions(true)).await.unwrap();
        let shown =
            |turns: Vec<WaitingTurn>| turns.iter().map(|turn| turn.parked.task().to_owned()).collect::<Vec<_>>();
        assert_eq!(shown(parked.all_waiting().await.unwrap()), ["soon", "late", "decided"]);
        assert_eq!(shown(parked.waiting(&ada).await.unwrap()), ["decided", "soon"]);
        for number in 2..MOST_OF_USER {
            assert!(is_parked(parked.park(&id(&number.to_string()), &ada, &turn(55, false)).await), "{number}");
        }
        let all = shown(parked.all_waiting().await.unwrap());
        assert_eq!((all.len(), all.last().map(String::as_str)), (100, Some("late")), "the decided one is left out");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_that_know_no_approver_decide_no_turn_of_one() {
    let server = PostgresServer::start().await;
    let parked = ParkedTurns::open(open(&server).database_scope());
    let turn = ParkedTurn { by: Decider::Approver, ..turn(60, false) };
    assert!(is_parked(parked.park(&id("t"), &None, &turn).await));
    let row = server.connect().await.fetch_one("SELECT calls, turn FROM recif_parked").await.unwrap();
    let calls: serde_json::Value = serde_json::from_str(row.get("calls")).unwrap();
    assert_eq!(calls[0]["approver"]["name"], "pay");
    assert!(serde_json::from_value::<Vec<ToolCall>>(calls).is_err(), "they read a list of calls");
    let mut before: serde_json::Value = serde_json::from_str(row.get("turn")).unwrap();
    before.as_object_mut().unwrap().remove("by");
    let before: ParkedTurn = serde_json::from_value(before).unwrap();
    assert_eq!(before.by, Decider::Caller, "turns that they parked are for their callers");
}
