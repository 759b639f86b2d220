//! `recif why` without a name: the sentences on all that is not as it should be.

use crds::ApiKind;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::summarize;
use crate::{
    cluster::UserClient,
    error::CliError,
    exit::Exit,
    output::{PrintFormat, print, print_foreign},
    selection::{ListOutcomes, Selection, place, print_empty_hint},
};

/// Prints a sentence on each object of the kinds that is not as it should be.
pub(super) async fn run(
    live: &UserClient,
    selection: &Selection,
    all_namespaces: bool,
    output: PrintFormat,
) -> Result<Exit, CliError> {
    let namespace = (!all_namespaces).then_some(live.namespace.as_str());
    let (mut total, mut items) = (0_usize, Vec::new());
    let mut outcomes = ListOutcomes::default();
    for kind in selection.kinds() {
        let count = |object: &DynamicObject| {
            total += 1;
            summarize(kind, object).attention
        };
        let listed = live.list(kind, namespace, count).await.map_err(CliError::from);
        let found = outcomes.take(listed)?.unwrap_or_default();
        items.extend(found.iter().map(|object| item(kind, object)));
    }
    outcomes.finish()?;
    match output {
        PrintFormat::Json | PrintFormat::Yaml => {
            print_foreign(&output.document("the answer", &json!({ "total": total, "items": items }))?)?;
        }
        _ if total == 0 => print_empty_hint(&selection.describe(), namespace),
        _ if items.is_empty() => print(&all_well(total, namespace))?,
        _ => {
            let sentences = items.iter().filter_map(|item| item["sentence"].as_str());
            print_foreign(&sentences.map(|sentence| format!("{sentence}\n")).collect::<String>())?;
        }
    }
    Ok(if items.is_empty() { Exit::Done } else { Exit::NotReady })
}

fn item(kind: &ApiKind, object: &DynamicObject) -> Value {
    let summary = summarize(kind, object);
    json!({ "kind": kind.name, "namespace": object.metadata.namespace, "name": object.metadata.name, "phase": summary.phase,
        "ready": summary.ready, "reason": summary.reason, "sentence": summary.sentence })
}

fn all_well(total: usize, namespace: Option<&str>) -> String {
    let what = if total == 1 { "The one object".into() } else { format!("All {total} objects") };
    let are = if total == 1 { "is as it should be" } else { "are as they should be" };
    format!("{what} in {} {are}.\n", place(namespace))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_well_is_counted() {
        assert_eq!(all_well(12, Some("a")), "All 12 objects in namespace a are as they should be.\n");
        assert_eq!(all_well(1, None), "The one object in all namespaces is as it should be.\n");
    }

    #[test]
    fn an_item_says_what_the_sentence_says_for_programs() {
        let agent = json!({ "apiVersion": "agents.recif.dev/v1", "kind": "Agent", "metadata": { "namespace": "a", "name": "one" },
            "spec": {}, "status": { "phase": "Deploying" } });
        let item = item(ApiKind::find("Agent").unwrap(), &serde_json::from_value(agent).unwrap());
        assert_eq!((&item["kind"], &item["namespace"], &item["ready"]), (&json!("Agent"), &json!("a"), &json!(false)));
        assert!(item["sentence"].as_str().unwrap().starts_with("Agent a/one is Deploying"), "{item}");
    }
}
