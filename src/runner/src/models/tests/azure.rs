//! Tests of OpenAI's models at Azure: addresses, credentials, and what its answers have besides.

use serde_json::json;

use super::{
    super::{Chunk, ModelErrorKind, ModelRef, ModelRequest, Usage},
    Provider, ScriptedReply, call, collect, everything, hello, openai, read, token,
};
use crate::caller::CallerKey;

/// Streamed answer "Hello there", which begins with a chunk without choices.
pub(super) const GOOD: &str = r#"data: {"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[{"prompt_index":0,"content_filter_results":{"hate":{"filtered":false,"severity":"safe"}}}]}

data: {"choices":[{"content_filter_results":{},"delta":{"content":"","refusal":null,"role":"assistant"},"finish_reason":null,"index":0,"logprobs":null}],"created":1,"id":"chatcmpl-1","model":"m","object":"chat.completion.chunk","system_fingerprint":"f","usage":null}

data: {"choices":[{"content_filter_results":{"hate":{"filtered":false,"severity":"safe"}},"delta":{"content":"Hello"},"finish_reason":null,"index":0}],"created":1,"id":"chatcmpl-1","usage":null}

data: {"choices":[{"delta":{"content":" thére"},"finish_reason":null,"index":0}],"created":1,"id":"chatcmpl-1","usage":null}

data: {"choices":[{"content_filter_results":{},"delta":{},"finish_reason":"stop","index":0}],"created":1,"id":"chatcmpl-1","usage":null}

data: {"choices":[],"created":1,"id":"chatcmpl-1","usage":{"completion_tokens":3,"prompt_tokens":9,"total_tokens":12}}

data: [DONE]

"#;

/// Variables of an application with a secret, but for the authority.
const APPLICATION: [(&str, &str); 3] =
    [("AZURE_TENANT_ID", "acme"), ("AZURE_CLIENT_ID", "app"), ("AZURE_CLIENT_SECRET", "hunter2&")];

fn access_token(value: &str) -> ScriptedReply {
    let answer = json!({"token_type": "Bearer", "expires_in": 3599, "ext_expires_in": 3599, "access_token": value});
    ScriptedReply::ok(answer.to_string())
}

fn dated(reference: ModelRef) -> ModelRef {
    ModelRef { settings: json!({"apiVersion": "2024-10-21"}).as_object().unwrap().clone(), ..reference }
}

#[tokio::test]
async fn text_calls_and_tokens_are_read() {
    let usage = Chunk::Usage(Usage::new(9, 3));
    assert_eq!(read("azure-openai", GOOD).await.unwrap(), [token("Hello thére"), usage]);
    let expected = [call("call_a", "weather", json!({"city": "Bern"})), call("call_b", "time", json!({}))];
    assert_eq!(read("azureaifoundry", openai::CALLS).await.unwrap(), expected);
}

#[tokio::test]
async fn a_deployment_has_the_address_of_its_api() {
    let server = Provider::new([ScriptedReply::ok(GOOD)]).await;
    let base = |path: &str| ModelRef {
        base_url: Some(format!("http://{}{path}", server.address)),
        ..server.reference("azure-openai")
    };
    let references = [
        (base(""), "/openai/v1/chat/completions"),
        (base("/openai/v1/"), "/openai/v1/chat/completions"),
        (dated(base("/")), "/openai/deployments/model-1/chat/completions?api-version=2024-10-21"),
        (dated(base("/openai")), "/openai/deployments/model-1/chat/completions?api-version=2024-10-21"),
    ];
    for (place, (reference, path)) in references.into_iter().enumerate() {
        collect(server.model_with(reference).respond(hello())).await.unwrap();
        let asked = server.requests().remove(place);
        assert_eq!((asked.path.as_str(), asked.headers["api-key"].to_str().unwrap()), (path, "KEY"));
        assert_eq!(asked.headers["content-type"], "application/json");
        assert!(!asked.headers.contains_key("authorization"), "{path}");
        assert_eq!(asked.body["model"], "model-1");
    }
}

#[tokio::test]
async fn a_request_is_that_of_openai() {
    let server = Provider::new([ScriptedReply::ok(GOOD)]).await;
    collect(server.model("azure-openai").respond(everything())).await.unwrap();
    collect(server.model("openai").respond(everything())).await.unwrap();
    let [mut asked, mut openai] = [0, 1].map(|place| server.requests().remove(place).body);
    assert_eq!(asked["max_completion_tokens"], 100);
    // A compatible server gets the older names.
    asked.as_object_mut().unwrap().remove("max_completion_tokens");
    openai.as_object_mut().unwrap().retain(|name, _| name != "max_tokens" && name != "top_k");
    assert_eq!(asked, openai);
}

#[tokio::test]
async fn tokens_go_as_authorization() {
    let server = Provider::new([ScriptedReply::ok(GOOD)]).await;
    let own = server.open_with(&server.reference("azure-openai"), &[("AZURE_OPENAI_AD_TOKEN", "mine")]).unwrap();
    let passed = ModelRef { passthrough: true, ..server.reference("azure-openai") };
    let passed = server.open_with(&passed, &APPLICATION).unwrap();
    collect(own.respond(hello())).await.unwrap();
    collect(passed.respond(ModelRequest { key: Some(CallerKey("theirs".into())), ..hello() })).await.unwrap();
    for (asked, expected) in server.requests().iter().zip(["Bearer mine", "Bearer theirs"]) {
        assert_eq!(asked.headers["authorization"], expected);
        assert!(!asked.headers.contains_key("api-key"));
    }
    assert_eq!(server.requests().len(), 2, "no token is fetched beside the caller's");
}

#[tokio::test]
async fn a_token_of_entra_is_kept_and_renewed_when_it_is_refused() {
    let good = || ScriptedReply::ok(GOOD);
    let replies = [access_token("one"), good(), good(), ScriptedReply::status(401), access_token("two"), good()];
    let server = Provider::new(replies).await;
    let authority = format!("http://{}", server.address);
    let variables: Vec<_> = APPLICATION.into_iter().chain([("AZURE_AUTHORITY_HOST", authority.as_str())]).collect();
    let model = server.open_with(&server.reference("azure-openai"), &variables).unwrap();
    for _ in 0..3 {
        assert_eq!(collect(model.respond(hello())).await.unwrap()[0], token("Hello thére"));
    }
    let asked = server.requests();
    let sent: Vec<_> = asked.iter().filter_map(|asked| asked.headers.get("authorization")).collect();
    assert_eq!(sent, ["Bearer one", "Bearer one", "Bearer one", "Bearer two"]);
    assert_eq!(
        (asked[0].path.as_str(), asked[4].path.as_str()),
        ("/acme/oauth2/v2.0/token", "/acme/oauth2/v2.0/token")
    );
    assert_eq!(
        asked[0].text,
        "grant_type=client_credentials&client_id=app&scope=https%3A%2F%2Fai.azure.com%2F.default\
         &client_secret=hunter2%26"
    );
    assert_eq!(asked[0].headers["content-type"], "application/x-www-form-urlencoded");
}

#[tokio::test]
async fn a_workload_identity_sends_the_token_of_its_file() {
    let server = Provider::new([access_token("one"), ScriptedReply::ok(GOOD)]).await;
    let file = std::env::temp_dir().join(format!("recif-federated-{}", std::process::id()));
    std::fs::write(&file, "a.b.c\n").unwrap();
    let authority = format!("http://{}/", server.address);
    let variables = [
        ("AZURE_TENANT_ID", "acme"),
        ("AZURE_CLIENT_ID", "app"),
        ("AZURE_FEDERATED_TOKEN_FILE", file.to_str().unwrap()),
        ("AZURE_AUTHORITY_HOST", authority.as_str()),
    ];
    let model = server.open_with(&dated(server.reference("azure-openai")), &variables).unwrap();
    let answer = collect(model.respond(hello())).await;
    std::fs::remove_file(&file).unwrap();
    answer.unwrap();
    let form = server.requests().remove(0).text;
    assert!(form.contains("scope=https%3A%2F%2Fcognitiveservices.azure.com%2F.default"), "{form}");
    let proof = "client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer\
                 &client_assertion=a.b.c";
    assert!(form.ends_with(proof), "{form}");
}

#[tokio::test]
async fn what_the_server_of_credentials_does_wrong_names_the_variables() {
    use ModelErrorKind::{Malformed, Refused, Unavailable};
    for (reply, kind, words, requests) in [
        (ScriptedReply::status(401), Refused, "answers HTTP 401", 1),
        (ScriptedReply::status(500), Unavailable, "answers HTTP 500", 1),
        (ScriptedReply::ok("{}"), Malformed, "sends what cannot be read", 1),
        (ScriptedReply::ok("x".repeat(1 << 20)), Malformed, "sends what cannot be read", 1),
    ] {
        let server = Provider::new([reply]).await;
        let authority = format!("http://{}", server.address);
        let variables: Vec<_> = APPLICATION.into_iter().chain([("AZURE_AUTHORITY_HOST", authority.as_str())]).collect();
        let model = server.open_with(&server.reference("azure-openai"), &variables).unwrap();
        let error = collect(model.respond(hello())).await.unwrap_err();
        let text = error.to_string();
        assert!(error.kind == kind && text.contains(words) && text.contains("AZURE_TENANT_ID"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
        assert_eq!(server.requests().len(), requests, "{words}");
    }
}

#[tokio::test]
async fn a_filtered_prompt_is_refused() {
    let body = r#"{"error":{"code":"content_filter","message":"SECRET","status":400,"innererror":{"code":"ResponsibleAIPolicyViolation"}}}"#;
    let server = Provider::new([ScriptedReply { body: body.into(), ..ScriptedReply::status(400) }]).await;
    let error = collect(server.model("azure-openai").respond(hello())).await.unwrap_err();
    assert!(error.kind == ModelErrorKind::Refused && error.to_string().contains("rules on content"), "{error}");
}

#[tokio::test]
async fn what_is_missing_is_said_before_anything_is_asked() {
    let server = Provider::new([ScriptedReply::ok(GOOD)]).await;
    let reference = server.reference("azure-openai");
    let problem = |credentials: &[(&str, &str)]| server.open_with(&reference, credentials).err().unwrap();
    let all = "model provider `azure-openai` needs credentials: set AZURE_OPENAI_API_KEY or AZURE_OPENAI_AD_TOKEN, or \
               AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_FEDERATED_TOKEN_FILE or AZURE_CLIENT_SECRET";
    assert_eq!(problem(&[]), all);
    assert!(problem(&APPLICATION[1..]).starts_with("Microsoft Entra ID needs AZURE_TENANT_ID, AZURE_CLIENT_ID and"));
    let elsewhere = APPLICATION.into_iter().chain([("AZURE_AUTHORITY_HOST", "http://hunter2.example")]);
    let elsewhere = problem(&elsewhere.collect::<Vec<_>>());
    assert_eq!(elsewhere, "AZURE_AUTHORITY_HOST is not the https URL of an authority of Microsoft Entra ID");
    let away = ModelRef { base_url: Some("https://gateway.example".into()), ..reference.clone() };
    let identity = "the Pod's own identity is for hosts of model provider `azure-openai` alone (openai.azure.com, ";
    assert!(server.open_with(&away, &APPLICATION).err().unwrap().starts_with(identity));
    let declared = ModelRef { credential_keys: vec!["AZURE_CLIENT_SECRET".into()], ..away.clone() };
    assert!(server.open_with(&declared, &APPLICATION).is_ok(), "the PluginConfig brings its own secret");
    let plain = ModelRef { base_url: Some("http://gateway.example".into()), ..declared };
    assert!(server.open_with(&plain, &APPLICATION).err().unwrap().contains("go over https alone"));
    let azure = ModelRef { base_url: Some("https://acme.openai.azure.com".into()), ..away };
    assert!(server.open_with(&azure, &APPLICATION).is_ok());
    let headers = [("Ocp-Apim-Subscription-Key".to_owned(), "k".to_owned())].into();
    assert!(
        server.open_with(&ModelRef { headers, ..reference.clone() }, &[]).is_ok(),
        "a gateway in front has its own"
    );
}
