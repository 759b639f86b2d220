//! Test of the running server by [Schemathesis](https://schemathesis.readthedocs.io/): whatever requests it generates from the
//! OpenAPI document, each response conforms to the document, and none is a server error.

use std::process::Stdio;

use serde_json::json;
use testing::peers;
use tokio::{net::TcpListener, process::Command};
use tokio_util::sync::CancellationToken;

use super::router;
use crate::{fleet::testing::TestFleet, serve, testing::app_with_history};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_of_schemathesis_is_answered_wrongly() {
    let mut stage = TestFleet::new();
    stage.agent("default", "a", "Running");
    stage.agent("default", "b", "Failed");
    stage.put("RemoteMCPServer", "default", "s", json!({ "url": "http://h/mcp" }), json!(null));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (url, stop) = (format!("http://{}", listener.local_addr().unwrap()), CancellationToken::new());
    let (app, _database) = app_with_history(&stage.fleet).await;
    let server = tokio::spawn(serve::run(listener, None, router(app), stop.clone()));
    let folder = std::env::temp_dir().join(format!("recif-schemathesis-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut command = Command::from(peers::python("rest_client.py"));
    command.args(["run", &format!("{url}/openapi.json"), "--url", &url, "--seed", "1", "--max-examples", "10"]);
    // Schemathesis cannot read a response without an end. A cursor is valid for one list only, which no schema can express.
    command.args(["--exclude-path", "/v1/events", "--exclude-checks", "positive_data_acceptance"]);
    // Schemathesis writes its findings into the current folder.
    command.current_dir(&folder).stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await.unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    assert!(stdout.contains("Tested: "), "{stdout}");
    stop.cancel();
    server.await.unwrap();
}
