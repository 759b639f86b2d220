//! Failures that are handled the same for every provider.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};

use super::{
    super::{Chunk, ModelError, ModelErrorKind, ModelRef, open},
    Provider, ReplyEnd, ScriptedReply, anthropic, azure, bedrock, collect, gemini, hello, ollama, openai,
};
use crate::tests::log::Log;

/// Provider, a good answer, a failure within an answer, and the separator of the answer's frames.
const PROVIDERS: [(&str, &str, &str, &str); 7] = [
    ("openai", openai::GOOD, openai::FAILED, "\n\n"),
    ("anthropic", anthropic::GOOD, anthropic::FAILED, "\n\n"),
    ("gemini", gemini::GOOD, gemini::FAILED, "\r\n\r\n"),
    ("ollama", ollama::GOOD, ollama::FAILED, "\n"),
    ("gemini-vertex", gemini::GOOD, gemini::FAILED, "\r\n\r\n"),
    ("anthropic-vertex", anthropic::GOOD, anthropic::FAILED, "\n\n"),
    ("azure-openai", azure::GOOD, openai::FAILED, "\n\n"),
];

/// Returns a good answer up to the frame that holds its first word.
fn beginning(good: &str, end: &str) -> String {
    let word = good.find("Hello").unwrap();
    good[..word + good[word..].find(end).unwrap() + end.len()].to_owned()
}

fn kind_of(answer: Result<Vec<Chunk>, ModelError>) -> ModelErrorKind {
    let error = answer.unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("the model did not answer: ") && !text.contains("SECRET"), "{text}");
    error.kind
}

#[tokio::test]
async fn a_status_says_what_failed_and_the_body_is_not_shown() {
    use ModelErrorKind::{BadRequest, Refused, Unavailable};
    for (provider, ..) in PROVIDERS {
        for (status, kind, requests) in [
            (400, BadRequest, 1),
            (401, Refused, 1),
            (403, Refused, 1),
            (402, Refused, 1),
            (404, BadRequest, 1),
            (413, BadRequest, 1),
            (429, Unavailable, 4),
            (500, Unavailable, 4),
            (529, Unavailable, 4),
        ] {
            let server = Provider::new([ScriptedReply::status(status)]).await;
            assert_eq!(kind_of(collect(server.model(provider).respond(hello())).await), kind, "{provider} {status}");
            assert_eq!(server.requests().len(), requests, "{provider} {status}");
        }
    }
}

#[tokio::test]
async fn why_a_provider_refuses_is_in_the_log_without_credentials() {
    let (log, _kept) = Log::capture();
    let refused = r#"{"error": {"message": "`tools` is not supported, said sk-abcdefghijklmnop to KEY"}}"#;
    for reply in [
        ScriptedReply { body: refused.into(), ..ScriptedReply::status(400) },
        ScriptedReply::ok(format!("data: {refused}\n\n")),
    ] {
        let server = Provider::new([reply.clone()]).await;
        assert!(collect(server.model("openai").respond(hello())).await.is_err());
        let logged = log.drain();
        let line = logged.lines().find(|line| line.contains("WARN")).unwrap_or_default();
        assert!(line.contains("`tools` is not supported, said sk-*** to ***"), "{reply:?}: {logged}");
        assert!(!logged.contains("abcdefghijklmnop"), "{logged}");
    }
}

#[tokio::test]
async fn a_redirect_does_not_take_the_key_elsewhere() {
    let server = Provider::new([ScriptedReply::status(307).header("location", "/elsewhere")]).await;
    assert_eq!(kind_of(collect(server.model("anthropic").respond(hello())).await), ModelErrorKind::BadRequest);
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_provider_that_recovers_is_asked_again() {
    for (provider, good, failed, _) in PROVIDERS {
        let limited = ScriptedReply::status(429).header("retry-after", "7");
        for (failures, pauses) in [
            (vec![limited.clone()], Some(vec![7])),
            (vec![ScriptedReply::status(503).header("retry-after", "3600"), limited], Some(vec![30, 7])),
            (vec![ScriptedReply::status(500), ScriptedReply::status(500)], None),
            (vec![ScriptedReply::ok(failed)], None),
            (
                vec![ScriptedReply::ok("").ending(ReplyEnd::Cut), ScriptedReply::ok(""), ScriptedReply::status(502)],
                None,
            ),
        ] {
            let tried = failures.len();
            let server = Provider::new([failures, vec![ScriptedReply::ok(good)]].concat()).await;
            let found = collect(server.model(provider).respond(hello())).await.unwrap();
            assert_eq!(found[0], Chunk::Token("Hello thére".into()), "{provider}");
            assert_eq!(server.requests().len(), tried + 1);
            match pauses {
                Some(seconds) => {
                    assert_eq!(server.pauses(), seconds.into_iter().map(Duration::from_secs).collect::<Vec<_>>())
                }
                None => {
                    let longest = Duration::from_secs(30);
                    assert!(server.pauses().iter().all(|pause| !pause.is_zero() && *pause < longest));
                }
            }
        }
    }
}

#[tokio::test]
async fn nothing_is_tried_again_once_the_answer_began() {
    for (provider, good, failed, end) in PROVIDERS {
        let first = beginning(good, end);
        for (reply, kind) in [
            (ScriptedReply::ok(&*first), ModelErrorKind::Unavailable),
            (ScriptedReply::ok(&*first).ending(ReplyEnd::Cut), ModelErrorKind::Unavailable),
            (ScriptedReply::ok(format!("{first}{failed}")), ModelErrorKind::Unavailable),
            (ScriptedReply::ok(format!("{first}data: {{\"SECRET{end}")), ModelErrorKind::Malformed),
            (ScriptedReply::ok(format!("{first}data: {}", "x".repeat(2 << 20))), ModelErrorKind::Malformed),
        ] {
            let server = Provider::new([reply.clone()]).await;
            let mut answer = server.model(provider).respond(hello());
            assert_eq!(answer.try_next().await.unwrap(), Some(Chunk::Token("Hello".into())), "{provider}");
            assert_eq!(kind_of(collect(answer).await), kind, "{provider} {reply:?}");
            assert_eq!(server.requests().len(), 1);
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_cut_at_any_byte_is_never_taken_for_a_whole_one() {
    let rock = bedrock::good("end_turn");
    let length = |at: usize| u32::from_be_bytes(rock[at..at + 4].try_into().unwrap()) as usize;
    let begun = length(0) + length(length(0));
    let texts = PROVIDERS.map(|(provider, good, _, end)| (provider, good.as_bytes(), beginning(good, end).len()));
    for (provider, good, begun) in texts.into_iter().chain([("bedrock", &rock[..], begun)]) {
        let replies: Vec<_> = (begun..good.len()).map(|end| ScriptedReply::ok(&good[..end])).collect();
        let server = Provider::new(replies).await;
        let model = server.model(provider);
        for end in begun..good.len() {
            match collect(model.respond(hello())).await {
                Ok(found) => assert_eq!(found[0], Chunk::Token("Hello thére".into()), "{provider} {end}"),
                Err(error) => {
                    let kinds = [ModelErrorKind::Unavailable, ModelErrorKind::Malformed];
                    assert!(kinds.contains(&error.kind), "{provider} {end}: {error}");
                }
            }
        }
        assert_eq!(server.requests().len(), good.len() - begun, "{provider}: nothing is tried again");
    }
}

#[tokio::test]
async fn what_is_no_answer_at_all_is_malformed() {
    for (provider, ..) in PROVIDERS {
        for body in [
            "<html>SECRET</html>",
            "<html>SECRET</html>\n\n",
            "{\"SECRET\": [\n\n",
            "data: SECRET\n\n",
            "data: [1]\n\n",
        ] {
            let server = Provider::new([ScriptedReply::ok(body)]).await;
            let answer = collect(server.model(provider).respond(hello())).await;
            assert_eq!(kind_of(answer), ModelErrorKind::Malformed, "{provider} {body}");
            assert_eq!(server.requests().len(), 1);
        }
    }
}

#[tokio::test]
async fn a_provider_that_goes_silent_is_given_up() {
    for (provider, good, _, end) in PROVIDERS {
        let server = Provider::new([ScriptedReply::ok(beginning(good, end)).ending(ReplyEnd::Silent)]).await;
        let mut answer = server.model(provider).respond(hello());
        assert!(answer.next().await.unwrap().is_ok());
        // No more bytes arrive from here on, so that the clock may be advanced.
        tokio::time::pause();
        assert_eq!(kind_of(collect(answer).await), ModelErrorKind::Timeout, "{provider}");
        tokio::time::resume();
    }
}

#[tokio::test]
async fn a_provider_that_never_answers_is_given_up() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Provider::new([ScriptedReply::status(500)]).await;
    let base_url = Some(format!("http://{}", listener.local_addr().unwrap()));
    let model = server.model_with(ModelRef { base_url, ..ModelRef::new("openai", "m") });
    let answer = tokio::spawn(collect(model.respond(hello())));
    let (connection, _) = listener.accept().await.unwrap();
    connection.readable().await.unwrap();
    tokio::time::pause();
    assert_eq!(kind_of(answer.await.unwrap()), ModelErrorKind::Timeout);
    assert!(server.pauses().is_empty());
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_tried_four_times() {
    let server = Provider::new([ScriptedReply::status(500)]).await;
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let base_url = Some(format!("http://user:SECRET@{gone}"));
    let model = server.model_with(ModelRef { base_url, ..ModelRef::new("ollama", "m") });
    assert_eq!(kind_of(collect(model.respond(hello())).await), ModelErrorKind::Unavailable);
    assert_eq!(server.pauses().len(), 3);
}

#[test]
fn what_is_missing_is_said_before_anything_is_asked() {
    let http = super::Http::default();
    for (provider, problem) in [
        ("openai", "model provider `openai` needs an API key: set OPENAI_API_KEY, or the base URL"),
        (
            "anthropic",
            "model provider `anthropic` needs an API key: set ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN, or the base URL",
        ),
        ("googleai", "model provider `googleai` needs an API key: set GEMINI_API_KEY or GOOGLE_API_KEY or"),
        (
            "azureaifoundry",
            "model provider `azureaifoundry` has no address of its own: set `baseUrl` in the extraConfig",
        ),
        ("soap", "unknown model provider `soap`; use openai"),
    ] {
        let found = open(&ModelRef::new(provider, "m"), &|_: &str| None, &http).err().unwrap();
        assert!(found.starts_with(problem), "{found}");
    }
    for provider in ["stub", "ollama"] {
        assert!(open(&ModelRef::new(provider, "m"), &|_: &str| None, &http).is_ok());
    }
}
