//! Remaps the ids of requests (id remapping) to the child that all requests of the newer era share.
//!
//! Clients choose ids, progress tokens and with them the ids of subscriptions, and two clients may choose the same. So
//! each request gets a number of the bridge for all three on its way to the child, and messages of the child get the
//! client's values back. Everything else in a message is passed on as written.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::message::{RpcId, RpcOutcome};

/// Field of `_meta` with the subscription of a notification.
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// Returns a request under the bridge's number, as a line.
pub(super) fn request(number: i64, method: &str, params: Option<&RawValue>, has_token: bool) -> String {
    let method = serde_json::Value::from(method);
    let replaced = params
        .filter(|_| has_token)
        .and_then(|params| replace(params.get(), &["_meta", "progressToken"], &number.to_string()));
    let params = match (&replaced, params) {
        (Some(replaced), _) => format!(r#","params":{replaced}"#),
        (None, Some(params)) => format!(r#","params":{}"#, params.get()),
        (None, None) => String::new(),
    };
    format!(r#"{{"jsonrpc":"2.0","id":{number},"method":{method}{params}}}"#)
}

/// Returns the child's response under the client's id; the response of a subscription repeats the id.
pub(super) fn response(id: &RpcId, outcome: &RpcOutcome<'_>, subscription: bool) -> String {
    let id = id.to_json();
    match outcome {
        RpcOutcome::Result(result) => {
            let named = subscription.then(|| replace(result.get(), &["_meta", SUBSCRIPTION], &id)).flatten();
            let result = named.as_deref().unwrap_or(result.get());
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
        }
        RpcOutcome::Error(error) => format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{}}}"#, error.get()),
    }
}

/// Returns a progress notification under the client's token.
pub(super) fn progress(method: &str, params: &RawValue, token: &RpcId) -> Option<String> {
    notification(method, params, &["progressToken"], token)
}

/// Returns a notification of a subscription under the client's id.
pub(super) fn subscription_notification(method: &str, params: &RawValue, id: &RpcId) -> Option<String> {
    notification(method, params, &["_meta", SUBSCRIPTION], id)
}

/// Returns the id of the subscription that a notification belongs to.
pub(super) fn subscription_of(params: &RawValue) -> Option<RpcId> {
    #[derive(Deserialize)]
    struct SubscriptionParams<'a> {
        #[serde(borrow, rename = "_meta")]
        meta: SubscriptionMeta<'a>,
    }
    #[derive(Deserialize)]
    struct SubscriptionMeta<'a> {
        #[serde(borrow, rename = "io.modelcontextprotocol/subscriptionId")]
        id: &'a RawValue,
    }
    RpcId::read(serde_json::from_str::<SubscriptionParams<'_>>(params.get()).ok()?.meta.id.get())
}

/// Returns the id of the request that a `notifications/cancelled` names.
pub(super) fn cancelled_request(params: &RawValue) -> Option<RpcId> {
    #[derive(Deserialize)]
    struct CancelledParams<'a> {
        #[serde(borrow, rename = "requestId")]
        id: &'a RawValue,
    }
    RpcId::read(serde_json::from_str::<CancelledParams<'_>>(params.get()).ok()?.id.get())
}

/// Returns a notification to the child that a request was abandoned, as a line.
pub(super) fn cancellation(number: i64) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{number},"reason":"the client left"}}}}"#
    )
}

fn notification(method: &str, params: &RawValue, path: &[&str], id: &RpcId) -> Option<String> {
    let params = replace(params.get(), path, &id.to_json())?;
    let method = serde_json::Value::from(method);
    Some(format!(r#"{{"jsonrpc":"2.0","method":{method},"params":{params}}}"#))
}

/// Returns the object with another value at `path`; `None` if unknown path.
fn replace(object: &str, path: &[&str], value: &str) -> Option<String> {
    let (field, rest) = path.split_first()?;
    let mut fields: BTreeMap<String, &RawValue> = serde_json::from_str(object).ok()?;
    let present = fields.get(*field)?;
    let new = if rest.is_empty() { value.to_owned() } else { replace(present.get(), rest, value)? };
    let new = RawValue::from_string(new).ok()?;
    fields.insert((*field).to_owned(), &new);
    serde_json::to_string(&fields).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::{message::Message, scanner::tests::value};

    fn raw(value: &Value) -> Box<RawValue> {
        serde_json::value::to_raw_value(value).unwrap()
    }

    fn parsed(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_request_gets_our_number_for_its_id_and_its_progress() {
        let params = raw(&json!({"_meta": {"progressToken": "a", "k": 1}, "name": "echo"}));
        let wanted = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
            "params": {"_meta": {"progressToken": 7, "k": 1}, "name": "echo"}});
        assert_eq!(parsed(&request(7, "tools/call", Some(&params), true)), wanted);
        assert_eq!(parsed(&request(8, "a\"b", None, false)), json!({"jsonrpc": "2.0", "id": 8, "method": "a\"b"}));
    }

    #[test]
    fn what_comes_back_has_the_names_of_the_client() {
        let id = RpcId::Text("mine".into());
        let params = raw(&json!({"progressToken": 7, "progress": 0.5}));
        let text = progress("notifications/progress", &params, &id).unwrap();
        assert_eq!(parsed(&text)["params"], json!({"progressToken": "mine", "progress": 0.5}));
        let params = raw(&json!({"_meta": {SUBSCRIPTION: 7, "x": 1}, "uri": "a"}));
        assert_eq!(subscription_of(&params), Some(RpcId::Number(7)));
        let text = subscription_notification("notifications/resources/updated", &params, &id).unwrap();
        assert_eq!(parsed(&text)["params"], json!({"_meta": {SUBSCRIPTION: "mine", "x": 1}, "uri": "a"}));
        let result = raw(&json!({"_meta": {SUBSCRIPTION: 7}}));
        let text = response(&id, &RpcOutcome::Result(&result), true);
        assert_eq!(parsed(&text), json!({"jsonrpc": "2.0", "id": "mine", "result": {"_meta": {SUBSCRIPTION: "mine"}}}));
    }

    #[test]
    fn what_the_child_is_told_is_what_it_can_read() {
        let text = cancellation(7);
        let Ok(Message::Notification { params: Some(params), .. }) = Message::read(&text) else { panic!("{text}") };
        assert_eq!(cancelled_request(params), Some(RpcId::Number(7)));
        assert_eq!(cancelled_request(&raw(&json!({}))), None);
        assert_eq!(subscription_of(&raw(&json!({"_meta": []}))), None);
    }

    proptest! {
        #[test]
        fn nothing_but_the_names_changes(value in value(), token: bool, id in any::<String>(), number: u32) {
            let mut params = json!({"arguments": value, "_meta": {}});
            if token {
                params["_meta"]["progressToken"] = json!("theirs");
            }
            let sent = request(i64::from(number), "m", Some(&raw(&params)), token);
            prop_assert!(!sent.contains('\n'));
            let Ok(Message::Request { id: ours, params: Some(arrived), .. }) = Message::read(&sent) else { panic!() };
            prop_assert_eq!(&ours, &RpcId::Number(i64::from(number)));
            let back = RpcId::Text(id);
            let answered = response(&back, &RpcOutcome::Result(arrived), false);
            let Ok(Message::Response { id: Some(theirs), outcome: RpcOutcome::Result(result) }) = Message::read(&answered)
            else { panic!() };
            prop_assert_eq!(theirs, back);
            if token {
                params["_meta"]["progressToken"] = json!(number);
            }
            let read = |text: &str| -> BTreeMap<String, Value> { serde_json::from_str(text).unwrap() };
            prop_assert_eq!(read(result.get()), read(raw(&params).get()));
        }
    }
}
