//! Tests of schemas of answers that a model refuses.

use super::{super::ModelErrorKind, Provider, RecordedRequest, ScriptedReply, anthropic, bedrock, collect, everything};

/// Returns whether a request has the schema in a setting.
fn is_in_setting(request: &RecordedRequest) -> bool {
    request.body.get("output_config").or(request.body.get("outputConfig")).is_some()
}

#[tokio::test]
async fn a_schema_that_a_model_refuses_goes_into_words() {
    for (provider, good) in [("anthropic", anthropic::GOOD.into()), ("bedrock", bedrock::good("end_turn"))] {
        let server = Provider::new([ScriptedReply::status(400), ScriptedReply::ok(good)]).await;
        let model = server.model(provider);
        for _ in 0..2 {
            collect(model.respond(everything())).await.unwrap();
        }
        let asked = server.requests();
        let settings: Vec<_> = asked.iter().map(is_in_setting).collect();
        assert_eq!(settings, [true, false, false], "{provider}: it is known at the second request");
        for request in &asked[1..] {
            let system = &request.body["system"];
            let text = system.as_str().or_else(|| system[0]["text"].as_str()).unwrap();
            let words = "be brief\n\nAnswer with JSON alone: nothing before it, nothing after it, no Markdown fence. It \
                         must conform to this JSON Schema:\n{\"type\":\"object\"}\n\nthe user likes cats";
            assert_eq!(text, words, "{provider}");
        }
    }
}

#[tokio::test]
async fn a_request_that_is_refused_in_words_too_says_nothing_of_its_schema() {
    let refused = || ScriptedReply::status(400);
    let server = Provider::new([refused(), refused(), ScriptedReply::ok(anthropic::GOOD)]).await;
    let model = server.model("anthropic");
    let error = collect(model.respond(everything())).await.unwrap_err();
    assert_eq!((error.kind, error.status), (ModelErrorKind::BadRequest, Some(400)));
    collect(model.respond(everything())).await.unwrap();
    let settings: Vec<_> = server.requests().iter().map(is_in_setting).collect();
    assert_eq!(settings, [true, false, true]);
}

#[tokio::test]
async fn what_is_no_matter_of_the_schema_is_not_asked_again() {
    let no_quota = r#"{"error": {"code": "insufficient_quota"}}"#;
    for reply in [
        ScriptedReply::status(413),
        ScriptedReply::status(404),
        ScriptedReply { status: 400, ..ScriptedReply::ok(no_quota) },
    ] {
        let server = Provider::new([reply.clone()]).await;
        collect(server.model("anthropic").respond(everything())).await.unwrap_err();
        assert_eq!(server.requests().len(), 1, "{reply:?}");
    }
}
