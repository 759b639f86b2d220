//! Implements a provider of models that speaks OpenAI's API, does what the user's message says, and counts what it bills.
//!
//! The last message of the user begins with words: the caller, the turn, the manner and a number. Manners: `say` so many words;
//! `tool`: call each tool first; `busy`: refuse the first attempt; `cut`: say so many words, and then nothing until the client
//! disconnects. Without tools, as in a request for a title, it says the words in each manner.
//!
//! Seven bytes are two tokens. What the client left is not billed but counted apart.

use std::{
    collections::{BTreeMap, HashSet},
    io,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use e2e::http1::{Io, ReceivedRequest, begin_events, disconnected, end_events, event, respond};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::sleep;

const JSON: &str = "application/json";
/// Pause after each word.
const PAUSE: Duration = Duration::from_millis(2);
/// Arguments of the calculator.
const ARGUMENTS: &str = r#"{"expression": "6*7"}"#;

/// Provider of models, with its bills.
#[derive(Debug, Default)]
pub(crate) struct BillingProvider(Mutex<ProviderBooks>);

#[derive(Debug, Default)]
struct ProviderBooks {
    /// Bills by caller and model.
    bills: BTreeMap<(String, String), ModelBill>,
    /// Turns that were refused once.
    refused: HashSet<String>,
}

/// Bill of one caller for one model.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct ModelBill {
    /// Requests that were answered to the end.
    calls: u64,
    /// Tokens of these requests, with `cached`.
    input: u64,
    cached: u64,
    /// Tokens of their answers, with `reasoning`.
    output: u64,
    reasoning: u64,
    /// Requests that the client left.
    cut: u64,
    /// Tokens of what they asked and got.
    cut_tokens: u64,
}

/// Request to a model.
struct ModelOrder<'a> {
    caller: &'a str,
    turn: &'a str,
    manner: &'a str,
    words: usize,
    /// What follows in the message.
    rest: &'a str,
    model: &'a str,
    /// Names of the tools.
    tools: Vec<&'a str>,
    /// Bytes of the request without its form.
    bytes: usize,
    has_result: bool,
}

impl BillingProvider {
    /// Responds to a request for a completion; false: the connection cannot be used again.
    pub(crate) async fn answer(&self, io: &mut Io, request: &ReceivedRequest, close: bool) -> io::Result<bool> {
        let asked: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let Some(order) = ModelOrder::read(&asked) else {
            let problem = r#"{"error": {"message": "the message says no caller, turn, manner and number"}}"#;
            respond(io, "400 Bad Request", JSON, problem, close).await?;
            return Ok(true);
        };
        if order.does("busy") && self.lock().refused.insert(order.turn.to_owned()) {
            respond(io, "503 Service Unavailable", JSON, r#"{"error": {"message": "busy"}}"#, close).await?;
            return Ok(true);
        }
        begin_events(io).await?;
        if order.does("cut") {
            let (said, _) = say(io, order.words).await;
            disconnected(io).await;
            let tokens = tokens(order.bytes) + tokens(said);
            self.bill(&order, |bill| {
                bill.cut += 1;
                bill.cut_tokens += tokens;
            });
            return Ok(false);
        }
        let said = if order.does("tool") && !order.has_result {
            let (calls, bytes) = order.calls();
            event(io, &choice(&json!({"tool_calls": calls}), Some("tool_calls"))).await?;
            bytes
        } else {
            let (said, ended) = say(io, order.words).await;
            ended?;
            event(io, &choice(&json!({}), Some("stop"))).await?;
            said
        };
        let input = tokens(order.bytes);
        let cached = if order.words.is_multiple_of(2) { input / 4 } else { 0 };
        let reasoning = u64::try_from(order.words % 3).unwrap_or_default();
        let output = tokens(said) + reasoning;
        let usage = json!({
            "prompt_tokens": input, "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens": output, "completion_tokens_details": {"reasoning_tokens": reasoning},
        });
        event(io, &json!({"choices": [], "usage": usage}).to_string()).await?;
        self.bill(&order, |bill| {
            bill.calls += 1;
            bill.input += input;
            bill.cached += cached;
            bill.output += output;
            bill.reasoning += reasoning;
        });
        event(io, "[DONE]").await?;
        end_events(io).await?;
        Ok(true)
    }

    /// Returns all bills as JSON.
    pub(crate) fn bills(&self) -> String {
        let books = self.lock();
        let bills = books.bills.iter();
        let bills = bills.map(|((caller, model), bill)| json!({"caller": caller, "model": model, "bill": bill}));
        Value::from_iter(bills).to_string()
    }

    fn bill(&self, order: &ModelOrder<'_>, change: impl FnOnce(&mut ModelBill)) {
        let key = (order.caller.to_owned(), order.model.to_owned());
        change(self.lock().bills.entry(key).or_default());
    }

    fn lock(&self) -> MutexGuard<'_, ProviderBooks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> ModelOrder<'a> {
    /// Reads the body of a request; `None`: its last message of the user has another form.
    fn read(asked: &'a Value) -> Option<Self> {
        let messages = asked["messages"].as_array()?;
        let user = messages.iter().rev().find(|message| message["role"] == "user")?;
        let mut words = user["content"].as_str()?.splitn(5, ' ');
        let (caller, turn, manner) = (words.next()?, words.next()?, words.next()?);
        let count = words.next()?.parse().ok()?;
        let sent = messages.iter().map(|message| length(&message["content"]) + length(&message["tool_calls"]));
        let tools = asked["tools"].as_array().into_iter().flatten().map(|tool| &tool["function"]);
        let tools: Vec<&Value> = tools.collect();
        let told = tools.iter().map(|it| length(&it["name"]) + length(&it["description"]) + length(&it["parameters"]));
        Some(Self {
            caller,
            turn,
            manner,
            words: count,
            rest: words.next().unwrap_or_default(),
            model: asked["model"].as_str()?,
            bytes: sent.sum::<usize>() + told.sum::<usize>(),
            tools: tools.into_iter().filter_map(|tool| tool["name"].as_str()).collect(),
            has_result: messages.last().is_some_and(|message| message["role"] == "tool"),
        })
    }

    /// Returns the calls of all tools, and the bytes of their arguments. Agents and MCP servers get a message like that of the user.
    fn calls(&self) -> (Vec<Value>, usize) {
        let message = json!({"message": format!("{} inner say 1 {}", self.caller, self.rest)}).to_string();
        let arguments = |name: &str| if name == "calculator" { ARGUMENTS } else { message.as_str() };
        let calls = self.tools.iter().enumerate().map(|(index, name)| {
            let function = json!({"name": name, "arguments": arguments(name)});
            json!({"index": index, "id": format!("{}-{name}", self.turn), "type": "function", "function": function})
        });
        (calls.collect(), self.tools.iter().map(|name| arguments(name).len()).sum())
    }

    /// Reports whether the request is to be answered in this manner.
    fn does(&self, manner: &str) -> bool {
        self.manner == manner && !self.tools.is_empty()
    }
}

/// Sends so many words; returns their bytes, and whether the client was there to the end.
async fn say(io: &mut Io, words: usize) -> (usize, io::Result<()>) {
    let mut said = 0;
    for number in 1..=words {
        let word = format!("w{number} ");
        if let Err(error) = event(io, &choice(&json!({"content": word}), None)).await {
            return (said, Err(error));
        }
        said += word.len();
        sleep(PAUSE).await;
    }
    (said, Ok(()))
}

/// Returns a piece of an answer.
fn choice(delta: &Value, finish_reason: Option<&str>) -> String {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}).to_string()
}

fn length(value: &Value) -> usize {
    match value {
        Value::Null => 0,
        Value::String(text) => text.len(),
        other => other.to_string().len(),
    }
}

fn tokens(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or_default().saturating_mul(2).div_ceil(7)
}
