//! Discoveries at well-behaved servers of each era: tools, sessions and notifications of changes.

use futures::FutureExt;
use tokio::time::timeout;

use super::*;
use testing::mcp_server::ReferenceServer;

#[tokio::test]
async fn the_reference_server_tells_its_tools() {
    let server = ReferenceServer::start(0);
    let answer = ask(&question(server.url().as_str())).await.unwrap();
    let echo = answer.tools.iter().find(|tool| tool.name == "echo").unwrap();
    assert_eq!(echo.input_schema["properties"]["message"]["type"], "string");
    assert!(!echo.description.is_empty() && !answer.has_more);
    assert!(answer.tools.iter().any(|tool| tool.output_schema.is_some()));
    assert_eq!((answer.era, answer.revision.as_str()), (Era::Initialize, "2025-11-25"));
    assert!(answer.server.0.contains("everything"), "{:?}", answer.server);
    assert!(answer.changes.is_some(), "it says that it tells of changes");
    let again = DiscoveryRequest { era: Some(Era::Initialize), ..question(server.url().as_str()) };
    assert_eq!(ask(&again).await.unwrap().tools, answer.tools);
}

#[tokio::test]
async fn all_pages_are_read_with_the_headers_and_the_session_is_ended() {
    let (question, asked) = start_older(3, 2).await;
    let answer = ask(&question).await.unwrap();
    assert_eq!((answer.tools.len(), answer.has_more, answer.era), (6, false, Era::Initialize));
    assert_eq!(answer.server, ("old".to_owned(), "1".to_owned()));
    let asked = std::mem::take(&mut *asked.lock().unwrap());
    let methods: Vec<_> =
        asked.iter().map(|(_, method, _)| method.as_str()).filter(|method| !method.is_empty()).collect();
    let expected =
        ["server/discover", "initialize", "notifications/initialized", "tools/list", "tools/list", "tools/list"];
    assert_eq!(methods, expected);
    assert_eq!(asked.last().unwrap(), &(Method::DELETE, String::new(), "s1".to_owned()));
}

#[tokio::test]
async fn what_worked_is_asked_first_the_next_time() {
    let (question, asked) = start_older(1, 1).await;
    ask(&DiscoveryRequest { era: Some(Era::Initialize), ..question }).await.unwrap();
    assert!(asked.lock().unwrap().iter().all(|(_, method, _)| method != "server/discover"));
}

#[tokio::test]
async fn a_server_of_the_first_revision_is_asked_over_its_stream_of_events() {
    let question = |url: String| DiscoveryRequest { sse: true, ..question(&url) };
    let answer = ask(&question(first_revision("/messages?session=1", None).await)).await.unwrap();
    assert_eq!((answer.tools[0].name.as_str(), answer.revision.as_str()), ("old", "2024-11-05"));
    assert_eq!(answer.era, Era::Initialize);
    let failed = ask(&question(first_revision("http://elsewhere.example/messages", None).await)).await.unwrap_err();
    assert_eq!(failed.reason, "ServerRefused");
    assert!(failed.message.contains("at another origin"), "{failed:?}");
    let failed = ask(&question(format!("{}/html", odd().await))).await.unwrap_err();
    assert!(failed.message.contains("no stream of events"), "{failed:?}");
    let failed = ask(&question(format!("{}/endless-events", odd().await))).await.unwrap_err();
    assert!(failed.message.contains("it sent more than 2 MiB"), "{failed:?}");
    let failed = ask(&question(format!("{}/not-there", odd().await))).await.unwrap_err();
    assert!(failed.message.contains("HTTP 404"), "{failed:?}");
}

#[tokio::test]
async fn a_server_that_says_that_its_tools_changed_is_heard_and_its_session_is_ended_then() {
    let (changed, deleted) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell, ended) = (changed.clone(), deleted.clone());
    let answer = move |method: Method, body: Bytes| {
        let (tell, ended) = (tell.clone(), ended.clone());
        async move {
            let request: Value = serde_json::from_slice(&body).unwrap_or_default();
            let result = match (method, request["method"].as_str()) {
                (Method::GET, _) => {
                    let event = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
                    let reported = stream::once(async move {
                        tell.notified().await;
                        Ok::<_, Infallible>(format!("event: message\ndata: {event}\n\n"))
                    });
                    let body = Body::from_stream(reported.chain(stream::pending()));
                    return ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response();
                }
                (Method::DELETE, _) => {
                    ended.notify_one();
                    return StatusCode::OK.into_response();
                }
                (_, Some("initialize")) => json!({
                    "protocolVersion": "2025-06-18", "capabilities": {"tools": {"listChanged": true}},
                    "serverInfo": {"name": "talks", "version": "1"},
                }),
                (_, Some("tools/list")) => json!({"tools": []}),
                (_, Some("server/discover")) => return StatusCode::BAD_REQUEST.into_response(),
                _ => return StatusCode::ACCEPTED.into_response(),
            };
            let mut answer = json_answer(json!({"jsonrpc": "2.0", "id": request["id"], "result": result}));
            answer.headers_mut().insert("mcp-session-id", HeaderValue::from_static("s1"));
            answer
        }
    };
    let url = serve(Router::new().route("/mcp", any(answer))).await + "/mcp";
    let mut changes = ask(&question(&url)).await.unwrap().changes.unwrap();
    assert!(changes.next().now_or_never().is_none(), "nothing changed yet");
    changed.notify_one();
    timeout(Duration::from_secs(20), changes.next()).await.unwrap();
    changes.close().await;
    timeout(Duration::from_secs(20), deleted.notified()).await.unwrap();
}

#[tokio::test]
async fn a_server_of_the_newer_era_is_listened_to_and_says_how_long_its_list_holds() {
    let (change, left) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let url = newer(change.clone(), left.clone()).await;
    let answer = ask(&question(&url)).await.unwrap();
    assert_eq!((answer.era, answer.ttl), (Era::Discover, Some(Duration::from_secs(90))));
    assert_eq!(answer.tools[0].name, "t");
    let mut changes = answer.changes.unwrap();
    assert!(changes.next().now_or_never().is_none(), "nothing changed yet");
    change.notify_one();
    timeout(Duration::from_secs(20), changes.next()).await.unwrap();
    changes.close().await;
    timeout(Duration::from_secs(20), left.notified()).await.unwrap();
}
