//! Features that each agent and flow among the samples shows.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use serde_json::json;

use super::protocol::Protocol;
use crate::{
    client::{ClientTarget, HttpClientConnection},
    kinds::{AGENT, KubeKind, POD},
    manifests::documents,
    namespace::{Namespace, START_TIMEOUT},
    object::{Object, ObjectExt as _},
    scenarios::gateway_auth::{bind, token, with_token},
    watch::poll,
};

/// Account of the requests.
const CALLER: &str = "caller";
/// Id of the trace of the requests.
const TRACE: &str = "0123456789abcdef0123456789abcdef";
/// Words of a stream during a rollout: it takes 13 s and more, and the Pod has 25 s and more to end it.
const WORDS: usize = 250;
/// Longest wait until the old Pod is gone.
const GONE: Duration = Duration::from_secs(90);

/// Sample, and how it is talked to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) name: &'static str,
    pub(super) kind: KubeKind,
    pub(super) protocol: Protocol,
}

/// Applies a sample, with those that it uses.
pub(super) async fn apply(ns: &Namespace, sample: &str) -> Result<()> {
    let folder = ns.env.file("config/samples/frameworks").join(sample);
    let text = ns.env.kubectl(&["kustomize", &folder.to_string_lossy()]).await?;
    for document in documents(&text)? {
        ns.apply(&document).await?;
    }
    Ok(())
}

impl Sample {
    /// Checks that it runs, answers, streams, knows its caller, and loses no stream in a rollout.
    pub(super) async fn check(self, ns: &Namespace) -> Result<()> {
        apply(ns, self.name).await?;
        ns.await_running(self.kind, self.name).await?;
        let token = token(ns, CALLER).await?;
        bind(ns, CALLER, "ClusterRole", "recif-invoker").await?;
        let gateway = with_token(&ClientTarget::gateway(ns, self.kind, self.name).await?, "Authorization", &token);
        let conversation = poll(START_TIMEOUT, "an answer through the gateway", || async {
            let (reply, conversation) = self.ask(ns, &gateway, "hi", None).await?;
            ensure!(reply.contains("heard: hi"), "{reply}");
            Ok(Some(conversation))
        })
        .await?;
        if self.kind == AGENT {
            let (reply, _) = self.ask(ns, &gateway, "again", Some(&conversation)).await?;
            ensure!(reply.contains("Before that you said: hi."), "it does not know the first message: {reply}");
        }
        self.knows_its_caller(ns, &gateway).await?;
        self.streams(ns, &gateway).await?;
        self.is_talked_to(ns).await?;
        let pods = ns.list(POD).await?;
        let started_again = pods.iter().filter(|pod| pod.number("/status/containerStatuses/0/restartCount") != 0);
        ensure!(
            started_again.count() == 0,
            "it was started again: {:?}",
            pods.iter().map(Object::name_any).collect::<Vec<_>>()
        );
        self.drains(ns, &gateway).await
    }

    /// Asks and returns the reply and its conversation.
    async fn ask(
        self,
        ns: &Namespace,
        target: &ClientTarget,
        message: &str,
        conversation: Option<&str>,
    ) -> Result<(String, String)> {
        let mut target = target.clone();
        target.headers += self.protocol.headers(false);
        let body = self.protocol.body(message, conversation, false);
        let inside = ns.env.netns().await?;
        let path = self.protocol.path();
        let answer =
            inside.run(async move { HttpClientConnection::request(&target, "POST", path, &body).await }).await?;
        ensure!(answer.status == 200, "{answer:?}");
        self.protocol.reply(&answer.text)
    }

    async fn knows_its_caller(self, ns: &Namespace, gateway: &ClientTarget) -> Result<()> {
        let mut liar = gateway.clone();
        liar.headers += &format!("X-Recif-User: another-user\r\ntraceparent: 00-{TRACE}-0123456789abcdef-01\r\n");
        let (reply, _) = self.ask(ns, &liar, "who am I", None).await?;
        ensure!(reply == format!("You are system:serviceaccount:{}:{CALLER}.", ns.name), "{reply}");
        let (reply, _) = self.ask(ns, &liar, "which trace", None).await?;
        ensure!(reply == format!("The trace is {TRACE}."), "{reply}");
        Ok(())
    }

    /// Opens a stream and returns it after its first piece.
    async fn open(self, ns: &Namespace, gateway: &ClientTarget, message: &str) -> Result<HttpClientConnection> {
        let mut target = gateway.clone();
        target.headers += self.protocol.headers(true);
        let (body, path) = (self.protocol.body(message, None, true), self.protocol.path());
        let opened = async move {
            let mut stream = HttpClientConnection::open(&target).await?;
            let answer = stream.begin("POST", path, &body).await?;
            ensure!(answer.status == 200, "{answer:?}");
            stream.next().await?.context("the stream is empty")?;
            Ok::<_, anyhow::Error>(stream)
        };
        ns.env.netns().await?.run(opened).await
    }

    async fn streams(self, ns: &Namespace, gateway: &ClientTarget) -> Result<()> {
        let stream = self.open(ns, gateway, "one two three four five six").await?;
        let (text, pieces) = rest(ns, stream).await?;
        ensure!(pieces >= 2 && text.contains(self.protocol.end()), "{pieces} more pieces: {text}");
        Ok(())
    }

    /// Talks to it as users do.
    async fn is_talked_to(self, ns: &Namespace) -> Result<()> {
        let (target, message) = match self.protocol {
            Protocol::Flow => (format!("flowset/{}/say", self.name), r#"{"text": "hi"}"#),
            _ => (format!("agent/{}", self.name), "hi"),
        };
        let (code, output) = ns.env.recif(&["chat", &target, message, "-n", &ns.name]).await?;
        ensure!(code == 0 && output.contains("heard: hi"), "{code}: {output}");
        if self.kind != AGENT {
            return Ok(());
        }
        let id = output.split("--conversation ").nth(1).with_context(|| format!("no conversation: {output}"))?.trim();
        let (code, output) = ns.env.recif(&["chat", &target, "again", "--conversation", id, "-n", &ns.name]).await?;
        ensure!(code == 0 && output.contains("Before that you said: hi."), "{code}: {output}");
        Ok(())
    }

    /// Rolls it out while a stream is open: it ends with its last word, and the old container with exit code 0.
    async fn drains(self, ns: &Namespace, gateway: &ClientTarget) -> Result<()> {
        let old = ns.list(POD).await?.pop().context("no Pod")?;
        let recorder = ns.record(POD, &old.name_any()).await?;
        let words: Vec<String> = (1..=WORDS).map(|number| number.to_string()).collect();
        let stream = self.open(ns, gateway, &words.join(" ")).await?;
        ns.edit(self.kind, self.name, json!({"spec": {"env": [{"name": "ANEW", "value": "1"}]}})).await?;
        let (text, _) = rest(ns, stream).await?;
        ensure!(text.contains(self.protocol.end()), "the stream ended before its end: {text}");
        ensure!(text.contains(&format!(" {WORDS}")), "the stream has no last word: {text}");
        ns.until_gone(POD, &old.name_any(), GONE).await?;
        let code = poll(START_TIMEOUT, "the exit code of the old container", || async {
            Ok(recorder.up_to(&old).await?.iter().find_map(exit_code))
        })
        .await?;
        ensure!(code == 0, "the old container ended with exit code {code}");
        Ok(())
    }
}

/// Reads a stream to its end and returns its text, and in how many pieces it came.
async fn rest(ns: &Namespace, mut stream: HttpClientConnection) -> Result<(String, usize)> {
    let read = async move {
        let (mut text, mut pieces) = (String::new(), 0);
        while let Some(piece) = stream.next().await? {
            text += &piece;
            pieces += 1;
        }
        Ok::<_, anyhow::Error>((text, pieces))
    };
    ns.env.netns().await?.run(read).await
}

/// Returns the exit code of a Pod's container, once it has ended.
fn exit_code(pod: &Object) -> Option<i64> {
    pod.at("/status/containerStatuses/0/state/terminated/exitCode").as_i64()
}
