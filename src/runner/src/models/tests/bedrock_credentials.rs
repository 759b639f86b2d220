//! Tests of the credentials with which requests to Bedrock are signed.

use std::time::Duration;

use serde_json::json;

use super::{
    super::{ModelRef, ModelRequest},
    Provider, ScriptedReply,
    bedrock::good,
    collect, hello,
};
use crate::caller::CallerKey;

/// Returns the variables of a web identity, whose token is in `file` and whose service is the server.
fn web_identity<'a>(file: &'a str, sts: &'a str) -> [(&'static str, &'a str); 3] {
    [
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/agents"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", file),
        ("AWS_ENDPOINT_URL_STS", sts),
    ]
}

#[tokio::test]
async fn keys_sign_the_request() {
    let server = Provider::new([ScriptedReply::ok(good("end_turn"))]).await;
    let keys = [("AWS_ACCESS_KEY_ID", "AKID"), ("AWS_SECRET_ACCESS_KEY", "hunter2"), ("AWS_SESSION_TOKEN", "session")];
    collect(server.open_with(&server.reference("bedrock"), &keys).unwrap().respond(hello())).await.unwrap();
    let asked = server.only();
    let sent = asked.headers["authorization"].to_str().unwrap();
    assert!(sent.starts_with("AWS4-HMAC-SHA256 Credential=AKID/"), "{sent}");
    let scope = "/eu-central-1/bedrock/aws4_request, SignedHeaders=host;x-amz-date;x-amz-security-token, Signature=";
    assert!(sent.contains(scope) && !sent.contains("hunter2"), "{sent}");
    assert_eq!(asked.headers["x-amz-security-token"], "session");
    assert_eq!(asked.headers["x-amz-date"].len(), "20150830T123600Z".len());
}

#[tokio::test]
async fn a_web_identity_assumes_its_role() {
    let in_an_hour = jiff::Timestamp::now() + Duration::from_secs(3600);
    let answer = format!(
        "<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\
         <AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>ASIA1</AccessKeyId>\
         <SecretAccessKey>s/+=</SecretAccessKey><SessionToken>token==</SessionToken>\
         <Expiration>{in_an_hour}</Expiration></Credentials></AssumeRoleWithWebIdentityResult>\
         </AssumeRoleWithWebIdentityResponse>"
    );
    let good = || ScriptedReply::ok(good("end_turn"));
    let server = Provider::new([ScriptedReply::ok(answer), good(), good()]).await;
    let file = std::env::temp_dir().join(format!("recif-web-identity-{}", std::process::id()));
    std::fs::write(&file, "a.b.c\n").unwrap();
    let sts = format!("http://{}/", server.address);
    let variables = web_identity(file.to_str().unwrap(), &sts);
    let model = server.open_with(&server.reference("bedrock"), &variables).unwrap();
    let answers = [collect(model.respond(hello())).await, collect(model.respond(hello())).await];
    std::fs::remove_file(&file).unwrap();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let asked = server.requests();
    assert_eq!(asked.len(), 3, "credentials are kept");
    assert_eq!(
        asked[0].text,
        "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fagents\
         &RoleSessionName=recif&WebIdentityToken=a.b.c"
    );
    assert!(asked[2].headers["authorization"].to_str().unwrap().contains("Credential=ASIA1/"));
    assert_eq!(asked[2].headers["x-amz-security-token"], "token==");
}

#[tokio::test]
async fn the_agent_of_a_container_gives_credentials() {
    let answer =
        json!({"AccessKeyId": "ASIA2", "SecretAccessKey": "s", "Token": "t", "Expiration": "2999-01-01T00:00:00Z"});
    let server = Provider::new([ScriptedReply::ok(answer.to_string()), ScriptedReply::ok(good("end_turn"))]).await;
    let file = std::env::temp_dir().join(format!("recif-container-{}", std::process::id()));
    std::fs::write(&file, "the-token\n").unwrap();
    let url = format!("http://{}/v1/credentials", server.address);
    let variables = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", url.as_str()),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file.to_str().unwrap()),
    ];
    let model = server.open_with(&server.reference("bedrock"), &variables).unwrap();
    let answer = collect(model.respond(hello())).await;
    std::fs::remove_file(&file).unwrap();
    answer.unwrap();
    let asked = server.requests();
    assert_eq!(
        (asked[0].path.as_str(), &asked[0].headers["authorization"]),
        ("/v1/credentials", &"the-token".parse().unwrap())
    );
    assert!(asked[1].headers["authorization"].to_str().unwrap().contains("Credential=ASIA2/"));
}

#[tokio::test]
async fn credentials_that_have_expired_are_renewed_once() {
    let agent =
        |id: &str| ScriptedReply::ok(json!({"AccessKeyId": id, "SecretAccessKey": "s", "Token": "t"}).to_string());
    let refused = |code: &str| ScriptedReply::status(403).header("x-amzn-errortype", code);
    for (code, sent) in [
        ("ExpiredTokenException:http://internal.example/", &["ASIA1", "ASIA2"][..]),
        ("UnrecognizedClientException", &["ASIA1", "ASIA2"]),
        ("AccessDeniedException", &["ASIA1"]),
    ] {
        let replies = [agent("ASIA1"), refused(code), agent("ASIA2"), ScriptedReply::ok(good("end_turn"))];
        let server = Provider::new(replies).await;
        let url = format!("http://{}/v1/credentials", server.address);
        let variables = [("AWS_CONTAINER_CREDENTIALS_FULL_URI", url.as_str())];
        let model = server.open_with(&server.reference("bedrock"), &variables).unwrap();
        let answer = collect(model.respond(hello())).await;
        assert_eq!(answer.is_ok(), sent.len() == 2, "{code}: {answer:?}");
        let asked = server.requests();
        let signed: Vec<_> = asked.iter().filter_map(|asked| asked.headers.get("authorization")).collect();
        assert_eq!(signed.len(), sent.len(), "{code}");
        for (signed, id) in signed.iter().zip(sent) {
            assert!(signed.to_str().unwrap().contains(&format!("Credential={id}/")), "{code}: {signed:?}");
        }
    }
}

#[tokio::test]
async fn a_token_whose_file_is_missing_is_said_without_a_request() {
    let server = Provider::new([ScriptedReply::ok(good("end_turn"))]).await;
    let sts = format!("http://{}/", server.address);
    let model = server.open_with(&server.reference("bedrock"), &web_identity("/none/hunter2", &sts)).unwrap();
    let text = collect(model.respond(hello())).await.unwrap_err().to_string();
    assert!(text.contains("the file that AWS_WEB_IDENTITY_TOKEN_FILE names cannot be read"), "{text}");
    assert!(!text.contains("hunter2") && server.requests().is_empty());
}

#[tokio::test]
async fn what_is_missing_is_said_before_anything_is_asked() {
    let server = Provider::new([ScriptedReply::ok("")]).await;
    let open = |reference: &ModelRef| server.open_with(reference, &[]).err();
    assert_eq!(open(&ModelRef::new("bedrock", "m")).unwrap(), "bedrock needs region, such as eu-central-1");
    let keys = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")];
    let nowhere = ModelRef { region: None, ..server.reference("bedrock") };
    let problem = server.open_with(&nowhere, &keys).err().unwrap();
    assert_eq!(problem, "bedrock needs region, such as eu-central-1: each signature is for one");
    let base_url = Some("https://bedrock-runtime.eu-west-1.amazonaws.com".into());
    assert!(server.open_with(&ModelRef { base_url, ..nowhere }, &keys).is_ok(), "its host tells the region");
    let base_url = Some("http://gateway.example".into());
    let plain = ModelRef { base_url, headers: Default::default(), ..server.reference("bedrock") };
    assert!(server.open_with(&plain, &keys).err().unwrap().contains("go over https alone"));
    let problem = open(&ModelRef { headers: Default::default(), ..server.reference("bedrock") }).unwrap();
    assert!(problem.contains("`bedrock` needs credentials: set AWS_BEARER_TOKEN_BEDROCK, or"), "{problem}");
    let passed = ModelRef { passthrough: true, ..server.reference("bedrock") };
    let model = server.open_with(&passed, &keys).unwrap();
    // The answer is empty; only the request matters here.
    let request = ModelRequest { key: Some(CallerKey("theirs".into())), ..hello() };
    assert!(collect(model.respond(request)).await.is_err());
    assert_eq!(server.requests()[0].headers["authorization"], "Bearer theirs");
}
