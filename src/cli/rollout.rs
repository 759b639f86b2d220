//! `recif rollout`: replaces the Pods of a workload, with the images that the operator gives today.
//!
//! It only leaves a mark on the object, an annotation with the time: the operator sees it and does the rest, phase by
//! phase, as for any other change.

use std::process::ExitCode;

use crds::{KINDS, Kind, ROLLOUT_AT, Role};
use jiff::Timestamp;
use kube::api::DynamicObject;

use super::{CliError, ConnectArgs, Target, print};

/// Flags of `recif rollout`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Needs the right to patch the object. Follow it with `recif trace KIND/NAME -f`.\n\nExamples:\n  recif \
                        rollout agent/my-agent\n  kubectl recif rollout fl greeter -n team-a"
)]
pub struct RolloutArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    connection: ConnectArgs,
}

/// Marks the object.
pub(super) async fn run(args: RolloutArgs) -> Result<ExitCode, CliError> {
    let (kind, name) = args.target.parse()?;
    has_pods(kind)?;
    let live = args.connection.connect().await?;
    let object = live.object(kind, name).await?.ok_or_else(|| CliError::missing(&live, kind, name))?;
    if object.metadata.deletion_timestamp.is_some() {
        return Err(CliError::Going { kind: kind.name, name: name.to_owned() });
    }
    live.annotate(kind, name, ROLLOUT_AT, &Timestamp::now().to_string()).await?;
    print(&told(kind, name, &object))?;
    Ok(ExitCode::SUCCESS)
}

/// Whether objects of the kind have Pods to be replaced.
fn has_pods(kind: &'static Kind) -> Result<(), CliError> {
    if kind.role == Role::Workload {
        return Ok(());
    }
    let workloads: Vec<_> = KINDS.iter().filter(|kind| kind.role == Role::Workload).map(|kind| kind.name).collect();
    Err(CliError::NoPods { kind: kind.name, workloads: workloads.join(", ") })
}

fn told(kind: &Kind, name: &str, object: &DynamicObject) -> String {
    let kind = kind.name.to_lowercase();
    if object.data.pointer("/spec/replicas") == Some(&0.into()) {
        return format!("{kind}/{name} is stopped: it takes the operator's images of then when it is started\n");
    }
    format!("{kind}/{name} rolls out: follow it with `recif trace {kind}/{name} -f`\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::target::find_kind;

    #[test]
    fn only_what_has_pods_can_roll_out() {
        for kind in ["agent", "fl", "flowsets"] {
            assert!(has_pods(find_kind(kind).unwrap()).is_ok(), "{kind}");
        }
        let error = has_pods(find_kind("pr").unwrap()).unwrap_err().to_string();
        assert!(error.starts_with("a Prompt has no Pods") && error.contains("Agent, Flow, FlowSet"), "{error}");
    }

    #[test]
    fn one_that_is_stopped_says_so() {
        let object = |replicas: i32| -> DynamicObject {
            serde_json::from_value(json!({ "metadata": { "name": "a" }, "spec": { "replicas": replicas } })).unwrap()
        };
        let kind = find_kind("ag").unwrap();
        assert_eq!(told(kind, "a", &object(1)), "agent/a rolls out: follow it with `recif trace agent/a -f`\n");
        assert!(told(kind, "a", &object(0)).starts_with("agent/a is stopped"));
    }
}
