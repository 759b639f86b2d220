//! Tests of models at Vertex AI: addresses, what differs from the providers' own protocols, and credentials.

use serde_json::{Value, json};

use super::{
    super::{Chunk, ModelErrorKind, ModelRef, ModelRequest, Usage},
    Provider, ScriptedReply, anthropic, collect, everything, gemini, hello, read, token,
};
use crate::caller::CallerKey;

/// Private key of a service account that does not exist.
const KEY: &str = include_str!("fixtures/google-key.pem");

fn access_token(value: &str) -> ScriptedReply {
    ScriptedReply::ok(json!({"access_token": value, "expires_in": 3599, "token_type": "Bearer"}).to_string())
}

/// Returns a reference without headers of a gateway, so that requests get credentials.
fn direct(server: &Provider, provider: &str, id: &str) -> ModelRef {
    ModelRef { base_url: server.reference(provider).base_url, ..ModelRef::new(provider, id) }
}

#[tokio::test]
async fn answers_are_those_of_the_other_protocols() {
    let gemini_usage = Chunk::Usage(Usage { reasoning: 10, ..Usage::new(4, 13) });
    let anthropic_usage = Chunk::Usage(Usage { cache_read: 5, ..Usage::new(25, 15) });
    assert_eq!(read("gemini-vertex", gemini::GOOD).await.unwrap(), [token("Hello thére"), gemini_usage]);
    assert_eq!(read("anthropic-vertex", anthropic::GOOD).await.unwrap(), [token("Hello thére"), anthropic_usage]);
    for (provider, calls) in [("gemini-vertex", gemini::CALLS), ("anthropic-vertex", anthropic::CALLS)] {
        let found = read(provider, calls).await.unwrap();
        let names: Vec<_> = found
            .iter()
            .filter_map(|chunk| match chunk {
                Chunk::Call(call) => Some(call.name.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(names, ["weather", "time"], "{provider}");
    }
}

#[tokio::test]
async fn a_request_to_gemini_has_no_ids_of_calls() {
    let server = Provider::new([ScriptedReply::ok(gemini::GOOD)]).await;
    for provider in ["gemini-vertex", "gemini"] {
        collect(server.model(provider).respond(everything())).await.unwrap();
    }
    let [asked, mut other] = [0, 1].map(|place| server.requests().remove(place));
    let path = "/v1/projects/acme/locations/global/publishers/google/models/model-1:streamGenerateContent?alt=sse";
    assert_eq!((asked.path.as_str(), &asked.headers["x-gateway"]), (path, &"yes".parse().unwrap()));
    assert!(!asked.headers.contains_key("x-goog-api-key") && !asked.headers.contains_key("authorization"));
    for entry in other.body["contents"].as_array_mut().unwrap() {
        for part in entry["parts"].as_array_mut().unwrap() {
            for kind in ["functionCall", "functionResponse"] {
                if let Some(call) = part.get_mut(kind).and_then(Value::as_object_mut) {
                    assert!(call.remove("id").is_some());
                }
            }
        }
    }
    assert_eq!(asked.body, other.body);
}

#[tokio::test]
async fn a_request_to_anthropic_has_its_version_and_no_model() {
    let server = Provider::new([ScriptedReply::ok(anthropic::GOOD)]).await;
    for provider in ["anthropic-vertex", "anthropic"] {
        collect(server.model(provider).respond(everything())).await.unwrap();
    }
    let [asked, mut other] = [0, 1].map(|place| server.requests().remove(place));
    assert_eq!(asked.path, "/v1/projects/acme/locations/global/publishers/anthropic/models/model-1:streamRawPredict");
    assert!(!asked.headers.contains_key("anthropic-version"));
    let fields = other.body.as_object_mut().unwrap();
    fields.remove("model");
    fields.insert("anthropic_version".into(), "vertex-2023-10-16".into());
    assert_eq!(asked.body, other.body);
}

#[tokio::test]
async fn a_service_account_gets_a_token_and_brings_its_project() {
    let replies = [access_token("one"), ScriptedReply::ok(anthropic::GOOD), ScriptedReply::ok(anthropic::GOOD)];
    let server = Provider::new(replies).await;
    let file = json!({
        "type": "service_account",
        "client_email": "a@p.example",
        "private_key": KEY,
        "project_id": "acme-prod",
        "token_uri": format!("http://{}/token", server.address),
    });
    let reference =
        ModelRef { region: Some("europe-west1".into()), ..direct(&server, "vertexai", "claude-sonnet-4-5") };
    let file = file.to_string();
    let variables = [("GOOGLE_APPLICATION_CREDENTIALS", file.as_str())];
    let model = server.open_with(&reference, &variables).unwrap();
    let away = |base: &str, keys: &[&str]| ModelRef {
        base_url: Some(base.into()),
        credential_keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        ..reference.clone()
    };
    let identity = "the Pod's own identity is for hosts of model provider `vertexai` alone (googleapis.com): ";
    let found = server.open_with(&away("https://gateway.example", &[]), &variables).err().unwrap();
    assert!(found.starts_with(identity), "{found}");
    let keys = ["GOOGLE_APPLICATION_CREDENTIALS"];
    assert!(
        server.open_with(&away("https://gateway.example", &keys), &variables).is_ok(),
        "it is the PluginConfig's own"
    );
    let found = server.open_with(&away("http://gateway.example", &keys), &variables).err().unwrap();
    assert!(found.contains("go over https alone"), "{found}");
    // A single credential may have any name.
    let named = ModelRef { credential_keys: vec!["key".into()], ..reference };
    assert!(server.open_with(&named, &[("key", file.as_str())]).is_ok());
    for _ in 0..2 {
        collect(model.respond(hello())).await.unwrap();
    }
    let asked = server.requests();
    assert_eq!(asked.len(), 3, "the token is kept");
    let grant = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=ey";
    assert!(asked[0].path == "/token" && asked[0].text.starts_with(grant), "{}", asked[0].text);
    let path =
        "/v1/projects/acme-prod/locations/europe-west1/publishers/anthropic/models/claude-sonnet-4-5:streamRawPredict";
    assert_eq!((asked[2].path.as_str(), &asked[2].headers["authorization"]), (path, &"Bearer one".parse().unwrap()));
}

#[tokio::test]
async fn the_pods_identity_comes_from_the_metadata_server() {
    let google = |reply: ScriptedReply| reply.header("metadata-flavor", "Google");
    let project = google(ScriptedReply::ok("acme-dev\n"));
    let good = || ScriptedReply::ok(gemini::GOOD);
    let refused = ScriptedReply::status(401);
    let server =
        Provider::new([google(access_token("one")), project, good(), refused, google(access_token("two")), good()])
            .await;
    let host = server.address.to_string();
    let variables = [("GCE_METADATA_HOST", host.as_str()), ("GOOGLE_CLOUD_LOCATION", "us")];
    let model = server.open_with(&direct(&server, "vertex-ai", "gemini-2.5-pro"), &variables).unwrap();
    for _ in 0..2 {
        collect(model.respond(hello())).await.unwrap();
    }
    let asked = server.requests();
    let account = "/computeMetadata/v1/instance/service-accounts/default/token\
                   ?scopes=https://www.googleapis.com/auth/cloud-platform";
    assert_eq!(
        [&*asked[0].path, &*asked[1].path, &*asked[4].path],
        [account, "/computeMetadata/v1/project/project-id", account]
    );
    assert!(asked[..2].iter().all(|asked| asked.headers["metadata-flavor"] == "Google"));
    let path =
        "/v1/projects/acme-dev/locations/us/publishers/google/models/gemini-2.5-pro:streamGenerateContent?alt=sse";
    for (place, sent) in [(2, "Bearer one"), (3, "Bearer one"), (5, "Bearer two")] {
        assert_eq!(asked[place].path, path);
        assert_eq!(asked[place].headers["authorization"], sent);
    }
}

#[tokio::test]
async fn an_identity_of_another_issuer_is_exchanged_and_impersonates_an_account() {
    let impersonated = json!({"accessToken": "two", "expireTime": "2999-01-01T00:00:00Z"}).to_string();
    let replies = [access_token("one"), ScriptedReply::ok(impersonated), ScriptedReply::ok(gemini::GOOD)];
    let server = Provider::new(replies).await;
    let token = std::env::temp_dir().join(format!("recif-issuer-{}", std::process::id()));
    std::fs::write(&token, r#"{"jwt": "a.b.c"}"#).unwrap();
    let base = format!("http://{}", server.address);
    let file = json!({
        "type": "external_account",
        "audience": "//iam.googleapis.com/pools/p",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": format!("{base}/exchange"),
        "service_account_impersonation_url": format!("{base}/impersonate"),
        "credential_source": {"file": token, "format": {"type": "json", "subject_token_field_name": "jwt"}},
    });
    let text = file.to_string();
    let configuration = std::env::temp_dir().join(format!("recif-account-{}", std::process::id()));
    std::fs::write(&configuration, &text).unwrap();
    let path = configuration.to_str().unwrap();
    let named = |value| [("GOOGLE_APPLICATION_CREDENTIALS", value), ("GOOGLE_CLOUD_PROJECT", "acme")];
    let reference = direct(&server, "gemini-vertex", "m");
    let model = server.open_with(&reference, &named(path)).unwrap();
    let of_plugin = ModelRef { credential_keys: vec!["GOOGLE_APPLICATION_CREDENTIALS".into()], ..reference.clone() };
    let refused = [
        server.open_with(&of_plugin, &named(path)).err().unwrap(),
        server.open_with(&of_plugin, &named(&text)).err().unwrap(),
        server.open_with(&reference, &named(&text)).err().unwrap(),
    ];
    let answer = collect(model.respond(hello())).await;
    std::fs::remove_file(&token).unwrap();
    std::fs::remove_file(&configuration).unwrap();
    answer.unwrap();
    let chosen = "GOOGLE_APPLICATION_CREDENTIALS of a PluginConfig is the JSON of a service account, not a file";
    assert_eq!(refused[0], chosen, "a PluginConfig names no file of the Pod");
    for problem in &refused[1..] {
        assert!(problem.contains("of type external_account must be a file of the Pod"), "{problem}");
    }
    let asked = server.requests();
    assert_eq!([&*asked[0].path, &*asked[1].path], ["/exchange", "/impersonate"]);
    for part in ["audience=%2F%2Fiam.googleapis.com%2Fpools%2Fp&", "&subject_token=a.b.c", "token-exchange&"] {
        assert!(asked[0].text.contains(part), "{part}: {}", asked[0].text);
    }
    let scope = json!({"scope": ["https://www.googleapis.com/auth/cloud-platform"], "lifetime": "3600s"});
    assert_eq!((&asked[1].body, &asked[1].headers["authorization"]), (&scope, &"Bearer one".parse().unwrap()));
    assert_eq!(asked[2].headers["authorization"], "Bearer two");
}

#[tokio::test]
async fn the_callers_token_is_sent_and_none_is_fetched() {
    let server = Provider::new([ScriptedReply::ok(gemini::GOOD)]).await;
    let passed = ModelRef { passthrough: true, ..server.reference("gemini-vertex") };
    let model = server.open_with(&passed, &[("GCE_METADATA_HOST", "hunter2.example")]).unwrap();
    collect(model.respond(ModelRequest { key: Some(CallerKey("theirs".into())), ..hello() })).await.unwrap();
    assert_eq!(server.only().headers["authorization"], "Bearer theirs");
}

#[tokio::test]
async fn what_is_wrong_is_said_without_values() {
    let server = Provider::new([ScriptedReply::ok("not a token")]).await;
    let open = |provider: &str, value: &str| {
        let variables = [("GOOGLE_APPLICATION_CREDENTIALS", value)];
        server.open_with(&direct(&server, provider, "m"), &variables).err().unwrap()
    };
    let account = json!({"type": "service_account", "client_email": "a", "private_key": KEY}).to_string();
    for (value, words) in [
        ("/hunter2/none", "the file that GOOGLE_APPLICATION_CREDENTIALS names cannot be read"),
        ("{hunter2", "GOOGLE_APPLICATION_CREDENTIALS is not JSON"),
        (
            r#"{"type": "hunter2"}"#,
            "GOOGLE_APPLICATION_CREDENTIALS is neither the key of a service account nor of type",
        ),
        (r#"{"type": "external_account", "audience": "hunter2"}"#, "external_account must be a file"),
        (account.as_str(), "model provider `anthropic-vertex` needs a project: set `projectId` in the extraConfig"),
    ] {
        let problem = open("anthropic-vertex", value);
        assert!(problem.contains(words) && !problem.contains("hunter2"), "{problem}");
    }
    let away = ModelRef { base_url: Some("https://gateway.example".into()), ..ModelRef::new("gemini-vertex", "m") };
    let problem = server.open_with(&away, &[]).err().unwrap();
    assert!(problem.starts_with("the Pod's own identity is for hosts of"), "{problem}");
    let fallback = ModelRef { lacks_identity: true, ..ModelRef::new("gemini-vertex", "m") };
    let problem = server.open_with(&fallback, &[]).err().unwrap();
    assert!(problem.starts_with("a fallback with another PluginConfig than the first model does not get"), "{problem}");
    let host = server.address.to_string();
    let model =
        server.open_with(&direct(&server, "gemini-vertex", "m"), &[("GCE_METADATA_HOST", host.as_str())]).unwrap();
    let error = collect(model.respond(hello())).await.unwrap_err();
    assert!(
        error.kind == ModelErrorKind::Malformed && error.to_string().contains("identity that the Pod has"),
        "{error}"
    );
    let other = Provider::new([access_token("one")]).await;
    let host = other.address.to_string();
    let model =
        other.open_with(&direct(&other, "gemini-vertex", "m"), &[("GCE_METADATA_HOST", host.as_str())]).unwrap();
    let error = collect(model.respond(hello())).await.unwrap_err();
    assert!(
        error.kind == ModelErrorKind::Malformed && other.requests().len() == 1,
        "it is no metadata server: {error}"
    );
}
