//! Requests in flight at the shared child, and the routing of its messages to them.

use std::collections::BTreeMap;

use super::{
    event_channel::{StreamEvent, StreamSender},
    message::{self, Message, RpcId, RpcOutcome},
    rewrite,
};

/// Request of the newer era.
#[derive(Debug)]
pub(super) struct PendingRequest {
    /// Id that the client chose.
    pub(super) id: RpcId,
    /// Progress token, if the client asked for progress.
    pub(super) token: Option<RpcId>,
    /// Set for a subscription.
    pub(super) is_subscription: bool,
    /// Set if the client asked for log messages.
    pub(super) wants_log: bool,
    /// Stream of the client.
    pub(super) sender: StreamSender,
}

/// Requests that have no response yet, by the bridge's number.
///
/// Invariant: numbers are never reused, so that a late message of a child, or of one that was replaced, reaches no
/// other client.
#[derive(Debug, Default)]
pub(super) struct PendingRequests {
    last: i64,
    waiting: BTreeMap<i64, PendingRequest>,
}

/// Destination of a message of the child.
#[derive(Debug)]
pub(super) enum Delivery {
    /// The client of that request.
    Client(i64, StreamSender, StreamEvent),
    /// The child itself, which gets this response, as a line.
    Child(String),
    /// No destination.
    Dropped(&'static str),
}

impl PendingRequests {
    /// Returns the number of requests.
    pub(super) fn count(&self) -> usize {
        self.waiting.len()
    }

    /// Adds a request; returns the bridge's number for it.
    pub(super) fn begin(&mut self, asked: PendingRequest) -> i64 {
        self.last += 1;
        self.waiting.insert(self.last, asked);
        self.last
    }

    /// Removes a request; returns whether it was still waiting.
    pub(super) fn end(&mut self, number: i64) -> bool {
        self.waiting.remove(&number).is_some()
    }

    /// Removes all requests.
    pub(super) fn drain(&mut self) -> Vec<PendingRequest> {
        std::mem::take(&mut self.waiting).into_values().collect()
    }

    /// Ends all subscriptions, which would never end by themselves.
    pub(super) fn end_subscriptions(&mut self) {
        self.waiting.retain(|_, asked| {
            if asked.is_subscription {
                asked.sender.force(StreamEvent::End);
            }
            !asked.is_subscription
        });
    }

    /// Returns the error for a request whose response is not passed on.
    pub(super) fn fail(&mut self, number: &RpcId, why: &str) -> Option<(StreamSender, StreamEvent)> {
        let RpcId::Number(number) = number else { return None };
        let asked = self.waiting.remove(number)?;
        let message = message::error_message(Some(&asked.id), -32603, why).into();
        Some((asked.sender, StreamEvent::Response { message, status: 200 }))
    }

    /// Returns the destination of a message of the child. Responses remove their request.
    pub(super) fn deliver(&mut self, message: Message<'_>) -> Delivery {
        match message {
            Message::Response { id: Some(RpcId::Number(number)), outcome } => match self.waiting.remove(&number) {
                Some(asked) => {
                    let message = rewrite::response(&asked.id, &outcome, asked.is_subscription).into();
                    Delivery::Client(number, asked.sender, StreamEvent::Response { message, status: status(&outcome) })
                }
                None => Delivery::Dropped("an answer that no request waits for"),
            },
            Message::Response { .. } => Delivery::Dropped("an answer to no request"),
            Message::Request { id, method, .. } => {
                tracing::warn!(method, "the server asks its client, which this revision of the protocol does not have");
                let why = "this revision of the protocol has no requests of servers";
                Delivery::Child(message::error_message(Some(&id), -32601, why))
            }
            Message::Notification { method, params: Some(params) } => match method.as_str() {
                "notifications/progress" => {
                    let number = message::progress_of(params);
                    self.forward_notification(number, |asked| rewrite::progress(&method, params, asked.token.as_ref()?))
                }
                "notifications/cancelled" => match rewrite::cancelled_request(params) {
                    Some(RpcId::Number(number))
                        if self.waiting.get(&number).is_some_and(|asked| asked.is_subscription) =>
                    {
                        let ended = self.waiting.remove(&number).map(|asked| asked.sender);
                        ended.map_or(Delivery::Dropped(""), |outlet| Delivery::Client(number, outlet, StreamEvent::End))
                    }
                    _ => Delivery::Dropped("a cancellation of no subscription"),
                },
                _ => match rewrite::subscription_of(params) {
                    Some(number) => self.forward_notification(Some(number), |asked| {
                        rewrite::subscription_notification(&method, params, &asked.id)
                    }),
                    None if method == "notifications/message" => self.log(params),
                    None => Delivery::Dropped("a notification of no request"),
                },
            },
            Message::Notification { .. } => Delivery::Dropped("a notification of no request"),
        }
    }

    fn forward_notification(
        &self,
        number: Option<RpcId>,
        rewritten: impl FnOnce(&PendingRequest) -> Option<String>,
    ) -> Delivery {
        let Some(RpcId::Number(number)) = number else { return Delivery::Dropped("a notification of no request") };
        let asked = self.waiting.get(&number);
        match asked.and_then(|asked| Some((asked.sender.clone(), rewritten(asked)?))) {
            Some((outlet, message)) => Delivery::Client(number, outlet, StreamEvent::Message(message.into())),
            None => Delivery::Dropped("a notification of a request that has ended"),
        }
    }

    /// Returns the destination of a log message, which names no request. It is forwarded with exactly one request in
    /// flight; otherwise it might tell one client what another one does.
    fn log(&self, params: &serde_json::value::RawValue) -> Delivery {
        let mut running = self.waiting.iter().filter(|(_, asked)| !asked.is_subscription);
        match (running.next(), running.next()) {
            (Some((number, asked)), None) if asked.wants_log => {
                let message =
                    format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{}}}"#, params.get());
                Delivery::Client(*number, asked.sender.clone(), StreamEvent::Message(message.into()))
            }
            _ => Delivery::Dropped("a log message that may be about several requests"),
        }
    }
}

/// Returns the HTTP status that the specification prescribes for a response (2026-07-28, Streamable HTTP).
fn status(outcome: &RpcOutcome<'_>) -> u16 {
    #[derive(serde::Deserialize)]
    struct RpcErrorCode {
        code: i64,
    }
    let RpcOutcome::Error(error) = outcome else { return 200 };
    match serde_json::from_str::<RpcErrorCode>(error.get()).map(|error| error.code) {
        Ok(-32601) => 404,
        Ok(-32022..=-32020) => 400,
        _ => 200,
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use serde_json::{Value, json};

    use super::*;
    use crate::event_channel::{StreamReceiver, channel};

    fn ask(
        requests: &mut PendingRequests,
        id: RpcId,
        change: impl FnOnce(&mut PendingRequest),
    ) -> (i64, StreamReceiver) {
        let (outlet, inlet) = channel(|| ());
        let mut asked = PendingRequest { id, token: None, is_subscription: false, wants_log: false, sender: outlet };
        change(&mut asked);
        (requests.begin(asked), inlet)
    }

    fn deliver(requests: &mut PendingRequests, message: Value) -> Delivery {
        let text = message.to_string();
        let delivery = requests.deliver(Message::read(&text).unwrap());
        if let Delivery::Client(_, outlet, event) = &delivery {
            outlet.force(event.clone());
        }
        delivery
    }

    fn got(inlet: &mut StreamReceiver) -> Option<(Value, u16)> {
        match inlet.next().now_or_never()?? {
            StreamEvent::Message(message) => Some((serde_json::from_slice(&message).unwrap(), 0)),
            StreamEvent::Response { message, status } => Some((serde_json::from_slice(&message).unwrap(), status)),
            StreamEvent::End => Some((Value::Null, 0)),
        }
    }

    #[test]
    fn equal_ids_of_two_clients_are_never_mixed() {
        let mut requests = PendingRequests::default();
        let (a, mut first) = ask(&mut requests, RpcId::Number(1), |_| ());
        let (b, mut second) = ask(&mut requests, RpcId::Number(1), |_| ());
        deliver(&mut requests, json!({"jsonrpc": "2.0", "id": b, "result": "b"}));
        deliver(&mut requests, json!({"jsonrpc": "2.0", "id": a, "result": "a"}));
        assert_eq!(got(&mut first), Some((json!({"jsonrpc": "2.0", "id": 1, "result": "a"}), 200)));
        assert_eq!(got(&mut second), Some((json!({"jsonrpc": "2.0", "id": 1, "result": "b"}), 200)));
        let again = deliver(&mut requests, json!({"jsonrpc": "2.0", "id": a, "result": "a"}));
        assert!(matches!(again, Delivery::Dropped(_)), "{again:?}");
    }

    #[test]
    fn errors_of_the_protocol_have_a_status() {
        for (code, wanted) in [(-32601, 404), (-32022, 400), (-32020, 400), (-32602, 200), (1, 200)] {
            let mut requests = PendingRequests::default();
            let (number, mut inlet) = ask(&mut requests, RpcId::Number(1), |_| ());
            deliver(&mut requests, json!({"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": "x"}}));
            assert_eq!(got(&mut inlet).map(|(_, status)| status), Some(wanted), "{code}");
        }
    }

    #[test]
    fn progress_goes_to_the_request_that_asked_for_it() {
        let mut requests = PendingRequests::default();
        let (a, mut first) = ask(&mut requests, RpcId::Number(1), |asked| asked.token = Some(RpcId::Text("t".into())));
        let (b, mut second) = ask(&mut requests, RpcId::Number(1), |_| ());
        for number in [a, b, 99] {
            let params = json!({"progressToken": number, "progress": 1});
            deliver(&mut requests, json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}));
        }
        assert_eq!(got(&mut first).unwrap().0["params"], json!({"progressToken": "t", "progress": 1}));
        assert!(got(&mut first).is_none() && got(&mut second).is_none());
    }

    #[test]
    fn a_subscription_gets_what_it_is_about_until_it_ends() {
        let mut requests = PendingRequests::default();
        let (number, mut inlet) = ask(&mut requests, RpcId::Text("s".into()), |asked| asked.is_subscription = true);
        let key = "io.modelcontextprotocol/subscriptionId";
        let params = json!({"_meta": {key: number}});
        deliver(
            &mut requests,
            json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": params}),
        );
        assert_eq!(got(&mut inlet).unwrap().0["params"]["_meta"][key], "s");
        let params = json!({"requestId": number});
        deliver(&mut requests, json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
        assert_eq!(got(&mut inlet), Some((Value::Null, 0)));
        assert_eq!(requests.count(), 0);
    }

    #[test]
    fn a_log_message_is_told_only_if_there_is_no_doubt_whose_it_is() {
        let log =
            json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}});
        let mut requests = PendingRequests::default();
        let (_, mut listening) = ask(&mut requests, RpcId::Number(1), |asked| asked.is_subscription = true);
        let (_, mut inlet) = ask(&mut requests, RpcId::Number(2), |asked| asked.wants_log = true);
        deliver(&mut requests, log.clone());
        assert_eq!(got(&mut inlet).unwrap().0, log);
        let (_, mut other) = ask(&mut requests, RpcId::Number(3), |asked| asked.wants_log = true);
        deliver(&mut requests, log);
        assert!([&mut listening, &mut inlet, &mut other].into_iter().all(|inlet| got(inlet).is_none()));
    }

    #[test]
    fn a_server_that_asks_is_told_that_it_cannot() {
        let delivery =
            deliver(&mut PendingRequests::default(), json!({"jsonrpc": "2.0", "id": "x", "method": "roots/list"}));
        let Delivery::Child(line) = delivery else { panic!("{delivery:?}") };
        let line: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&line["id"], &line["error"]["code"]), (&json!("x"), &json!(-32601)));
    }
}
