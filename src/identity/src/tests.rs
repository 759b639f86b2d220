//! Tests of tokens as a gateway makes them and a sidecar verifies them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{KeySet, PublicKey, TokenCache, TokenError, Verifier, audience, public_keys, unix_now};

const NOW: u64 = 1_800_000_000;

fn verifier(keys: &KeySet) -> Verifier {
    Verifier::new(public_keys(&keys.public()).unwrap(), audience("Agent", "ns", "a"))
}

fn token(keys: &KeySet) -> String {
    keys.token("agent/ns/a", Some("alice"), NOW + 300)
}

#[test]
fn a_token_tells_the_caller_until_a_minute_after_its_end() {
    let keys = KeySet::generate().unwrap();
    let ask = |now| verifier(&keys).verify(token(&keys).as_bytes(), now);
    assert_eq!(ask(NOW).unwrap().user.as_deref(), Some("alice"));
    assert_eq!(ask(NOW + 300 + 59).unwrap().until, NOW + 360);
    assert_eq!(ask(NOW + 300 + 61), Err(TokenError::Expired));
    let nameless = keys.token("agent/ns/a", None, NOW + 300);
    assert_eq!(verifier(&keys).verify(nameless.as_bytes(), NOW).unwrap().user, None);
}

#[test]
fn an_approver_is_one_by_a_signed_claim_alone() {
    let keys = KeySet::generate().unwrap();
    let verify = |token: &str| verifier(&keys).verify(token.as_bytes(), NOW);
    let approver = keys.approver_token("agent/ns/a", "alice", NOW + 300);
    assert!(verify(&approver).unwrap().is_approver);
    assert!(!verify(&token(&keys)).unwrap().is_approver);
    let [head, claims, signature] = approver.split('.').collect::<Vec<_>>()[..] else { panic!("three parts") };
    let claims: Value = serde_json::from_slice(&BASE64.decode(claims).unwrap()).unwrap();
    let expected = json!({ "iss": "recif", "aud": "agent/ns/a", "sub": "alice", "approver": true, "exp": NOW + 300 });
    assert_eq!(claims, expected, "a claim of its own, which older sidecars leave unread");
    let other = BASE64.encode(
        json!({ "iss": "recif", "aud": "agent/ns/a", "sub": "bob", "approver": true, "exp": NOW + 300 }).to_string(),
    );
    assert_eq!(verify(&format!("{head}.{other}.{signature}")), Err(TokenError::Signature));
    let plain = token(&keys);
    let (_, of_plain) = plain.rsplit_once('.').unwrap();
    let raised = BASE64.encode(claims.to_string());
    assert_eq!(verify(&format!("{head}.{raised}.{of_plain}")), Err(TokenError::Signature));
    let nameless = keys.signed("agent/ns/a", None, true, NOW + 300);
    assert!(!verify(&nameless).unwrap().is_approver, "an approver has a name");
}

#[test]
fn what_no_gateway_signed_for_this_workload_is_refused() {
    let (keys, others) = (KeySet::generate().unwrap(), KeySet::generate().unwrap());
    let good = token(&keys);
    let (head, rest) = good.split_once('.').unwrap();
    let (claims, signature) = rest.split_once('.').unwrap();
    let encode = |value: Value| BASE64.encode(value.to_string());
    let admin = encode(json!({ "iss": "recif", "aud": "agent/ns/a", "sub": "admin", "exp": NOW + 300 }));
    let kid = keys.current.public.id.clone();
    for (token, why) in [
        (format!("{head}.{admin}.{signature}"), TokenError::Signature),
        (format!("{head}.{claims}."), TokenError::Signature),
        (format!("{}.{claims}.{signature}", encode(json!({ "alg": "none", "kid": kid }))), TokenError::Malformed),
        (format!("{}.{admin}.", encode(json!({ "alg": "none", "kid": kid }))), TokenError::Malformed),
        (format!("{}.{claims}.{signature}", encode(json!({ "alg": "HS256", "kid": kid }))), TokenError::Malformed),
        (
            format!("{}.{claims}.{signature}", encode(json!({ "alg": "EdDSA", "kid": kid, "crit": ["b64"] }))),
            TokenError::Malformed,
        ),
        (token(&others), TokenError::UnknownKey),
        (keys.token("agent/ns/b", Some("alice"), NOW + 300), TokenError::Audience),
        (keys.token("flow/ns/a", Some("alice"), NOW + 300), TokenError::Audience),
        (keys.token("agent/ns/a", Some("a\r\nX-Recif-User: b"), NOW + 300), TokenError::Malformed),
        (keys.token("agent/ns/a", Some(""), NOW + 300), TokenError::Malformed),
        (String::new(), TokenError::Malformed),
        (".".repeat(2), TokenError::Malformed),
        ("a".repeat(5000), TokenError::Malformed),
    ] {
        assert_eq!(verifier(&keys).verify(token.as_bytes(), NOW), Err(why), "{token}");
    }
}

#[test]
fn a_pod_believes_after_one_rotation_and_not_after_two() {
    let keys = KeySet::generate().unwrap();
    let pod = verifier(&keys);
    let keys = keys.rotated().unwrap();
    assert!(pod.verify(token(&keys).as_bytes(), NOW).is_ok());
    let keys = keys.rotated().unwrap();
    assert_eq!(pod.verify(token(&keys).as_bytes(), NOW), Err(TokenError::UnknownKey));
}

#[test]
fn the_secret_holds_what_was_made() {
    let keys = KeySet::generate().unwrap();
    let data: BTreeMap<String, Vec<u8>> =
        keys.data().into_iter().map(|(name, value)| (name.to_owned(), value.into_bytes())).collect();
    let read = KeySet::read(&data).unwrap();
    assert_eq!((read.public(), read.data()), (keys.public(), keys.data()));
    assert!(verifier(&keys).verify(token(&read).as_bytes(), NOW).is_ok());
    assert!(!format!("{keys:?}").contains(&keys.data()["current"]), "a private key is never printed");
    for (name, json) in [("current", "{}"), ("next", r#"{"kty":"OKP","crv":"Ed25519","d":"AA","x":"AA"}"#)] {
        let mut broken = data.clone();
        broken.insert(name.to_owned(), json.into());
        assert!(KeySet::read(&broken).unwrap_err().to_string().starts_with(name));
        broken.remove(name);
        assert_eq!(KeySet::read(&broken).unwrap_err().to_string(), format!("it has no key {name:?}"));
    }
}

#[test]
fn a_key_is_named_by_its_thumbprint() {
    // RFC 8037, appendix A.3.
    let key = PublicKey::read("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo").unwrap();
    assert_eq!(key.id, "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
    assert!(public_keys("").unwrap().is_empty());
    assert!(public_keys("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo,x").is_err());
}

#[tokio::test(start_paused = true)]
async fn a_token_is_made_once_in_four_minutes_for_each_caller() {
    let keys = Arc::new(KeySet::generate().unwrap());
    let tokens = TokenCache::default();
    let alice: Arc<str> = "alice".into();
    let sign = |user, is_approver, keys| {
        tokens.get_or_sign(user, is_approver, keys, Instant::now(), || "agent/ns/a".to_owned())
    };
    let ask = |user, keys| sign(user, false, keys);
    let first = ask(Some(&alice), &keys);
    assert!(Arc::ptr_eq(&first, &ask(Some(&alice), &keys)));
    assert_ne!(first, ask(None, &keys));
    let approver = sign(Some(&alice), true, &keys);
    assert!(Arc::ptr_eq(&approver, &sign(Some(&alice), true, &keys)));
    for (token, expected) in [(&approver, true), (&ask(Some(&alice), &keys), false)] {
        let caller = verifier(&keys).verify(token.as_bytes(), unix_now()).unwrap();
        assert_eq!((caller.user.as_deref(), caller.is_approver), (Some("alice"), expected));
    }
    assert!(verifier(&keys).verify(first.as_bytes(), unix_now()).is_ok());
    tokio::time::advance(Duration::from_secs(239)).await;
    assert!(Arc::ptr_eq(&first, &ask(Some(&alice), &keys)));
    tokio::time::advance(Duration::from_secs(1)).await;
    let second = ask(Some(&alice), &keys);
    assert!(!Arc::ptr_eq(&first, &second));
    let others = Arc::new(KeySet::generate().unwrap());
    let third = ask(Some(&alice), &others);
    assert!(verifier(&others).verify(third.as_bytes(), unix_now()).is_ok(), "a rotation counts at once");
}
