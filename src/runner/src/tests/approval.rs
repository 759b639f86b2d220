//! Tools whose calls a person has to approve.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use axum::{Router, routing::any};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::Runner;

/// Bank that counts payments.
struct Bank {
    url: String,
    payments: Arc<AtomicUsize>,
}

impl Bank {
    async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, payments) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let counter = payments.clone();
        let pay = move || {
            let number = counter.fetch_add(1, Ordering::SeqCst) + 1;
            async move { format!("paid {number}") }
        };
        tokio::spawn(async move { axum::serve(listener, Router::new().route("/", any(pay))).await });
        Self { url: format!("http://{address}/"), payments }
    }

    fn payments(&self) -> usize {
        self.payments.load(Ordering::SeqCst)
    }

    /// Returns the tools `free`, whose calls wait for nobody, and `pay`.
    fn tools(&self) -> Value {
        let tool = |name: &str| json!({"name": name, "type": "http", "method": "POST", "endpoint": self.url});
        let mut pay = tool("pay");
        pay["approval"] = json!({"when": "Always", "by": "Caller", "timeout": 60});
        json!([tool("free"), pay])
    }
}

#[tokio::test]
async fn a_call_that_nobody_can_approve_is_refused_and_the_model_is_told() {
    let bank = Bank::open().await;
    let variables = [("CORAIL_TOOLS", bank.tools().to_string()), ("CORAIL_AGENT_NAME", "shop".into())];
    let runner = Runner::with(&variables).await;
    for (tool, expected, payments) in
        [("free", "paid 1", 1), ("pay", "tool pay failed: refused: a person has to approve calls of this tool", 1)]
    {
        let messages = json!([{"role": "user", "content": format!("/tool {tool} {{}}")}]);
        let body = json!({"model": "shop", "messages": messages}).to_string();
        let response = runner.client.post(runner.url("/v1/chat/completions")).body(body).send().await.unwrap();
        let answer: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
        let text = answer["choices"][0]["message"]["content"].as_str().unwrap_or_default();
        assert!(text.starts_with(expected), "{tool}: {answer}");
        assert_eq!(bank.payments(), payments, "{tool}");
    }
}
