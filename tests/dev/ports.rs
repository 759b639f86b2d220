//! Ports that are taken, and flags that cannot be used.

use std::net::TcpListener;

use super::harness::{Dev, ended, folder, output, recif, text};

#[tokio::test]
async fn usual_ports_that_are_taken_are_told_with_the_ones_in_their_place() {
    let folder = folder("taken");
    // Another process may already hold them.
    let _taken = [8080, 8780].map(|port| TcpListener::bind(("127.0.0.1", port)));
    let mut dev = Dev::of(recif(&folder, &["dev", "-o", "json"]), &folder).await;
    let gateway = dev.told("port 8080 is taken: the gateway is at http://127.0.0.1:").await;
    assert!(gateway["event"] == "note" && gateway["text"].as_str().unwrap().ends_with(&dev.gateway), "{gateway}");
    let ui = dev.told("port 8780 is taken: the web UI is at http://127.0.0.1:").await;
    let start = dev.seen.iter().find(|event| event["event"] == "start").unwrap();
    assert!(ui["text"].as_str().unwrap().ends_with(start["ui"].as_str().unwrap()), "{ui}");
    dev.ready().await;
    assert_eq!(dev.chat("my-agent", "hello").await.0, 200);
}

#[tokio::test]
async fn the_port_of_a_flag_that_is_taken_is_no_start() {
    let folder = folder("flags");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for flag in ["--gateway-port", "--ui-port", "--api-port"] {
        let others = ["--gateway-port", "--ui-port"].into_iter().filter(|other| *other != flag);
        let others: Vec<&str> = others.flat_map(|other| [other, "0"]).collect();
        let refused = ended(recif(&folder, &[&["dev", flag, &port], others.as_slice()].concat())).await;
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        let expected = format!("error: {flag} {port} is taken: choose another one, or leave the flag out\n");
        assert_eq!(said, expected);
    }
}

#[tokio::test]
async fn what_the_user_can_put_right_is_told_before_anything_runs() {
    let folder = folder("usage");
    for (arguments, words) in [
        (vec!["none.yaml"], "error: none.yaml: ".to_owned()),
        (vec!["--env-file", "none.env"], "error: --env-file none.env: there is no such file".to_owned()),
    ] {
        let refused = output(&folder, &arguments).await;
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.starts_with(&words), "{said}");
    }
}
