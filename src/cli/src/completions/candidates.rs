//! Candidates of a completion, where need be from the cluster.

use std::time::Duration;

use crds::ApiKind;
use kube::api::DynamicObject;
use tokio::time::timeout;

use super::words::{Completion, Source};
use crate::cluster::{ReadError, UserClient};

/// Time after which a shell gets no candidates rather than wait for the cluster.
const PATIENCE: Duration = Duration::from_secs(3);

/// Returns the candidates and their descriptions. None if the cluster cannot be read: a shell has no place for errors.
pub(super) async fn candidates(completion: &Completion) -> Vec<(String, String)> {
    match &completion.source {
        Source::Nothing | Source::Files => Vec::new(),
        Source::Words(words) => words.clone(),
        Source::Kinds(kinds) => kinds.iter().map(|kind| (kind.plural.to_owned(), about(kind))).collect(),
        Source::KindPrefixes(kinds) => {
            kinds.iter().map(|kind| (format!("{}/", kind.name.to_lowercase()), about(kind))).collect()
        }
        source => timeout(PATIENCE, read(completion, source)).await.ok().and_then(Result::ok).unwrap_or_default(),
    }
}

async fn read(completion: &Completion, source: &Source) -> Result<Vec<(String, String)>, ReadError> {
    let live = UserClient::connect(&completion.connection).await?;
    let list = async |kind: &'static ApiKind| live.list(kind, Some(live.namespace.as_str()), |_| true).await;
    Ok(match source {
        Source::Names(kind) => list(*kind).await?.iter().map(|object| (name(object), phase(object))).collect(),
        Source::FlowSetPrefixes(kind) => {
            list(*kind).await?.iter().map(|object| (format!("{}/", name(object)), phase(object))).collect()
        }
        Source::Flows(kind, set) => live.object(kind, set).await?.as_ref().map(flows).unwrap_or_default(),
        Source::Namespaces => live.namespaces().await?.into_iter().map(|name| (name, String::new())).collect(),
        _ => Vec::new(),
    })
}

fn name(object: &DynamicObject) -> String {
    object.metadata.name.clone().unwrap_or_default()
}

fn phase(object: &DynamicObject) -> String {
    object.data["status"]["phase"].as_str().unwrap_or_default().to_owned()
}

fn flows(set: &DynamicObject) -> Vec<(String, String)> {
    let flows = set.data["spec"]["flows"].as_array().into_iter().flatten();
    flows.filter_map(|flow| Some((flow["name"].as_str()?.to_owned(), String::new()))).collect()
}

/// Returns the first sentence of a kind's description.
fn about(kind: &ApiKind) -> String {
    let definition = kind.definition();
    let schema = definition.spec.versions.into_iter().next().and_then(|version| version.schema?.open_api_v3_schema);
    let text = schema.and_then(|schema| schema.description).unwrap_or_default();
    text.split_once(". ").map_or(text.trim_end_matches('.'), |(first, _)| first).to_owned()
}

#[cfg(test)]
mod tests {
    use clap::Subcommand as _;

    use crate::completions::complete;

    async fn completed(words: &[&str]) -> String {
        let root = crate::CliCommand::augment_subcommands(clap::Command::new("recif"));
        complete(&root, &words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).await
    }

    #[tokio::test]
    async fn a_shell_is_told_what_could_follow_and_what_it_is() {
        assert_eq!(completed(&["tr"]).await, "trace\tShow what an object did, step by step, and why\n:4\n");
        assert_eq!(
            completed(&["why", "a"]).await,
            "agents\tAn agent: what it is, and how it runs as Pods behind a Service\n:4\n"
        );
        assert_eq!(completed(&["get", "--all"]).await, "--all-namespaces\tIn all namespaces\n:4\n");
        let chat = completed(&["chat", "flows"]).await;
        assert!(chat.starts_with("flowset/\t") && chat.ends_with("\n:6\n"), "{chat}");
        assert_eq!(completed(&["why", "--kubeconfig", ""]).await, ":0\n");
        let all = completed(&[""]).await;
        assert!(all.starts_with("get\t") && all.contains("\nchat\t") && completed(&[]).await == all, "{all}");
    }

    #[tokio::test]
    async fn a_cluster_that_cannot_be_read_has_no_candidates() {
        assert_eq!(completed(&["why", "--kubeconfig", "/nowhere/at/all", "agent/"]).await, ":4\n");
    }
}
