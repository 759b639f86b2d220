//! Fake providers: a loopback server with answers taken from the providers' public API references.

mod anthropic;
mod azure;
pub(super) mod bedrock;
mod bedrock_credentials;
mod choice;
mod counted;
mod failures;
mod fallback;
mod gemini;
mod ollama;
mod openai;
mod schemas;
mod turns;
mod vendors;
mod vertex;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use crds::provider::{PROVIDERS, STUB};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::{Chunk, Http, Message, Model, ModelError, ModelRef, ModelRequest, Thought, ToolCall, ToolSpec, open};

/// End of a reply.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ReplyEnd {
    /// Complete body.
    Whole,
    /// Open connection without further bytes.
    Silent,
    /// Broken connection.
    Cut,
    /// Comments of server-sent events without end.
    Comments,
}

/// Reply of the server.
#[derive(Debug, Clone)]
struct ScriptedReply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    /// Bytes per chunk of the body.
    piece: usize,
    end: ReplyEnd,
}

impl ScriptedReply {
    fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self { status: 200, headers: Vec::new(), body: body.into(), piece: usize::MAX, end: ReplyEnd::Whole }
    }

    fn status(status: u16) -> Self {
        Self { status, ..Self::ok(r#"{"error": {"message": "SECRET"}}"#) }
    }

    fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    fn pieces(self, piece: usize) -> Self {
        Self { piece, ..self }
    }

    fn ending(self, end: ReplyEnd) -> Self {
        Self { end, ..self }
    }

    fn respond(self, open: &Arc<watch::Sender<usize>>) -> Response {
        let pieces: Vec<io::Result<Bytes>> =
            self.body.chunks(self.piece).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        let rest = match self.end {
            ReplyEnd::Whole => stream::empty().boxed(),
            ReplyEnd::Silent => {
                let open = OpenReplyGuard::new(open.clone());
                stream::once(async move {
                    let _open = open;
                    std::future::pending().await
                })
                .boxed()
            }
            ReplyEnd::Comments => stream::unfold((), |()| async {
                tokio::time::sleep(Duration::from_millis(10)).await;
                Some((Ok(Bytes::from_static(b": wait\n\n")), ()))
            })
            .boxed(),
            ReplyEnd::Cut => stream::once(async {
                // Yields, so that the server flushes the body before the error.
                tokio::task::yield_now().await;
                Err(io::ErrorKind::BrokenPipe.into())
            })
            .boxed(),
        };
        let mut response = Response::builder().status(self.status);
        for (name, value) in self.headers {
            response = response.header(name, value);
        }
        response.body(Body::from_stream(stream::iter(pieces).chain(rest))).unwrap()
    }
}

/// Guard that counts a reply which has not ended.
struct OpenReplyGuard(Arc<watch::Sender<usize>>);

impl OpenReplyGuard {
    fn new(count: Arc<watch::Sender<usize>>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count)
    }
}

impl Drop for OpenReplyGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// Request as the server received it.
#[derive(Debug, Clone)]
struct RecordedRequest {
    path: String,
    headers: HeaderMap,
    /// Body, if it is JSON.
    body: Value,
    /// Body as it was sent.
    text: String,
}

#[derive(Clone)]
struct ProviderScript {
    replies: Arc<Vec<ScriptedReply>>,
    requests: Arc<watch::Sender<Vec<RecordedRequest>>>,
    silent: Arc<watch::Sender<usize>>,
}

/// Fake provider that gives its replies in order and repeats the last one.
struct Provider {
    address: SocketAddr,
    requests: watch::Receiver<Vec<RecordedRequest>>,
    /// Number of open replies that never end.
    silent: watch::Receiver<usize>,
    http: Http,
    pauses: Arc<Mutex<Vec<Duration>>>,
}

impl Provider {
    async fn new(replies: impl Into<Vec<ScriptedReply>>) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, asked) = watch::channel(Vec::new());
        let (count, silent) = watch::channel(0);
        let script =
            ProviderScript { replies: Arc::new(replies.into()), requests: Arc::new(sender), silent: Arc::new(count) };
        let routes = Router::new().fallback(serve_reply).with_state(script);
        tokio::spawn(async move { axum::serve(listener, routes).await });
        let pauses = Arc::new(Mutex::new(Vec::new()));
        let noted = pauses.clone();
        let http = Http::plain(move |time| noted.lock().unwrap().push(time));
        Self { address, requests: asked, silent, http, pauses }
    }

    fn reference(&self, provider: &str) -> ModelRef {
        let base_url = Some(format!("http://{}", self.address));
        let mut reference = ModelRef { base_url, ..ModelRef::new(provider, "model-1") };
        if provider.ends_with("-vertex") || provider == "bedrock" {
            // A gateway that gets headers of its own needs no credentials of the cloud.
            reference.headers.insert("X-Gateway".into(), "yes".into());
            reference.settings.insert("projectId".into(), "acme".into());
        }
        if provider == "bedrock" {
            reference.region = Some("eu-central-1".into());
        }
        reference
    }

    fn model(&self, provider: &str) -> Arc<dyn Model> {
        self.model_with(self.reference(provider))
    }

    /// Opens the model with `KEY` as its API key.
    fn model_with(&self, reference: ModelRef) -> Arc<dyn Model> {
        open(&reference, &|name: &str| name.ends_with("_API_KEY").then(|| "KEY".into()), &self.http).unwrap()
    }

    /// Opens the model with these credentials.
    fn open_with(&self, reference: &ModelRef, credentials: &[(&str, &str)]) -> Result<Arc<dyn Model>, String> {
        let value = |name: &str| credentials.iter().find(|(known, _)| *known == name).map(|(_, it)| (*it).to_owned());
        open(reference, &value, &self.http)
    }

    fn requests(&self) -> Vec<RecordedRequest> {
        self.requests.borrow().clone()
    }

    /// Returns the only request.
    fn only(&self) -> RecordedRequest {
        let mut asked = self.requests();
        assert_eq!(asked.len(), 1);
        asked.remove(0)
    }

    /// Returns the pauses before retries.
    fn pauses(&self) -> Vec<Duration> {
        self.pauses.lock().unwrap().clone()
    }
}

async fn serve_reply(State(script): State<ProviderScript>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let text = String::from_utf8_lossy(&body).into_owned();
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let mut place = 0;
    script.requests.send_modify(|asked| {
        place = asked.len();
        asked.push(RecordedRequest { path: uri.to_string(), headers, body, text });
    });
    let reply = script.replies.get(place).or(script.replies.last()).unwrap();
    reply.clone().respond(&script.silent)
}

/// Collects an answer and joins adjacent tokens.
async fn collect(answer: BoxStream<'static, Result<Chunk, ModelError>>) -> Result<Vec<Chunk>, ModelError> {
    let mut all: Vec<Chunk> = Vec::new();
    let chunks: Vec<Chunk> = answer.try_collect().await?;
    for chunk in chunks {
        match (chunk, all.last_mut()) {
            (Chunk::Token(more), Some(Chunk::Token(text))) => text.push_str(&more),
            (chunk, _) => all.push(chunk),
        }
    }
    Ok(all)
}

/// Decodes `body` by the client of `provider`; it must give the same when it arrives at once, byte by byte, or in
/// pieces of 7 bytes.
async fn read(provider: &str, body: impl AsRef<[u8]>) -> Result<Vec<Chunk>, ModelError> {
    let body = body.as_ref();
    let replies = [ScriptedReply::ok(body), ScriptedReply::ok(body).pieces(1), ScriptedReply::ok(body).pieces(7)];
    let server = Provider::new(replies).await;
    let model = server.model(provider);
    let whole = collect(model.respond(hello())).await?;
    for _ in 0..2 {
        let same = collect(model.respond(hello())).await?;
        assert_eq!(same.len(), whole.len());
        for (one, other) in same.iter().zip(&whole) {
            match (one, other) {
                // An id that the provider did not give is random.
                (Chunk::Call(one), Chunk::Call(other)) if other.id.starts_with("call_") && other.id.len() == 21 => {
                    assert_eq!((&one.name, &one.arguments), (&other.name, &other.arguments));
                }
                _ => assert_eq!(one, other),
            }
        }
    }
    Ok(whole)
}

fn hello() -> ModelRequest {
    ModelRequest { messages: vec![Message::user("hello").into()], ..ModelRequest::default() }
}

fn token(text: &str) -> Chunk {
    Chunk::Token(text.into())
}

fn call(id: &str, name: &str, arguments: Value) -> Chunk {
    Chunk::Call(ToolCall { id: id.into(), name: name.into(), arguments, thought: None })
}

fn weather() -> ToolSpec {
    let input_schema = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    ToolSpec { name: "weather".into(), description: "tells the weather".into(), input_schema }
}

/// Creates a request with every kind of message, a tool, and JSON output.
fn everything() -> ModelRequest {
    let called = |id: &str, city: &str| {
        let (id, name, arguments) = (id.into(), "weather".into(), json!({ "city": city }));
        Message::Call(ToolCall { id, name, arguments, thought: Some(Thought::Signature(format!("signed {city}"))) })
            .into()
    };
    let result = |id: &str, outcome| Message::ToolResult { id: id.into(), name: "weather".into(), outcome }.into();
    let picture = super::Part::Media { url: "data:image/png;base64,iVBORw0KGgo=".into(), content_type: None };
    ModelRequest {
        system: Some("be brief".into()),
        messages: vec![
            Message::User(vec![super::Part::Text("what is this?".into()), picture]).into(),
            Message::Assistant("a map".into()).into(),
            Message::System("the user likes cats".into()).into(),
            Message::user("and the weather?").into(),
            Message::Assistant("I will look.".into()).into(),
            called("call.1", "Bern"),
            called("call.2", "Ulm"),
            result("call.1", Ok("rain".into())),
            result("call.2", Err("no answer".into())),
        ],
        tools: Arc::new([weather()]),
        config: Arc::new(
            json!({
                "temperature": 0.5, "maxOutputTokens": 100, "topP": 0.9, "topK": 40, "stopSequences": ["END"],
                "seed": 7, "apiKey": "SECRET"
            })
            .as_object()
            .unwrap()
            .clone(),
        ),
        output: Some(super::OutputFormat { schema: Some(json!({"type": "object"})) }),
        ..ModelRequest::default()
    }
}

#[test]
fn the_source_of_each_providers_answers_is_named() {
    let rows = include_str!("SOURCES.md").lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let named: Vec<&str> = rows.flat_map(|cell| cell.split(", ")).collect();
    for provider in PROVIDERS.iter().filter(|provider| **provider != STUB) {
        assert!(named.contains(&provider.names[0]), "{:?} {named:?}", provider.names);
    }
}
