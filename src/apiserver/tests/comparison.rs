//! The script of the comparison, played to this server: codes and messages are those that it expects.

#![allow(clippy::unwrap_used)]

mod common;

use apiserver::comparison::{DIFFERENCES, differences, play, script};
use bytes::Bytes;
use common::{call, server, server_with_moving_time};
use http_body_util::Full;
use serde_json::{Value, json};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

#[tokio::test]
async fn the_script_is_answered_as_it_says() {
    let answers = play::<_, Full<Bytes>, _>(server(), "default").await.unwrap();
    let mut failed = Vec::new();
    for (step, (name, answer)) in script().unwrap().iter().zip(&answers) {
        assert_eq!(&step.name, name);
        let message = answer.body["message"].as_str().unwrap_or_default();
        if answer.code != step.code || !message.contains(step.message.as_deref().unwrap_or_default()) {
            failed.push(format!("{name}: {} {message}", answer.code));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn the_page_for_developers_names_each_difference() {
    let page = include_str!("../../../docs/development.md");
    let (_, section) = page.split_once("## The API server in memory\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    for known in DIFFERENCES {
        assert!(
            section.contains(&format!("| {} |", known.reason)),
            "{}: {} is not documented",
            known.step,
            known.reason
        );
    }
}

/// Two servers in memory differ nowhere, so the differences from the real one are said to be gone, and nothing else is said; a
/// field that differs is found. The second one has other versions, and a time that moves between two writes.
#[tokio::test]
async fn two_servers_give_the_same_answers_but_for_uids_versions_and_times() {
    let first = play::<_, Full<Bytes>, _>(server(), "default").await.unwrap();
    let later = server_with_moving_time();
    call(&later, &format!("POST {SECRETS}"), json!({ "metadata": { "name": "before" } })).await;
    call(&later, &format!("DELETE {SECRETS}/before"), Value::Null).await;
    let mut second = play::<_, Full<Bytes>, _>(later, "default").await.unwrap();
    let said = differences(&first, &second);
    assert_eq!(said.len(), DIFFERENCES.len(), "{said:#?}");
    second[0].1.body["data"]["k"] = json!("another");
    let said = differences(&first, &second);
    assert_eq!(said.len(), DIFFERENCES.len() + 1, "{said:#?}");
    assert!(said[0].contains("/body/data/k: the real one has"), "{said:#?}");
}
