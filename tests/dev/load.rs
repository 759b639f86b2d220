//! Requests and streams while Pods are replaced, and Pods that follow the requests.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use serde_json::json;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    harness::{Dev, SOON, client, folder, save},
    samples::{PROGRAM, RUN_PROGRAM, custom},
};

/// Replacements of the program.
const RELOADS: usize = 50;
/// Clients that send one request after the other, and such ones that open one stream after the other.
const CLIENTS: usize = 4;
/// Pause of a client between two requests.
const PAUSE: Duration = Duration::from_millis(10);

/// Clients of an agent, until they are to stop.
#[derive(Default)]
struct Load {
    has_to_stop: AtomicBool,
    requests: AtomicUsize,
    streams: AtomicUsize,
    answers: Mutex<BTreeSet<String>>,
    failures: Mutex<Vec<String>>,
}

impl Load {
    /// Starts the clients.
    fn start(self: &Arc<Self>, url: &str, requests: usize, streams: usize) -> JoinSet<()> {
        let mut clients = JoinSet::new();
        for number in 0..requests + streams {
            clients.spawn(self.clone().ask(url.to_owned(), number < streams));
        }
        clients
    }

    /// Lets the clients end, each after its last request.
    async fn stop(&self, mut clients: JoinSet<()>) {
        self.has_to_stop.store(true, Relaxed);
        let ended = async { while clients.join_next().await.transpose().unwrap().is_some() {} };
        timeout(SOON, ended).await.unwrap();
    }

    async fn ask(self: Arc<Self>, url: String, is_stream: bool) {
        let client = client();
        while !self.has_to_stop.load(Relaxed) {
            let mut request = client.post(&url).json(&json!({ "message": "hello" })).timeout(SOON);
            if is_stream {
                request = request.header("accept", "text/event-stream");
            }
            let answered = async {
                let response = request.send().await?;
                let code = response.status();
                Ok::<_, reqwest::Error>((code, response.text().await?))
            };
            match answered.await {
                Ok((code, answer)) if code == 200 && is_stream && answer.ends_with("data: end\n\n") => {
                    self.streams.fetch_add(1, Relaxed);
                }
                Ok((code, answer)) if code == 200 && !is_stream => {
                    self.requests.fetch_add(1, Relaxed);
                    self.answers.lock().unwrap().insert(answer);
                }
                other => self.failures.lock().unwrap().push(format!("stream: {is_stream}, {other:?}")),
            }
            sleep(if is_stream { Duration::ZERO } else { PAUSE }).await;
        }
    }
}

/// Saves the agent, whose program answers with a number.
fn save_number(folder: &Path, number: usize) {
    let more = format!("env: [{{name: TEXT, value: \"{number}\"}}]");
    save(folder.join("x.yaml"), custom("x", RUN_PROGRAM, &more)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_and_no_stream_fails_while_a_program_is_replaced_again_and_again() {
    let folder = folder("load");
    save(folder.join("agent.py"), PROGRAM).unwrap();
    save_number(&folder, 0);
    let mut dev = Dev::start(&folder, &["x.yaml"]).await;
    dev.ready().await;
    let load = Arc::new(Load::default());
    let clients = load.start(&dev.chat_url("x"), CLIENTS, CLIENTS);
    for number in 1..=RELOADS {
        save_number(&folder, number);
        assert_eq!(dev.phase("agent/x", "Running").await, "replaced");
    }
    assert_eq!(dev.chat("x", "hello").await, (200, RELOADS.to_string()));
    load.stop(clients).await;
    let failures = load.failures.lock().unwrap().clone();
    let (requests, streams) = (load.requests.load(Relaxed), load.streams.load(Relaxed));
    assert!(failures.is_empty(), "{} of {requests} and {streams}: {failures:#?}", failures.len());
    // Each program was asked, so the requests came while it was replaced.
    let answers = load.answers.lock().unwrap().len();
    assert!(answers > RELOADS / 2, "{answers} programs have answered {requests} requests");
    assert!(streams > CLIENTS, "{streams}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_scales_from_zero_to_three_and_back_by_its_requests() {
    let folder = folder("scale");
    save(folder.join("agent.py"), PROGRAM).unwrap();
    let scaling = "scaling: {minReplicas: 0, maxReplicas: 3, concurrency: 1, stableWindow: 1s, scaleToZeroAfter: 1s}";
    save(folder.join("x.yaml"), custom("x", RUN_PROGRAM, scaling)).unwrap();
    let mut dev = Dev::start(&folder, &["x.yaml"]).await;
    dev.ready().await;
    dev.until_programs("x", 0).await;
    assert_eq!(dev.chat("x", "hello").await.0, 200, "the request starts a program");
    let load = Arc::new(Load::default());
    // More streams than programs, so that each has its one.
    let clients = load.start(&dev.chat_url("x"), 0, 6);
    dev.until_programs("x", 3).await;
    load.stop(clients).await;
    assert!(load.streams.load(Relaxed) > 0);
    dev.until_programs("x", 0).await;
    assert_eq!(dev.chat("x", "hello").await.0, 200, "it is as before");
}

#[tokio::test]
async fn replicas_of_a_file_are_the_programs_that_run() {
    let folder = folder("replicas");
    save(folder.join("agent.py"), PROGRAM).unwrap();
    let save = |replicas: usize| {
        let text = custom("x", RUN_PROGRAM, &format!("replicas: {replicas}"));
        save(folder.join("x.yaml"), text).unwrap();
    };
    save(0);
    let mut dev = Dev::start(&folder, &["x.yaml"]).await;
    dev.ready().await;
    for replicas in [0, 1, 3, 0] {
        save(replicas);
        dev.until_programs("x", replicas).await;
    }
}
