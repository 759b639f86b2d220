//! The script of the comparison, played to this server: codes and messages are those that it expects.

#![allow(clippy::unwrap_used)]

mod common;

use apiserver::comparison::{Player, script};
use common::server;
use http_body_util::BodyExt;
use tower::ServiceExt;

#[tokio::test]
async fn the_script_is_answered_as_it_says() {
    let (server, mut player) = (server(), Player::new("default"));
    let mut failed = Vec::new();
    for step in script().unwrap() {
        let response = server.clone().oneshot(player.request(&step).unwrap()).await.unwrap();
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let answer = player.answer(&step, code, &body);
        let message = answer.body["message"].as_str().unwrap_or_default();
        if answer.code != step.code || !message.contains(step.message.as_deref().unwrap_or_default()) {
            failed.push(format!("{}: {} {message}", step.name, answer.code));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[tokio::test]
async fn two_servers_give_the_same_answers_but_for_uids_versions_and_times() {
    let mut answers = Vec::new();
    for _ in 0..2 {
        let (server, mut player) = (server(), Player::new("default"));
        let mut mine = Vec::new();
        for step in script().unwrap() {
            let response = server.clone().oneshot(player.request(&step).unwrap()).await.unwrap();
            let code = response.status().as_u16();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            mine.push((step.name.clone(), player.answer(&step, code, &body)));
        }
        answers.push(mine);
    }
    assert_eq!(answers[0], answers[1]);
}
