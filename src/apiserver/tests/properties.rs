//! Properties of any sequence of writes: versions only grow; a watch over its list is the list at each version; an apply that is
//! sent again changes nothing.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;

use common::{APPLY, Lines, MAPS, MERGE, call, map, patch, server_with_moving_time};
use proptest::prelude::*;
use serde_json::{Value, json};

#[derive(Debug, Clone)]
enum Write {
    Create(usize),
    Merge(usize, u8),
    Apply(usize, u8, bool),
    Delete(usize),
}

const NAMES: [&str; 3] = ["a", "b", "c"];

fn writes() -> impl Strategy<Value = Vec<Write>> {
    let name = 0..NAMES.len();
    let write = prop_oneof![
        name.clone().prop_map(Write::Create),
        (name.clone(), 0..3u8).prop_map(|(name, value)| Write::Merge(name, value)),
        (name.clone(), 0..3u8, any::<bool>()).prop_map(|(name, value, force)| Write::Apply(name, value, force)),
        name.prop_map(Write::Delete),
    ];
    proptest::collection::vec(write, 1..10)
}

fn number(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// Runs a sequence, and returns the list after each of its writes.
async fn play(server: &apiserver::ApiServer, writes: &[Write]) -> Vec<Value> {
    let mut lists = vec![call(server, &format!("GET {MAPS}"), Value::Null).await.1];
    for write in writes {
        match write {
            Write::Create(name) => drop(call(server, &format!("POST {MAPS}"), map(NAMES[*name], "0")).await),
            Write::Merge(name, value) => {
                let body = json!({ "metadata": { "labels": { "l": value.to_string() } } });
                patch(server, &format!("{MAPS}/{}", NAMES[*name]), MERGE, body).await;
            }
            Write::Apply(name, value, force) => {
                let key = format!("k{value}");
                let mut body = map(NAMES[*name], "1");
                body["data"] = json!({ key: "1" });
                let path = format!("{MAPS}/{}?fieldManager=m{value}&force={force}", NAMES[*name]);
                let first = patch(server, &path, APPLY, body.clone()).await;
                let again = patch(server, &path, APPLY, body).await;
                assert!([200, 201, 409].contains(&first.0), "{first:?}");
                let code = if first.0 == 409 { 409 } else { 200 };
                assert_eq!(again, (code, first.1), "applying twice changes nothing");
            }
            Write::Delete(name) => drop(call(server, &format!("DELETE {MAPS}/{}", NAMES[*name]), Value::Null).await),
        }
        lists.push(call(server, &format!("GET {MAPS}"), Value::Null).await.1);
    }
    lists
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_watch_over_its_list_is_the_list_at_each_version(before in writes(), from in 0usize..10, after in writes()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let server = server_with_moving_time();
            let mut lists = play(&server, &before).await;
            let first = &lists[from % lists.len()].clone();
            let mut lines = Lines::open(&server, &format!("{MAPS}?watch=true&timeoutSeconds=1&resourceVersion={}", number(first))).await;
            lists.extend(play(&server, &after).await);
            assert!(lists.windows(2).all(|pair| number(&pair[0]) <= number(&pair[1])), "versions only grow");
            let item = |object: &Value| {
                let mut object = object.clone();
                object.as_object_mut().unwrap().retain(|field, _| field == "metadata" || field == "data");
                (object["metadata"]["name"].as_str().unwrap().to_owned(), object)
            };
            let content = |list: &Value| list["items"].as_array().unwrap().iter().map(item).collect::<BTreeMap<_, _>>();
            let mut state = content(first);
            let mut versions = vec![number(first)];
            let mut states = BTreeMap::from([(number(first), state.clone())]);
            while let Some(line) = lines.next().await {
                let (name, object) = item(&line["object"]);
                versions.push(number(&object));
                if line["type"] == "DELETED" { state.remove(&name); } else { state.insert(name, object); }
                states.insert(*versions.last().unwrap(), state.clone());
            }
            assert!(versions.windows(2).all(|pair| pair[0] < pair[1]), "each event is newer: {versions:?}");
            for list in lists.iter().filter(|list| number(list) >= number(first)) {
                let (_, state) = states.range(..=number(list)).next_back().unwrap();
                assert_eq!(&content(list), state);
            }
        });
    }
}
