//! Tests the content hash: changed by every input, and by nothing else.

use std::collections::BTreeMap;

use proptest::{collection::btree_map, prelude::*};
use serde_json::json;

use super::{agent, bare, tool, with_tools};
use crate::render::{AgentParts, ToolSlot, agent_config, hash::content_hash};

type Data = BTreeMap<String, String>;

fn data() -> impl Strategy<Value = Data> {
    btree_map("[ab]{0,2}", "[ab\":{}]{0,2}", 0..4)
}

proptest! {
    #[test]
    fn it_differs_exactly_when_an_input_differs(a in (data(), data(), data()), b in (data(), data(), data())) {
        let hash = |(plain, secret, data): &(Data, Data, Data)| content_hash(plain, secret, data);
        prop_assert_eq!(hash(&a) == hash(&b), a == b);
    }

    #[test]
    fn the_order_of_insertion_is_nothing(pairs in data().prop_map(Vec::from_iter).prop_shuffle()) {
        let shuffled: Data = pairs.iter().cloned().collect();
        let reversed: Data = pairs.into_iter().rev().collect();
        let none = Data::new();
        prop_assert_eq!(content_hash(&shuffled, &none, &none), content_hash(&reversed, &none, &none));
    }
}

/// Pods must not be replaced because a new build writes the same content in another way.
#[test]
fn it_is_the_same_in_every_build() {
    let data = Data::from([("Secret/keys".to_owned(), "00ff".to_owned())]);
    let config = agent_config(&agent(json!({})), &AgentParts { data, ..AgentParts::default() }, &bare()).unwrap();
    assert_eq!(config.content_hash, "9b18eca4fe2a4cfb4f17728ca2b58e8d38375e58a8d30359f9e09ad3a7fcf255");
}

#[test]
fn what_moves_it() {
    let tool_a = tool("a", json!({ "endpoint": "http://a" }));
    let tool_b = tool("b", json!({ "endpoint": "http://b" }));
    let hash = |spec, tools: &[ToolSlot<'_>], digest: &str| {
        let data = Data::from([("Secret/keys".to_owned(), digest.to_owned())]);
        agent_config(&agent(spec), &AgentParts { data, ..with_tools(tools) }, &bare()).unwrap().content_hash
    };
    let (a, b) = (ToolSlot::Object(&tool_a), ToolSlot::Object(&tool_b));
    let first = hash(json!({}), &[a, b], "1");

    assert_eq!(first, hash(json!({ "replicas": 3, "image": "x/y" }), &[a, b], "1"), "the containers read neither");
    for (change, other) in [
        ("a prompt", hash(json!({ "systemPrompt": "x" }), &[a, b], "1")),
        ("a tool less", hash(json!({}), &[a], "1")),
        ("the order of tools", hash(json!({}), &[b, a], "1")),
        ("the data of a Secret", hash(json!({}), &[a, b], "2")),
    ] {
        assert_ne!(first, other, "{change}");
    }
}
