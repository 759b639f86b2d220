//! A node on an API server in memory, and a small program that it runs: the test program itself, in the mode that `MODE` names.

#![allow(dead_code, clippy::panic, clippy::print_stdout)]

use std::{
    collections::BTreeMap,
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use apiserver::ApiServer;
use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Event, Pod},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, LogParams, Patch, PatchParams},
    core::DynamicObject,
};
use node::{Environment, LineSource, LocalNode, Names, NodeConfig, Output, Programs, Tokens};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// Longest time to wait for a condition.
const PATIENCE: Duration = Duration::from_secs(30);

/// Lines and notes of a node.
#[derive(Default)]
pub(crate) struct Screen {
    pub(crate) lines: Mutex<Vec<(LineSource, String)>>,
    pub(crate) notes: Mutex<Vec<(LineSource, String)>>,
    /// Text of a note at which the receiver panics, once.
    pub(crate) panics_at: Mutex<Option<String>>,
}

impl Output for Screen {
    fn line(&self, source: &LineSource, text: &str) {
        self.lines.lock().unwrap().push((source.clone(), text.to_owned()));
    }

    fn note(&self, source: &LineSource, text: &str) {
        let found = self.panics_at.lock().unwrap().take_if(|at| text.contains(at.as_str()));
        assert!(found.is_none(), "the test wants it");
        self.notes.lock().unwrap().push((source.clone(), text.to_owned()));
    }
}

/// A node that runs.
pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) screen: Arc<Screen>,
    pub(crate) folder: PathBuf,
    pub(crate) names: Names,
    pub(crate) tokens: Tokens,
    pub(crate) shutdown: CancellationToken,
    pub(crate) kill: CancellationToken,
    running: Option<JoinHandle<()>>,
}

impl World {
    /// Starts a node in a folder of its own.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("recif-node-world-{}-{number}", std::process::id()));
        Self::at(folder)
    }

    /// Starts a node in a folder.
    pub(crate) fn at(folder: PathBuf) -> Self {
        let tokens = Tokens::default();
        let known = tokens.clone();
        let server = ApiServer::new(Timestamp::now, move |token| known.account(token));
        let client = Client::new(server.clone(), "default");
        let config = NodeConfig {
            folder: folder.clone(),
            programs: Programs { proxy: "/bin/true".into(), runner: "/bin/true".into() },
            environment: Environment::of_user(),
            cluster_domain: "cluster.local".to_owned(),
            tokens: tokens.clone(),
        };
        let screen = Arc::new(Screen::default());
        let node = LocalNode::new(client.clone(), config, screen.clone()).unwrap();
        drop(server.with_logs(node.logs()));
        let (names, shutdown, kill) = (node.names(), CancellationToken::new(), CancellationToken::new());
        let running = Some(tokio::spawn(node.run(shutdown.clone(), kill.clone())));
        Self { client, screen, folder, names, tokens, shutdown, kill, running }
    }

    /// Ends the node and waits until it has ended.
    pub(crate) async fn end(&mut self) {
        self.shutdown.cancel();
        if let Some(running) = self.running.take() {
            tokio::time::timeout(PATIENCE, running).await.unwrap().unwrap();
        }
    }

    /// Applies an object.
    pub(crate) async fn apply(&self, object: Value) -> DynamicObject {
        let plurals = [
            ("Deployment", "deployments"),
            ("Service", "services"),
            ("ConfigMap", "configmaps"),
            ("Secret", "secrets"),
            ("Agent", "agents"),
        ];
        let kind = object["kind"].as_str().unwrap();
        let plural = plurals.iter().find(|(known, _)| *known == kind).unwrap().1;
        let (group, version) = object["apiVersion"].as_str().unwrap().rsplit_once('/').unwrap_or(("", "v1"));
        let gvk = kube::core::GroupVersionKind::gvk(group, version, kind);
        let resource = kube::core::ApiResource::from_gvk_with_plural(&gvk, plural);
        let api: Api<DynamicObject> = Api::default_namespaced_with(self.client.clone(), &resource);
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        api.patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(object)).await.unwrap()
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::default_namespaced(self.client.clone())
    }

    pub(crate) async fn pods(&self) -> Vec<Pod> {
        self.api::<Pod>().list(&ListParams::default()).await.unwrap().items
    }

    /// Waits until a question about the Pods is answered with yes.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&[Pod]) -> bool) -> Vec<Pod> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let pods = self.pods().await;
            if holds(&pods) {
                return pods;
            }
            if Instant::now() > deadline {
                let notes = self.screen.notes.lock().unwrap().clone();
                let status: Vec<_> = pods.iter().map(|pod| (pod.name_any(), pod.status.clone())).collect();
                panic!("{what}: {}\n{notes:#?}", serde_json::to_string_pretty(&status).unwrap());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until a Deployment has so many Pods of its newest template, and no other ones.
    pub(crate) async fn rolled_out(&self, name: &str, replicas: i32) -> Vec<Pod> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let deployment = self.api::<Deployment>().get(name).await.unwrap();
            let status = deployment.status.clone().unwrap_or_default();
            let counts = [status.replicas, status.updated_replicas, status.ready_replicas, status.available_replicas];
            let pods = self.pods().await;
            let is_seen = status.observed_generation == deployment.metadata.generation;
            if is_seen && counts == [Some(replicas); 4] && pods.len() == replicas as usize {
                return pods;
            }
            if Instant::now() > deadline {
                let notes = self.screen.notes.lock().unwrap().clone();
                let all: Vec<_> = pods.iter().map(|pod| (pod.name_any(), pod.status.clone())).collect();
                panic!("{name}: {status:#?} {}\n{notes:#?}", serde_json::to_string_pretty(&all).unwrap());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until a note holds a text, and returns it.
    pub(crate) async fn noted(&self, text: &str) -> (LineSource, String) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let notes = self.screen.notes.lock().unwrap().clone();
            if let Some(found) = notes.iter().find(|(_, note)| note.contains(text)) {
                return found.clone();
            }
            assert!(Instant::now() < deadline, "no note says {text}: {notes:#?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until a program has written a line that holds a text.
    pub(crate) async fn written(&self, text: &str) -> (LineSource, String) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let lines = self.screen.lines.lock().unwrap().clone();
            if let Some(found) = lines.iter().find(|(_, line)| line.contains(text)) {
                return found.clone();
            }
            assert!(
                Instant::now() < deadline,
                "no line says {text}: {lines:#?} {:#?}",
                self.screen.notes.lock().unwrap()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until an Event of a Pod of a Deployment has this type, reason and part of its message, and has come so often.
    pub(crate) async fn recorded(&self, deployment: &str, [type_, reason, message]: [&str; 3], count: i32) -> Event {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let events = self.api::<Event>().list(&ListParams::default()).await.unwrap().items;
            let of_pod = |event: &Event| {
                let pod = event.involved_object.name.as_deref().unwrap_or_default();
                event.involved_object.kind.as_deref() == Some("Pod") && pod.starts_with(&format!("{deployment}-"))
            };
            let fits = |&event: &&Event| {
                of_pod(event)
                    && event.type_.as_deref() == Some(type_)
                    && event.reason.as_deref() == Some(reason)
                    && event.message.as_deref().is_some_and(|text| text.contains(message))
                    && event.count >= Some(count)
            };
            if let Some(found) = events.iter().find(fits) {
                return found.clone();
            }
            assert!(Instant::now() < deadline, "no {type_} {reason} {message:?} of {deployment}: {events:#?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Returns the log of a Pod's container.
    pub(crate) async fn log(&self, pod: &str, previous: bool) -> Result<String, kube::Error> {
        let params = LogParams { container: Some("c".to_owned()), previous, ..LogParams::default() };
        self.api::<Pod>().logs(pod, &params).await
    }

    /// Returns what a Service answers to a GET through its relay, or the error.
    pub(crate) async fn ask(&self, url: &str) -> Result<String, String> {
        let url = self.names.replace(url, "default").ok_or("it is no Service")?;
        ask(url.strip_prefix("http://").unwrap()).await
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.kill.cancel();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Sends a GET and returns the body of the response.
pub(crate) async fn ask(address: &str) -> Result<String, String> {
    let attempt = async {
        let mut stream = tokio::net::TcpStream::connect(address).await?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok::<_, std::io::Error>(text)
    };
    let text = attempt.await.map_err(|error| error.to_string())?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| format!("no response: {text:?}"))?;
    if head.starts_with("HTTP/1.1 200") { Ok(body.to_owned()) } else { Err(head.to_owned()) }
}

/// Makes a Service of a Deployment.
pub(crate) fn service(name: &str, port: u16) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "labels": { "of": name } },
        "spec": { "selector": { "app": name }, "ports": [{ "name": "http", "port": port, "targetPort": "http" }] },
    })
}

/// Makes a Deployment with one container, to which fields are added.
pub(crate) fn deployment(name: &str, replicas: i32, container: Value) -> Value {
    let mut own = json!({ "name": "c", "image": "acme/x:1" });
    own.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "terminationGracePeriodSeconds": 5, "containers": [own] },
            },
        },
    })
}

/// Returns a container that runs a script.
pub(crate) fn script(text: &str) -> Value {
    json!({ "command": ["bash", "-c", text] })
}

/// Returns a container that runs [`program`] in a mode, with variables, and is ready when it answers.
pub(crate) fn server(mode: &str, port: u16, variables: &[(&str, &str)]) -> Value {
    let own = [("MODE", mode)];
    let all = own.iter().chain(variables).map(|(name, value)| json!({ "name": name, "value": value }));
    json!({
        "command": [std::env::current_exe().unwrap()],
        "args": ["program", "--exact", "--ignored", "--nocapture"],
        "env": all.collect::<Vec<_>>(),
        "ports": [{ "name": "http", "containerPort": port }],
        "readinessProbe": { "httpGet": { "port": "http" }, "periodSeconds": 1 },
        "lifecycle": { "preStop": { "exec": { "command": ["sleep", "0.2"] } } },
    })
}

/// The program: it answers each request with the text in `TEXT`, on the port in `PORT`, or in mode `fixed` on that in `FIXED`.
pub(crate) fn program() {
    let variables: BTreeMap<String, String> = std::env::vars().collect();
    let get = |name: &str| variables.get(name).cloned().unwrap_or_default();
    let port = if get("MODE") == "fixed" { get("FIXED") } else { get("PORT") };
    let listener = match TcpListener::bind(("127.0.0.1", port.parse::<u16>().unwrap())) {
        Ok(listener) => listener,
        Err(error) => {
            println!("listen on {port}: {error}");
            std::process::exit(1);
        }
    };
    println!("listening on {port} as {}", get("TEXT"));
    let body = get("TEXT");
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { continue };
        let mut buffer = [0; 4096];
        let _ = stream.read(&mut buffer);
        let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    }
}

/// Returns a port on which no program listens now.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Reports whether a process runs, as one that is no zombie.
pub(crate) fn runs(pid: &str) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
}
