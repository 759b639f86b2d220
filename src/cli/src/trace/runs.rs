//! `recif trace --run`: prints what became of one request, from the spans that the control plane keeps.

use serde_json::Value;
use url::form_urlencoded;

use super::run_tree::RunTree;
use crate::{
    cluster::UserClient,
    control_plane,
    error::CliError,
    output::{PrintFormat, print_foreign},
};

/// Prints the run with this id: that of its trace, or that of a conversation, whose newest run is meant.
pub(super) async fn print_run(
    live: &UserClient,
    system_namespace: &str,
    id: &str,
    output: PrintFormat,
) -> Result<(), CliError> {
    let run = find(live, system_namespace, id).await?;
    match output {
        PrintFormat::Plain => print_foreign(&RunTree::read(&run)?.text()),
        output => print_foreign(&output.document("the run", &run)?),
    }
}

async fn find(live: &UserClient, system_namespace: &str, id: &str) -> Result<Value, CliError> {
    let get = async |path: &str| control_plane::get(live, system_namespace, path).await;
    let mut unknown = format!("no run {id:?} is known, and no conversation of that id: give the id in x-recif-run");
    if is_trace(id) {
        match get(&run_path(id)).await {
            // The id of a conversation may look like that of a trace.
            Err(CliError::NotFound(text)) => unknown = text,
            found => return found,
        }
    }
    let runs = match get(&newest_path(id)).await {
        // To see a run takes less than to list those of a conversation.
        Err(CliError::Forbidden(_)) if is_trace(id) => return Err(CliError::NotFound(unknown)),
        found => found?,
    };
    match runs["items"][0]["trace"].as_str().filter(|trace| is_trace(trace)) {
        Some(trace) => get(&run_path(trace)).await,
        None => Err(CliError::NotFound(unknown)),
    }
}

/// Reports whether a text is the id of a trace.
fn is_trace(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn run_path(trace: &str) -> String {
    format!("/v1/runs/{}", trace.to_ascii_lowercase())
}

fn newest_path(conversation: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("conversation", conversation).append_pair("limit", "1");
    format!("/v1/runs?{}", query.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_that_of_a_trace_or_of_a_conversation() {
        assert!(is_trace("0af7651916cd43dd8448eb211c80319c") && is_trace("0AF7651916CD43DD8448EB211C80319C"));
        for id in ["", "0af7", "0af7651916cd43dd8448eb211c80319x", "0af76519-16cd-43dd-8448-eb211c80319c"] {
            assert!(!is_trace(id), "{id}");
        }
        assert_eq!(run_path("0AF7651916CD43DD8448EB211C80319C"), "/v1/runs/0af7651916cd43dd8448eb211c80319c");
        assert_eq!(newest_path("a/b&c=d"), "/v1/runs?conversation=a%2Fb%26c%3Dd&limit=1");
    }
}
