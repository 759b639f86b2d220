use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use cluster::{access::Reviews, error::RequestError, reviews::Identity};
use http::HeaderValue;

use super::{super::fleet::testing::TestFleet, *};

/// Reviews that know the tokens `good-<name>`. admin has every right, alice may list and get agents in the namespace `a`, and
/// one may get the agent `b/shared` and nothing else.
#[derive(Debug, Default)]
struct Roles {
    asked: Mutex<Vec<String>>,
    away: AtomicBool,
}

#[async_trait]
impl Reviews for Roles {
    async fn identify(&self, token: &str, _: &[String]) -> Result<Option<Identity>, RequestError> {
        if self.away.load(Ordering::Relaxed) {
            return Err(RequestError::Transport { what: "create".into(), cause: "refused".into() });
        }
        Ok(token.strip_prefix("good-").map(|name| Identity { name: name.into(), ..Identity::default() }))
    }

    async fn is_allowed(&self, who: &Identity, right: &Right<'_>) -> Result<bool, RequestError> {
        let Right { verb, resource, namespace, name, .. } = *right;
        self.asked.lock().unwrap().push(format!("{verb} {resource} {namespace}/{name}"));
        Ok(match who.name.as_str() {
            "admin" => true,
            "alice" => namespace == "a" && resource == "agents",
            "one" => verb == "get" && (namespace, name) == ("b", "shared"),
            _ => false,
        })
    }
}

fn auth() -> (Arc<Roles>, Auth) {
    let roles = Arc::new(Roles::default());
    (roles.clone(), Auth::Kubernetes(Access::new(roles, Vec::new(), |_| ()), TokenPenalties::default()))
}

fn fields(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
}

async fn named(auth: &Auth, fields: &HeaderMap) -> Result<Option<String>, Problem> {
    auth.user(&auth.caller(fields)?).await
}

fn caller(auth: &Auth, name: &str) -> ApiCaller {
    let mut fields = HeaderMap::new();
    fields.insert("authorization", format!("Bearer good-{name}").parse().unwrap());
    auth.caller(&fields).unwrap()
}

fn stage() -> TestFleet {
    let mut stage = TestFleet::new();
    ["a", "b", "c"].iter().for_each(|namespace| stage.agent(namespace, "shared", "Running"));
    stage
}

#[tokio::test]
async fn the_token_names_the_caller() {
    let (roles, auth) = auth();
    for (fields, expected) in [
        (fields(&[("authorization", "Bearer good-alice")]), Ok(Some("alice".to_owned()))),
        (fields(&[("authorization", "bearer  good-alice")]), Ok(Some("alice".to_owned()))),
        (fields(&[("authorization", "Bearer stolen")]), Err(401)),
        (fields(&[("authorization", "Basic eA==")]), Err(401)),
        (fields(&[]), Err(401)),
    ] {
        let found = named(&auth, &fields).await.map_err(|problem| problem.status());
        assert_eq!(found, expected, "{fields:?}");
    }
    let mut twice = fields(&[("authorization", "Bearer good-alice")]);
    twice.append("authorization", HeaderValue::from_static("Bearer good-admin"));
    assert_eq!(auth.caller(&twice).unwrap_err().status(), 401);
    roles.away.store(true, Ordering::Relaxed);
    let unheard = fields(&[("authorization", "Bearer good-new")]);
    assert_eq!(named(&auth, &unheard).await.unwrap_err().status(), 503);
}

#[tokio::test]
async fn an_object_is_shown_to_whom_may_get_it() {
    let (_, auth) = auth();
    let kind = ApiKind::find("Agent").unwrap();
    for (name, namespace, expected) in [
        ("admin", "c", Ok(())),
        ("alice", "a", Ok(())),
        ("alice", "b", Err(403)),
        ("one", "b", Ok(())),
        ("one", "a", Err(403)),
    ] {
        let caller = caller(&auth, name);
        let found = auth.may_get(&caller, kind, namespace, "shared").await.map_err(|problem| problem.status());
        assert_eq!(found, expected, "{name} {namespace}");
    }
    let alice = caller(&auth, "alice");
    let problem = auth.may_get(&alice, kind, "b", "shared").await.unwrap_err();
    for word in ["get agents", "namespace b", "agents.recif.dev", "recif-view"] {
        assert!(problem.detail().contains(word), "{}", problem.detail());
    }
}

#[tokio::test]
async fn an_unknown_namespace_is_not_reviewed() {
    let (roles, auth) = auth();
    let (stage, agents) = (stage(), ApiKind::find("Agent").unwrap());
    let mut named: Vec<_> = (0..40).map(|number| format!("n{number}")).collect();
    named.push("a".into());
    let visible = auth.visibility(&caller(&auth, "alice"), &stage.fleet, &[agents], &named).await.unwrap();
    assert!(visible.sees(0, "a"));
    assert_eq!(*roles.asked.lock().unwrap(), ["list agents /", "list agents a/"]);
}

#[tokio::test(start_paused = true)]
async fn what_was_allowed_stays_so_for_a_while_when_the_api_server_is_away() {
    let (roles, auth) = auth();
    let agents = ApiKind::find("Agent").unwrap();
    let mut fields = HeaderMap::new();
    fields.insert("authorization", HeaderValue::from_static("Bearer good-admin"));
    assert_eq!(auth.may_get(&auth.caller(&fields).unwrap(), agents, "a", "shared").await, Ok(()));
    roles.away.store(true, Ordering::Relaxed);
    tokio::time::advance(std::time::Duration::from_secs(120)).await;
    assert_eq!(auth.may_get(&auth.caller(&fields).unwrap(), agents, "a", "shared").await, Ok(()));
    assert_eq!(named(&auth, &fields).await.unwrap_err().status(), 503, "the caller's identity is unknown for now");
}

#[tokio::test]
async fn a_list_shows_the_namespaces_that_the_caller_may_list() {
    let (roles, auth) = auth();
    let (stage, agents) = (stage(), ApiKind::find("Agent").unwrap());
    let seen = async |name: &str, kinds: &[&'static ApiKind], namespaces: &[String]| {
        let caller = caller(&auth, name);
        let visible =
            auth.visibility(&caller, &stage.fleet, kinds, namespaces).await.map_err(|problem| problem.status())?;
        Ok::<_, u16>(["a", "b", "c"].into_iter().filter(|namespace| visible.sees(0, namespace)).collect::<String>())
    };
    let b = ["b".to_owned()];
    assert_eq!(seen("admin", &[agents], &[]).await, Ok("abc".into()));
    assert_eq!(*roles.asked.lock().unwrap(), ["list agents /"], "one review for the whole cluster");
    assert_eq!(seen("alice", &[agents], &[]).await, Ok("a".into()));
    assert_eq!(seen("alice", &[], &[]).await, Ok("a".into()));
    assert_eq!(seen("alice", &[agents], &b).await, Err(403));
    assert_eq!(seen("one", &[agents], &[]).await, Err(403), "an empty list would say that there is nothing");
    assert_eq!(seen("one", &[], &[]).await, Err(403), "the caller may list no kind");
    let tools = ApiKind::find("Tool").unwrap();
    assert_eq!(seen("one", &[agents, tools], &[]).await, Err(403));
    let before = roles.asked.lock().unwrap().len();
    assert_eq!(seen("alice", &[agents], &[]).await, Ok("a".into()));
    assert_eq!(roles.asked.lock().unwrap().len(), before, "what is known is not asked again");
    let models = ApiKind::find("Model").unwrap();
    assert_eq!(seen("alice", &[models], &[]).await, Ok(String::new()), "no Model is hidden from alice");
}

#[test]
fn without_sign_in_only_this_machine_is_answered() {
    let open = Auth::None { any_host: false };
    for (host, expected) in [
        ("localhost:8780", true),
        ("LOCALHOST", true),
        ("127.0.0.1:8780", true),
        ("127.1.2.3", true),
        ("[::1]:8780", true),
        ("evil.example:8780", false),
        ("localhost.evil.example", false),
        ("10.0.0.1:8780", false),
        ("", false),
    ] {
        let mut fields = HeaderMap::new();
        fields.insert("host", HeaderValue::from_static(host));
        assert_eq!(open.caller(&fields).is_ok(), expected, "{host}");
        assert_eq!(open.may_relay(&fields).is_ok(), expected, "{host}");
        assert!(Auth::None { any_host: true }.caller(&fields).is_ok(), "{host}");
    }
    let behind = Auth::None { any_host: true };
    for (name, value, with_any_host) in [
        ("sec-fetch-site", "cross-site", false),
        ("sec-fetch-site", "same-site", true),
        ("origin", "http://evil.example", true),
        ("origin", "null", true),
    ] {
        let foreign = fields(&[("host", "localhost"), (name, value)]);
        assert_eq!(open.caller(&foreign).unwrap_err().status(), 403, "{name}: {value}");
        assert_eq!(open.may_relay(&foreign).unwrap_err().status(), 403, "{name}: {value}");
        assert_eq!(behind.caller(&foreign).is_ok(), with_any_host, "{name}: {value}");
    }
    let own =
        fields(&[("host", "localhost:8780"), ("origin", "http://localhost:5173"), ("sec-fetch-site", "same-origin")]);
    assert!(open.caller(&own).is_ok() && open.may_relay(&own).is_ok(), "as the server of a front end relays it");
}

#[test]
fn with_sign_in_the_gateway_judges_who_asks() {
    let (_, auth) = auth();
    assert!(auth.may_relay(&fields(&[("host", "ui.example"), ("origin", "https://other.example")])).is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_address_pays_for_tokens_that_were_refused() {
    let (roles, auth) = auth();
    let (here, there) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
    let token =
        |token: String| HeaderMap::from_iter([(header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap())]);
    let known = token("good-alice".into());
    assert!(auth.check_token(&known, Some(here)).await.is_ok());
    for number in 0..20 {
        let refused = auth.check_token(&token(format!("guess-{number}")), Some(here)).await.unwrap_err();
        assert_eq!(refused.status(), 401);
    }
    assert_eq!(
        auth.check_token(&token("guess-0".into()), Some(there)).await.unwrap_err().status(),
        401,
        "it goes no further"
    );
    let asked = roles.asked.lock().unwrap().len();
    let held = auth.check_token(&token("good-admin".into()), Some(here)).await.unwrap_err();
    assert_eq!(held.status(), 429);
    assert_eq!(roles.asked.lock().unwrap().len(), asked, "no review is made for it");
    assert!(auth.check_token(&known, Some(here)).await.is_ok(), "who is known does not notice");
    assert!(auth.check_token(&token("good-admin".into()), Some(there)).await.is_ok());
    let Auth::Kubernetes(access, _) = auth else { unreachable!() };
    let auth = Auth::Kubernetes(
        access,
        TokenPenalties::with_trusted_proxies(Network::parse_all(&["192.0.2.0/24".into()]).unwrap()),
    );
    for number in 0..21 {
        let mut guess = token(format!("other-{number}"));
        guess.insert("x-forwarded-for", HeaderValue::from_static("203.0.113.9"));
        assert!(auth.check_token(&guess, Some(here)).await.is_err());
    }
    assert!(
        auth.check_token(&token("good-one".into()), Some(here)).await.is_ok(),
        "the proxy and its clients have penalties of their own"
    );
    assert!(auth.check_token(&HeaderMap::new(), Some(here)).await.is_ok(), "what is open to all stays so");
    tokio::time::advance(std::time::Duration::from_secs(11)).await;
    assert!(auth.check_token(&token("good-admin".into()), Some(here)).await.is_ok());
}
