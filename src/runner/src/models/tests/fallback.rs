//! Models that stand in for one that cannot answer.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, TryStreamExt};
use serde_json::{Value, json};
use testing::certificates::{certificate, serve_tls};

use super::{
    super::{
        Answerer, Chunk, Fallback, FallbackSources, Message, Model, ModelErrorKind, ModelRef, ModelRequest, open_chain,
    },
    Provider, ReplyEnd, ScriptedReply, anthropic, collect, hello, openai,
};
use crate::{caller::CallerKey, metrics::RunnerMetrics, tests::log::Log, tools::Toolbox, turn::TurnLoop};

/// Returns the fallback to `server`, which speaks the protocol of Anthropic.
fn fallback(server: &Provider) -> Fallback {
    let plugin = json!({"type": "anthropic", "extraConfig": {"serverAddress": format!("http://{}", server.address)}});
    let model = json!({"provider": "a", "model": "model-2", "config": {"temperature": 0.25}});
    let credentials = json!({"ANTHROPIC_API_KEY": "$MODEL_TWO_ANTHROPIC_API_KEY"});
    serde_json::from_value(json!({"model": model, "plugin": plugin, "credentials": credentials})).unwrap()
}

/// Opens the model with these fallbacks.
fn chain(first: &Provider, reference: ModelRef, others: &[Fallback]) -> Result<Arc<dyn Model>, String> {
    let variables = |name: &str| match name {
        "OPENAI_API_KEY" => Some("ONE".to_owned()),
        "MODEL_TWO_ANTHROPIC_API_KEY" => Some("TWO".to_owned()),
        "MODEL_ONE_X_TEAM" => Some("sales\n".to_owned()),
        _ => None,
    };
    let sources = FallbackSources { variables: &variables, folder: &|_| None };
    open_chain(&reference, others, &variables, sources, &first.http)
}

fn by(model: &str, is_fallback: bool) -> Chunk {
    Chunk::Answerer(Answerer { model: model.into(), is_fallback })
}

#[tokio::test]
async fn each_failure_before_the_answer_goes_on_to_the_next_model_or_not() {
    let quota = r#"{"error": {"code": "insufficient_quota", "message": "SECRET"}}"#;
    let refused = r#"data: {"choices": [{"delta": {"refusal": "no"}}]}"#;
    for (reply, asked, next) in [
        (ScriptedReply::status(503), 2, true),
        (ScriptedReply::status(529), 2, true),
        (ScriptedReply::status(429), 2, true),
        (ScriptedReply::status(503).header("x-should-retry", "false"), 1, true),
        (ScriptedReply::status(503).header("retry-after", "3"), 1, true),
        (ScriptedReply::status(429).header("retry-after-ms", "40"), 2, true),
        (ScriptedReply { body: quota.into(), ..ScriptedReply::status(429) }, 1, true),
        (ScriptedReply::status(401), 1, true),
        (ScriptedReply::status(402), 1, true),
        (ScriptedReply::status(403), 1, true),
        (ScriptedReply::status(404), 1, true),
        // Ends before it began, as one that was cut off.
        (ScriptedReply::ok(""), 2, true),
        (ScriptedReply::ok("<html>"), 1, true),
        (ScriptedReply::ok(r#"{"object": "chat.completion", "choices": []}"#), 1, true),
        (ScriptedReply::ok("data: [1]\n\n"), 1, true),
        (ScriptedReply::ok("").ending(ReplyEnd::Cut), 2, true),
        (ScriptedReply::ok("").ending(ReplyEnd::Silent), 1, true),
        (ScriptedReply::ok("").ending(ReplyEnd::Comments), 1, true),
        // The safety rules of one provider are not evaded by another.
        (ScriptedReply::ok(format!("{refused}\n\n")), 1, false),
        (ScriptedReply::status(400), 1, false),
        (ScriptedReply::status(413), 1, false),
        (ScriptedReply::status(422), 1, false),
    ] {
        let (first, second) =
            (Provider::new([reply.clone()]).await, Provider::new([ScriptedReply::ok(anthropic::GOOD)]).await);
        let reference = ModelRef { timeout: Some(Duration::from_millis(300)), ..first.reference("openai") };
        let model = chain(&first, reference, &[fallback(&second)]).unwrap();
        let answer = collect(model.respond(hello())).await;
        assert_eq!((first.requests().len(), second.requests().len()), (asked, usize::from(next)), "{reply:?}");
        assert!(first.pauses().iter().all(|pause| *pause <= Duration::from_secs(2)), "{reply:?}: {:?}", first.pauses());
        match answer {
            Ok(chunks) => assert!(next && chunks[0] == by("anthropic/model-2", true), "{reply:?}: {chunks:?}"),
            Err(error) => assert!(!next && !error.to_string().contains("SECRET"), "{reply:?}: {error}"),
        }
    }
}

#[tokio::test]
async fn nothing_stands_in_once_the_answer_began() {
    let word = openai::GOOD.find("Hello").unwrap();
    let begun = &openai::GOOD[..word + openai::GOOD[word..].find("\n\n").unwrap() + 2];
    for end in [ReplyEnd::Cut, ReplyEnd::Whole] {
        let first = Provider::new([ScriptedReply::ok(begun).ending(end)]).await;
        let second = Provider::new([ScriptedReply::ok(anthropic::GOOD)]).await;
        let model = chain(&first, first.reference("openai"), &[fallback(&second)]).unwrap();
        let mut answer = model.respond(hello());
        assert_eq!(answer.try_next().await.unwrap(), Some(by("openai/model-1", false)), "{begun}");
        let found = collect(answer).await;
        assert_eq!(found.unwrap_err().kind, ModelErrorKind::Unavailable, "{end:?}");
        assert_eq!((first.requests().len(), second.requests().len()), (1, 0));
    }
}

#[tokio::test]
async fn a_model_that_failed_three_times_is_skipped_and_the_log_names_who_answers() {
    let (log, _kept) = Log::capture();
    let first = Provider::new([ScriptedReply::status(401)]).await;
    let second = Provider::new([ScriptedReply::ok(anthropic::GOOD)]).await;
    for _ in 0..5 {
        // Every prompt of a flow opens its model, and all of them share what is known of it.
        let model = chain(&first, first.reference("openai"), &[fallback(&second)]).unwrap();
        let chunks = collect(model.respond(hello())).await.unwrap();
        assert_eq!(chunks[0], by("anthropic/model-2", true));
    }
    assert_eq!((first.requests().len(), second.requests().len()), (3, 5));
    let logged = log.drain();
    assert!(
        logged.contains("another model is asked: the model did not answer: the provider refuses the API key"),
        "{logged}"
    );
    assert!(logged.contains("a fallback answers") && logged.contains("anthropic/model-2"), "{logged}");
}

#[tokio::test]
async fn where_none_answers_the_last_failure_is_told_and_all_skipped_the_first_is_tried() {
    let first = Provider::new([ScriptedReply::status(401)]).await;
    let second = Provider::new([ScriptedReply::status(404)]).await;
    let model = chain(&first, first.reference("openai"), &[fallback(&second)]).unwrap();
    for _ in 0..3 {
        let error = collect(model.respond(hello())).await.unwrap_err().to_string();
        assert!(error.contains("HTTP 404"), "{error}");
    }
    let error = collect(model.respond(hello())).await.unwrap_err().to_string();
    assert!(error.contains("HTTP 401"), "{error}");
    assert_eq!((first.requests().len(), second.requests().len()), (4, 3));
}

#[tokio::test]
async fn a_fallback_gets_its_own_credentials_and_settings_and_the_first_model_its_headers() {
    let first = Provider::new([ScriptedReply::status(404)]).await;
    let second = Provider::new([ScriptedReply::ok(anthropic::GOOD)]).await;
    let headers = [("X-Team".to_owned(), "$MODEL_ONE_X_TEAM".to_owned())].into();
    let reference = ModelRef { headers, passthrough: true, ..first.reference("openai") };
    let model = chain(&first, reference, &[fallback(&second)]).unwrap();
    let config = json!({"max_tokens": 7, "reasoning_effort": "low", "version": "model-9"});
    let request = ModelRequest {
        config: config.as_object().unwrap().clone().into(),
        key: Some(CallerKey("MINE".into())),
        ..hello()
    };
    collect(model.respond(request)).await.unwrap();
    let (one, two) = (first.only(), second.only());
    assert_eq!(one.headers["authorization"], "Bearer MINE");
    assert_eq!(one.headers["x-team"], "sales");
    assert_eq!((&one.body["model"], &one.body["reasoning_effort"]), (&json!("model-9"), &json!("low")));
    assert_eq!(two.headers["x-api-key"], "TWO", "neither the caller's key nor that of the first model");
    assert!(!two.headers.contains_key("x-team") && !two.headers.contains_key("authorization"));
    let settings =
        (&two.body["model"], &two.body["max_tokens"], &two.body["temperature"], &two.body["reasoning_effort"]);
    assert_eq!(settings, (&json!("model-2"), &json!(7), &json!(0.25), &Value::Null));
}

#[tokio::test]
async fn a_model_that_takes_the_callers_key_is_not_asked_without_one() {
    let first = Provider::new([ScriptedReply::ok(openai::GOOD)]).await;
    let second = Provider::new([ScriptedReply::ok(anthropic::GOOD)]).await;
    let reference = ModelRef { passthrough: true, ..first.reference("openai") };
    let model = chain(&first, reference, &[fallback(&second)]).unwrap();
    assert!(model.needs_key());
    let error = collect(model.respond(hello())).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::NoKey);
    assert!(error.to_string().contains("send it as Authorization, and sign in by X-Recif-Authorization"), "{error}");
    assert_eq!(first.requests().len() + second.requests().len(), 0);
}

#[tokio::test]
async fn a_refused_key_of_a_caller_is_the_callers_failure_alone() {
    let quota = r#"{"error": {"code": "insufficient_quota"}}"#;
    for reply in [
        ScriptedReply::status(401),
        ScriptedReply::status(402),
        ScriptedReply::status(403),
        ScriptedReply { body: quota.into(), ..ScriptedReply::status(429) },
    ] {
        let mut replies = vec![reply.clone(); 4];
        replies.push(ScriptedReply::ok(openai::GOOD));
        let first = Provider::new(replies).await;
        let second = Provider::new([ScriptedReply::ok(anthropic::GOOD)]).await;
        let reference = ModelRef { passthrough: true, ..first.reference("openai") };
        let model = chain(&first, reference, &[fallback(&second)]).unwrap();
        let request = ModelRequest { key: Some(CallerKey("JUNK".into())), ..hello() };
        for _ in 0..4 {
            let error = collect(model.respond(request.clone())).await.unwrap_err();
            assert_eq!(error.kind, ModelErrorKind::Refused, "{reply:?}");
        }
        let chunks = collect(model.respond(request)).await.unwrap();
        assert_eq!(chunks[0], by("openai/model-1", false), "{reply:?}: others are still answered by the first model");
        assert_eq!(second.requests().len(), 0, "{reply:?}: the operator's credentials");
    }
}

#[tokio::test]
async fn failures_with_one_key_do_not_stop_requests_with_another() {
    let first = Provider::new([
        ScriptedReply::status(401),
        ScriptedReply::status(401),
        ScriptedReply::status(401),
        ScriptedReply::ok(openai::GOOD),
    ])
    .await;
    let second = Provider::new([ScriptedReply::ok(anthropic::GOOD)]).await;
    let variables = |name: &str| (name == "MODEL_TWO_ANTHROPIC_API_KEY").then(|| "TWO".to_owned());
    let sources = FallbackSources { variables: &variables, folder: &|_| None };
    let others = [fallback(&second)];
    let open = |key: &'static str| {
        let credentials = move |name: &str| (name == "OPENAI_API_KEY").then(|| key.to_owned());
        open_chain(&first.reference("openai"), &others, &credentials, sources, &first.http).unwrap()
    };
    for _ in 0..4 {
        collect(open("REVOKED").respond(hello())).await.unwrap();
    }
    assert_eq!((first.requests().len(), second.requests().len()), (3, 4));
    let chunks = collect(open("VALID").respond(hello())).await.unwrap();
    assert_eq!(chunks[0], by("openai/model-1", false));
}

#[tokio::test]
async fn a_fallback_that_cannot_be_served_is_left_out_and_named() {
    let (log, _kept) = Log::capture();
    let first = Provider::new([ScriptedReply::status(404)]).await;
    let second = Provider::new([ScriptedReply::ok(anthropic::GOOD)]).await;
    let without = |type_: &str| -> Fallback {
        let plugin = json!({"type": type_, "region": "eu-central-1"});
        serde_json::from_value(json!({"model": {"provider": "a", "model": "m-3"}, "plugin": plugin})).unwrap()
    };
    let others = [without("bedrock"), without("vertexai"), fallback(&second)];
    let model = chain(&first, first.reference("openai"), &others).unwrap();
    assert_eq!(model.names().len(), 2);
    assert_eq!(collect(model.respond(hello())).await.unwrap()[0], by("anthropic/model-2", true));
    let text = log.drain();
    assert!(text.contains("a fallback is left out: model provider `bedrock` needs credentials: set"), "{text}");
    assert!(
        text.contains("does not get the Pod's own identity: give its PluginConfig a credentialsRef with"),
        "{text}"
    );
}

#[tokio::test]
async fn a_fallback_outside_of_the_egress_list_is_left_out() {
    let (log, _kept) = Log::capture();
    let first = Provider::new([ScriptedReply::ok("")]).await;
    let second = Provider::new([ScriptedReply::ok("")]).await;
    let list = json!({"own": [first.address.to_string()]}).to_string();
    let variables = move |name: &str| match name {
        "OPENAI_API_KEY" | "MODEL_TWO_ANTHROPIC_API_KEY" => Some("key".to_owned()),
        "RECIF_EGRESS" => Some(list.clone()),
        _ => None,
    };
    let sources = FallbackSources { variables: &variables, folder: &|_| None };
    let model = open_chain(&first.reference("openai"), &[fallback(&second)], &variables, sources, &first.http).unwrap();
    assert_eq!(model.names().len(), 1);
    let (text, host) = (log.drain(), second.address);
    let why = format!("model provider `anthropic` is refused: host {host} is not in the egress list of this agent");
    assert!(text.contains(&why), "{text}");
}

#[tokio::test]
async fn the_pods_identity_is_for_fallbacks_with_the_address_of_the_first_model() {
    let server = Provider::new([ScriptedReply::ok("")]).await;
    let keys = |name: &str| matches!(name, "AWS_ACCESS_KEY_ID" | "AWS_SECRET_ACCESS_KEY").then(|| "k".to_owned());
    let sources = FallbackSources { variables: &keys, folder: &|_| None };
    let first = ModelRef { region: Some("eu-central-1".into()), ..ModelRef::new("bedrock", "m-1") };
    for (region, extra, models) in [
        ("eu-central-1", json!({}), 2),
        ("us-east-1", json!({}), 1),
        ("eu-central-1", json!({"baseUrl": "https://gateway.example"}), 1),
    ] {
        let plugin = json!({"type": "bedrock", "region": region, "extraConfig": extra});
        let other = json!({"model": {"provider": "b", "model": "m-2"}, "plugin": plugin});
        let others = [serde_json::from_value::<Fallback>(other).unwrap()];
        let model = open_chain(&first, &others, &keys, sources, &server.http).unwrap();
        assert_eq!(model.names().len(), models, "{region} {extra}");
    }
}

#[tokio::test]
async fn a_refused_request_does_not_keep_a_model_skipped() {
    let first = Provider::new([
        ScriptedReply::status(404),
        ScriptedReply::status(404),
        ScriptedReply::status(400),
        ScriptedReply::status(404),
        ScriptedReply::ok(openai::GOOD),
    ])
    .await;
    let second = Provider::new([ScriptedReply::ok(anthropic::GOOD)]).await;
    let model = chain(&first, first.reference("openai"), &[fallback(&second)]).unwrap();
    for is_answered in [true, true, false, true] {
        assert_eq!(collect(model.respond(hello())).await.is_ok(), is_answered);
    }
    let chunks = collect(model.respond(hello())).await.unwrap();
    assert_eq!(chunks[0], by("openai/model-1", false), "the failures were not in a row");
}

#[tokio::test]
async fn a_fallback_that_has_answered_in_a_turn_goes_on_with_it() {
    let first = Provider::new([ScriptedReply::status(404), ScriptedReply::ok(openai::GOOD)]).await;
    let second = Provider::new([ScriptedReply::ok(anthropic::CALLS), ScriptedReply::ok(anthropic::GOOD)]).await;
    let model = chain(&first, first.reference("openai"), &[fallback(&second)]).unwrap();
    let tools = Toolbox::new(Vec::new(), Arc::new(|_: &str| None), RunnerMetrics::default());
    let turn = TurnLoop { model: &*model, tools: &tools, events: None, may_wait: false };
    turn.run(&mut hello(), &mut 5).await.unwrap();
    assert_eq!((first.requests().len(), second.requests().len()), (1, 2));
    turn.run(&mut hello(), &mut 5).await.unwrap();
    assert_eq!((first.requests().len(), second.requests().len()), (2, 2), "the next turn begins at the first model");
}

#[tokio::test]
async fn what_a_header_or_a_certificate_lacks_is_said_before_anything_is_asked() {
    let server = Provider::new([ScriptedReply::status(500)]).await;
    let headers = |value: &str| [("X-Key".to_owned(), value.to_owned())].into();
    let tls = |tls: Value| Some(serde_json::from_value(tls).unwrap());
    for (reference, problem) in [
        (
            ModelRef { headers: headers("$MODEL_NOWHERE_X_KEY"), ..server.reference("openai") },
            "header X-Key of model provider `openai` refers to the environment variable MODEL_NOWHERE_X_KEY, which is not set",
        ),
        (
            ModelRef { headers: headers("a$OPENAI_API_KEY"), ..server.reference("openai") },
            "header X-Key of model provider `openai` refers to the environment variable OPENAI_API_KEY, which is not this \
             provider's",
        ),
        (
            ModelRef { tls: tls(json!({"ca": "$MODEL_NOWHERE_TLS_CA"})), ..server.reference("openai") },
            "`tls` of model provider `openai`: the server's authorities are in the environment variable MODEL_NOWHERE_TLS_CA",
        ),
        (
            ModelRef { tls: tls(json!({"ca": "none"})), ..server.reference("ollama") },
            "`tls` of model provider `ollama`: the certificates cannot be read: it holds no certificate in PEM form",
        ),
    ] {
        let found = chain(&server, reference, &[]).err().unwrap();
        assert!(found.starts_with(problem), "{found}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_behind_tls_is_verified_as_its_plugin_config_says() {
    let text = |name: &str| String::from_utf8(certificate(name)).unwrap();
    for (tls, is_trusted) in [
        (json!({}), false),
        (json!({"ca": text("two")}), false),
        (json!({"ca": text("one")}), true),
        (json!({"ca": text("one"), "systemCAs": false}), true),
        (json!({"ca": text("two"), "systemCAs": false}), false),
        (json!({"insecureSkipVerify": true}), true),
    ] {
        let server = Provider::new([ScriptedReply::ok(openai::GOOD)]).await;
        let port = serve_tls(server.address.to_string()).await;
        let base_url = Some(format!("https://localhost:{port}"));
        let trust = Some(serde_json::from_value(tls.clone()).unwrap());
        let model = chain(&server, ModelRef { base_url, tls: trust, ..server.reference("openai") }, &[]).unwrap();
        let answer = collect(model.respond(hello())).await;
        assert_eq!(answer.is_ok(), is_trusted, "{tls}: {answer:?}");
        assert_eq!(server.requests().len(), usize::from(is_trusted), "{tls}");
    }
}

#[tokio::test]
async fn a_provider_that_goes_silent_is_given_up_after_its_timeout() {
    let word = openai::GOOD.find("Hello").unwrap();
    let begun = &openai::GOOD[..word + openai::GOOD[word..].find("\n\n").unwrap() + 2];
    let server = Provider::new([ScriptedReply::ok(begun).ending(ReplyEnd::Silent)]).await;
    let reference = ModelRef { timeout: Some(Duration::from_millis(300)), ..server.reference("openai") };
    let mut answer = chain(&server, reference, &[]).unwrap().respond(hello());
    assert!(answer.next().await.unwrap().is_ok());
    assert_eq!(collect(answer).await.unwrap_err().kind, ModelErrorKind::Timeout);
}

#[tokio::test]
async fn a_model_that_says_nothing_gives_an_empty_answer() {
    let server = Provider::new(Vec::new()).await;
    let model = chain(&server, ModelRef::new("stub", "echo"), &[]).unwrap();
    let result = Message::ToolResult { id: "call_1".into(), name: "silent".into(), outcome: Ok("".into()) };
    let request = ModelRequest { messages: vec![result.into()], ..ModelRequest::default() };
    assert_eq!(collect(model.respond(request)).await.unwrap(), [by("stub/echo", false)]);
}
