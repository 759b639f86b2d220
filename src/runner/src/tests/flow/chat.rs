//! OpenAI's API in front of flows.

use serde_json::{Value, json};

use super::{ContractFolder, Runner};

impl Runner {
    /// Returns the status and the answer of `model` to a conversation, or its error.
    async fn converse(&self, model: &str, messages: Value) -> (u16, String) {
        let (status, text) =
            self.post("/v1/chat/completions", json!({ "model": model, "messages": messages }).to_string()).await;
        let body: Value = serde_json::from_str(&text).unwrap();
        let found = if status == 200 { &body["choices"][0]["message"]["content"] } else { &body["error"]["message"] };
        (status, found.as_str().unwrap().to_owned())
    }

    async fn models(&self) -> Vec<String> {
        let (_, text) = self.get("/v1/models").await;
        let list: Value = serde_json::from_str(&text).unwrap();
        list["data"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
    }
}

#[tokio::test]
async fn flows_and_prompts_are_models() {
    let contract = ContractFolder::flow(&[
        ("main", "{{role \"system\"}}be brief"),
        ("translate", "In French: {{message}}"),
        ("strict", "---\ninput:\n  schema:\n    city: string\n---\n{{city}}"),
        ("typed", "---\ninput:\n  schema:\n    message: string\n---\n<{{message}}>"),
        ("json", "---\noutput:\n  format: json\nmaxTurns: 1\n---\n/tool none"),
    ]);
    let runner = contract.serve(&[("RECIF_FLOW_NAME", "shop")]).await;
    assert_eq!(runner.models().await, ["json", "main", "shop", "strict", "translate", "typed"]);
    let sentence = |text: &str| json!([{"role": "user", "content": "before"}, {"role": "assistant", "content": "ok"}, {"role": "user", "content": text}]);
    for (model, messages, status, answer) in [
        ("shop", sentence("hello"), 200, "echo: hello"),
        ("main", sentence("/prompt"), 200, "be brief"),
        ("translate", sentence("cat"), 200, "echo: In French: cat"),
        ("typed", sentence("cat"), 200, "echo: <cat>"),
        ("translate", json!([{"role": "system", "content": "x"}]), 400, "`messages` has no user message"),
        ("strict", sentence("Rome"), 400, "`city` is required and missing"),
        (
            "translate",
            json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://h/x.png"}}]}]),
            400,
            "the prompt takes the text of a message: send the picture to a prompt without `message`",
        ),
        (
            "json",
            sentence("x"),
            502,
            "the model's answer does not fit the prompt's output: it is not JSON: expected ident at line 1 column 2",
        ),
        (
            "other",
            sentence("x"),
            404,
            "unknown model `other`; known models: json, main, shop, strict, translate, typed",
        ),
    ] {
        assert_eq!(runner.converse(model, messages).await, (status, answer.to_owned()), "{model}");
    }
    let mut body = json!({ "model": "translate", "messages": sentence("cat"), "stream": true });
    let (_, events) = runner.post("/v1/chat/completions", body.to_string()).await;
    assert!(events.contains(r#""content":"French: ""#) && events.ends_with("data: [DONE]\n\n"), "{events}");
    body["messages"] = json!([]);
    assert_eq!(runner.post("/v1/chat/completions", body.to_string()).await.0, 400);
    assert_eq!(runner.get("/v1/other").await.0, 404);
}

#[tokio::test]
async fn a_message_is_never_lost_by_a_template_that_only_mentions_the_word() {
    let system = "{{role \"system\"}}You answer customers' messages.";
    let declared = "---\ninput:\n  schema:\n    message: string\n---\n{{role \"system\"}}be brief";
    let prompts = [
        ("main", system, "echo: MINE"),
        ("looked-at", "{{#if message}}{{role \"system\"}}be brief{{/if}}", "echo: MINE"),
        ("of-items", "{{role \"system\"}}x{{#each items}}{{message}}{{/each}}", "echo: MINE"),
        ("comment", "{{! message }}{{role \"system\"}}x", "echo: MINE"),
        ("declared", declared, "echo: MINE"),
        ("with", "{{#with message}}<{{this}}>{{/with}}", "echo: <MINE>"),
        ("root", "{{#each items}}x{{/each}}{{#with list}}{{else}}<{{@root.message}}>{{/with}}", "echo: <MINE>"),
        ("json", "{{json message}}", "echo: \"MINE\""),
        ("_inner", "<{{message}}>", "echo: <MINE>"),
        ("outer", "{{> inner}}", "echo: <MINE>"),
        ("handed", "{{> quoted text=message}}", "echo: 'MINE'"),
        ("_quoted", "{{role \"user\"}}'{{text}}'", "echo: ''"),
    ];
    let texts: Vec<_> = prompts.iter().map(|(name, text, _)| (*name, *text)).collect();
    let runner = ContractFolder::flow(&texts).serve(&[]).await;
    for (name, text, answer) in prompts.iter().filter(|(name, ..)| *name != "_quoted") {
        let sentence = json!([{"role": "user", "content": "MINE"}]);
        assert_eq!(runner.converse(name, sentence).await, (200, (*answer).to_owned()), "{text}");
    }
}

#[tokio::test]
async fn a_flow_in_error_is_no_model_and_alone_it_is_unavailable() {
    let set = ContractFolder::set(&[("good", "hi"), ("bad", "{{#if}}")]).serve(&[]).await;
    assert_eq!(set.models().await, ["good", "good/main"]);
    for model in ["bad", "bad/main"] {
        let (status, why) = set.converse(model, json!([{"role": "user", "content": "x"}])).await;
        assert!(status == 503 && why.starts_with("flows/bad/prompts/main.prompt:1: "), "{why}");
        assert_eq!(set.get(&format!("/v1/models/{}", model.replace('/', "%2F"))).await.0, 503);
    }
    assert_eq!(set.converse("worse", json!([{"role": "user", "content": "x"}])).await.0, 404);
    assert_eq!(set.converse("good/main", json!([{"role": "user", "content": "x"}])).await, (200, "echo: hi".into()));
    let alone = ContractFolder::flow(&[("main", "{{#if}}")]).serve(&[]).await;
    let (status, why) = alone.converse("main", json!([{"role": "user", "content": "x"}])).await;
    assert!(status == 503 && why.starts_with("prompts/main.prompt:1: "), "{why}");
}
