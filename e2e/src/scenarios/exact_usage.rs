//! Tests that the tokens of each caller and model are those that the provider billed, and their cost exactly that of the prices.
//!
//! A provider that counts (`src/bin/workload/billing.rs`) serves two agents, each with a model of its own and in a namespace of its own, so
//! that the callers of a namespace are those of a model.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::gateway_auth::{send_request, token, with_token};
use crate::{
    client::{ClientTarget, HttpClientConnection},
    kinds::{AGENT, MODEL, POD, ROLE_BINDING},
    manifests::{agent, object, plugin_config, workload},
    mutate::Random,
    namespace::{Namespace, START_TIMEOUT},
    object::Object,
    scenario::{Scenario, number, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    tokens_and_cost_are_what_the_provider_billed_while_a_pod_goes,
);

/// Accounts of the callers.
const CALLERS: [&str; 4] = ["ada", "ben", "cleo", "dan"];
/// Turns of each caller with each agent, unless `E2E_TURNS` says another number.
const TURNS: u64 = 30;
/// Longest wait until a new permission is effective: a denial is cached for 5 s.
const GRANTED: Duration = Duration::from_secs(20);
/// Longest wait until the control plane has asked all Pods, which it does every 5 s.
const COLLECTED: Duration = Duration::from_secs(30);

/// Model with its price.
struct BilledModel {
    id: &'static str,
    /// Pods of its agent.
    replicas: usize,
    /// Prices of a million tokens: of input, of those from the cache, of output.
    price: [&'static str; 3],
    /// The same for one token, in 10⁻⁹ of the currency.
    of_one: [u64; 3],
}

static MODELS: [BilledModel; 2] = [
    BilledModel { id: "large", replicas: 3, price: ["3", "0.3", "15"], of_one: [3000, 300, 15_000] },
    BilledModel { id: "small", replicas: 1, price: ["0.075", "0.025", "0.6"], of_one: [75, 25, 600] },
];

/// Namespace with an agent of this model.
struct BilledAgent {
    ns: Namespace,
    model: &'static BilledModel,
    target: ClientTarget,
}

/// Caller of one agent, with its own random numbers.
struct BilledCaller {
    name: &'static str,
    /// Model of the agent, which makes the names of its turns unique.
    model: &'static str,
    target: ClientTarget,
    random: Random,
}

async fn tokens_and_cost_are_what_the_provider_billed_while_a_pod_goes(ns: Namespace) -> Result<()> {
    let other = Namespace::create(ns.env.clone(), &format!("{}-other", ns.name)).await?;
    let result = count(&ns, &other).await;
    other.delete_itself().await?;
    result
}

async fn count(ns: &Namespace, other: &Namespace) -> Result<()> {
    let (turns, seed) = (number("E2E_TURNS", TURNS)?, number("E2E_SEED", 1)?);
    ns.start(&workload("provider", json!({}))).await?;
    let provider = ClientTarget::service(ns, "provider").await?;
    let mut tokens = Vec::new();
    for caller in CALLERS {
        tokens.push((caller, token(ns, caller).await?));
    }
    let mut agents = Vec::new();
    for (place, model) in [ns, other].into_iter().zip(&MODELS) {
        agents.push(start(ns, place, model).await?);
    }
    let mut callers = Vec::new();
    for agent in &agents {
        for &(name, ref token) in &tokens {
            let target = with_token(&agent.target, "Authorization", token);
            let own = seed.wrapping_mul(1000).wrapping_add(u64::try_from(callers.len())?);
            callers.push(BilledCaller { name, model: agent.model.id, target, random: Random::new(own) });
        }
    }
    for caller in &callers {
        let body = json!({"message": caller.order("first", "say", 2)}).to_string();
        poll(GRANTED, "the first answer to a caller", || async {
            let status = request(ns, &caller.target, body.clone()).await?;
            ensure!(status == 200, "{}: status {status}", caller.name);
            Ok(Some(()))
        })
        .await?;
    }

    let all = turns * u64::try_from(callers.len())?;
    let inside = ns.env.netns().await?;
    let load = try_join_all(callers.iter_mut().map(|caller| inside.run(caller.fork().run(turns))));
    let (_, before) = tokio::try_join!(load, delete_pod(ns, &provider, all / 4))?;
    ensure!(before < all, "all turns had ended before the Pod was deleted: {before} of {all}");
    await_exact(ns, &provider, &agents).await.with_context(|| format!("E2E_SEED={seed}"))?;

    // Of Pods that are asked once more nothing is counted again.
    for caller in callers {
        inside.run(caller.run(1)).await?;
    }
    await_exact(ns, &provider, &agents).await.with_context(|| format!("E2E_SEED={seed}, after one more turn"))
}

/// Starts an agent of the model, which asks the provider in the namespace `ns`, and lets the accounts of that namespace call it.
async fn start(ns: &Namespace, place: &Namespace, model: &'static BilledModel) -> Result<BilledAgent> {
    let endpoint = format!("http://provider.{}.svc.cluster.local:8000/billing", ns.name);
    let billing = json!({"type": "openai", "extraConfig": {"endpoint": endpoint}});
    place.provide(&plugin_config("billing", billing)).await?;
    let [input, cached, output] = model.price;
    let price = json!({"currency": "EUR", "input": input, "cacheRead": cached, "output": output});
    let spec = json!({"provider": "openai", "model": model.id, "pluginConfigRef": {"name": "billing"}, "price": price});
    place.provide(&object(MODEL, model.id, spec)).await?;
    let subject = |name: &str| json!({"kind": "ServiceAccount", "name": name, "namespace": ns.name});
    let binding = json!({
        "apiVersion": ROLE_BINDING.api_version(), "kind": ROLE_BINDING.kind, "metadata": {"name": "callers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "recif-invoker"},
        "subjects": CALLERS.map(subject),
    });
    place.create_object(&binding).await?;
    let fields = json!({"modelRef": {"name": model.id}, "tools": ["calculator"], "replicas": model.replicas});
    place.start(&agent("teller", fields)).await?;
    let target = ClientTarget::gateway(place, AGENT, "teller").await?;
    Ok(BilledAgent { ns: place.clone(), model, target })
}

/// Sends a message and returns the status.
async fn request(ns: &Namespace, target: &ClientTarget, body: String) -> Result<u16> {
    let target = target.clone();
    let asked = async move { HttpClientConnection::request(&target, "POST", "/chat", &body).await };
    Ok(ns.env.netns().await?.run(asked).await?.status)
}

impl BilledCaller {
    /// Returns the same caller with the next random numbers.
    fn fork(&mut self) -> Self {
        let random = Random::new(u64::try_from(self.random.below(usize::MAX)).unwrap_or_default());
        Self { name: self.name, model: self.model, target: self.target.clone(), random }
    }

    /// Returns a message that says to the provider what to do.
    fn order(&self, turn: &str, manner: &str, words: usize) -> String {
        format!("{} {}-{}-{turn} {manner} {words}", self.name, self.name, self.model)
    }

    /// Takes so many turns of random kinds, one after the other.
    async fn run(mut self, turns: u64) -> Result<()> {
        for turn in 0..turns {
            let manner = match self.random.below(12) {
                0 => "busy",
                1..=3 => "tool",
                4 | 5 => "cut",
                _ => "say",
            };
            let (words, padding) = (1 + self.random.below(8), self.random.below(600));
            let order = format!("{} {}", self.order(&turn.to_string(), manner, words), "x".repeat(padding));
            let read = 1 + self.random.below(words);
            let taken = match manner {
                "cut" => self.leave(&order, read).await,
                _ => self.take(&order, words).await,
            };
            taken.with_context(|| format!("the turn {}", order.trim_end_matches('x')))?;
            let pause = u64::try_from(self.random.below(300))?;
            sleep(Duration::from_millis(pause)).await;
        }
        Ok(())
    }

    /// Takes a turn to its end, as JSON or as a stream.
    async fn take(&mut self, order: &str, words: usize) -> Result<()> {
        let mut target = self.target.clone();
        let (path, body, end) = match self.random.below(4) {
            0 => ("/chat", json!({"message": order}), "\"reply\""),
            1 => {
                target.headers.push_str("Accept: text/event-stream\r\n");
                ("/chat", json!({"message": order}), "event: done")
            }
            2 => ("/v1/chat/completions", completion(order, false), "\"choices\""),
            _ => ("/v1/chat/completions", completion(order, true), "[DONE]"),
        };
        let answer = HttpClientConnection::request(&target, "POST", path, &body.to_string()).await?;
        let is_whole = answer.text.contains(end) && answer.text.contains(&format!("w{words}"));
        ensure!(answer.status == 200 && is_whole, "{answer:?}");
        Ok(())
    }

    /// Reads a stream up to this word, and disconnects. It is a completion, which no title belongs to.
    async fn leave(&self, order: &str, words: usize) -> Result<()> {
        let mut stream = HttpClientConnection::open(&self.target).await?;
        let answer = stream.begin("POST", "/v1/chat/completions", &completion(order, true).to_string()).await?;
        ensure!(answer.status == 200, "{answer:?}");
        let (last, mut seen) = (format!("w{words} "), String::new());
        while !seen.contains(&last) {
            seen += &stream.next().await?.context("the stream ended before the word")?;
        }
        Ok(())
    }
}

fn completion(order: &str, is_stream: bool) -> Value {
    json!({"model": "teller", "messages": [{"role": "user", "content": order}], "stream": is_stream})
}

/// Deletes a Pod of the agent once so many requests were billed, waits until it is gone, and returns how many these were.
async fn delete_pod(ns: &Namespace, provider: &ClientTarget, calls: u64) -> Result<u64> {
    let billed = poll(START_TIMEOUT, "a part of the turns", || async {
        let sum = bills(ns, provider).await?.iter().map(|bill| field(&bill["bill"], "calls")).sum::<u64>();
        Ok((sum >= calls).then_some(sum))
    })
    .await?;
    let pods = ns.list(POD).await?;
    let is_ours = |pod: &&Object| pod.labels().get("app.kubernetes.io/name").is_some_and(|label| label == "teller");
    let name = pods.iter().find(is_ours).context("the agent has no Pod")?.name_any();
    ns.delete(POD, &name).await?;
    ns.until_gone(POD, &name, START_TIMEOUT).await?;
    Ok(billed)
}

/// Waits until the control plane has counted for each caller and model what the provider billed.
async fn await_exact(ns: &Namespace, provider: &ClientTarget, agents: &[BilledAgent]) -> Result<()> {
    let control_plane = ClientTarget::control_plane(&ns.env).await?;
    poll(COLLECTED, "the sums of the provider", || async {
        let bills = bills(ns, provider).await?;
        for BilledAgent { ns: place, model, .. } in agents {
            let models = usage(place, &control_plane, "models").await?;
            let named = |item: &Value| item["name"] == model.id && item["provider"] == "openai";
            ensure!(models.len() == 1 && models.iter().all(named), "{models:?}");
            let items = usage(place, &control_plane, "callers").await?;
            ensure!(items.len() == CALLERS.len(), "{items:?}");
            for caller in CALLERS {
                let name = format!("system:serviceaccount:{}:{caller}", ns.name);
                let item = items.iter().find(|item| item["name"] == name.as_str());
                let bill = bills.iter().find(|bill| bill["caller"] == caller && bill["model"] == model.id);
                let bill = &bill.with_context(|| format!("no bill for {caller} and {}", model.id))?["bill"];
                check(item.with_context(|| format!("nothing is counted for {name}"))?, bill, model)?;
            }
        }
        Ok(Some(()))
    })
    .await
}

/// Checks the sums of a caller and a model against the bill: equal but for requests that the client left, whose tokens are
/// marked as estimated and right within a quarter, and a cost that is exactly that of the tokens.
fn check(item: &Value, bill: &Value, model: &BilledModel) -> Result<()> {
    let (estimated, cut) = (field(item, "estimated"), field(bill, "cutTokens"));
    let counted = field(item, "input") + field(item, "output");
    let billed = field(bill, "input") + field(bill, "output");
    ensure!(counted == billed + estimated, "{}: {counted} tokens: {item}, billed: {bill}", model.id);
    for name in ["input", "output"] {
        ensure!(field(item, name) >= field(bill, name), "{}, {name}: {item}, billed: {bill}", model.id);
    }
    for (ours, theirs) in [("cacheRead", "cached"), ("reasoning", "reasoning"), ("calls", "calls"), ("failed", "cut")] {
        ensure!(field(item, ours) == field(bill, theirs), "{}, {ours}: {item}, billed: {bill}", model.id);
    }
    ensure!(estimated.abs_diff(cut) * 4 <= cut, "{}: {estimated} estimated: {item}, cut: {bill}", model.id);

    let [input, cached, output] = model.of_one;
    let read = field(item, "cacheRead");
    let cost = (field(item, "input") - read) * input + read * cached + field(item, "output") * output;
    let amount = format!("{}.{:09}", cost / 1_000_000_000, cost % 1_000_000_000);
    ensure!(item["cost"] == json!([{"currency": "EUR", "amount": amount}]), "{amount} EUR: {item}");
    ensure!(item["unpriced"] == 0, "{item}");
    Ok(())
}

/// Returns what the provider billed, by caller and model.
async fn bills(ns: &Namespace, provider: &ClientTarget) -> Result<Vec<Value>> {
    let answer = send_request(ns, provider, "GET", "/bills", "").await?;
    ensure!(answer.status == 200, "{answer:?}");
    Ok(serde_json::from_str(&answer.text)?)
}

/// Returns the sums of a namespace from the control plane.
async fn usage(place: &Namespace, control_plane: &ClientTarget, group: &str) -> Result<Vec<Value>> {
    let path = format!("/v1/usage?group={group}&namespace={}", place.name);
    let answer = send_request(place, control_plane, "GET", &path, "").await?;
    ensure!(answer.status == 200, "{answer:?}");
    let usage: Value = serde_json::from_str(&answer.text)?;
    Ok(usage["items"].as_array().cloned().unwrap_or_default())
}

fn field(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_default()
}
