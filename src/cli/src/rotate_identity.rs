//! `recif rotate-identity`: makes the next key pair the one with which gateways sign callers, and generates a new next
//! one.
//!
//! Pods know two keys from their template: the one that signed when it was rendered, and the next one. So one rotation
//! restarts no Pod. Pods of a template older than the last rotation would know neither key after another one: they are
//! reported instead.

use cluster::cache::{IDENTITY_SECRET, bytes, secret_data};
use crds::{KINDS, Role};
use identity::KeySet;
use kube::api::DynamicObject;
use serde_json::json;

use crate::{
    error::CliError,
    exit::Exit,
    output::{PrintFormat, print},
    target::{ConnectArgs, SystemArgs},
};

/// Flags of `recif rotate-identity`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Needs the right to get and update the Secret recif-identity in the operator's namespace, and to list what runs \
                  Pods. Gateways sign with the new key within seconds; no Pod is restarted.\n\nExamples:\n  recif \
                  rotate-identity\n  recif rotate-identity --force   # after the Secret was seen by others"
)]
pub struct RotateIdentityArgs {
    #[command(flatten)]
    connection: ConnectArgs,
    #[command(flatten)]
    system: SystemArgs,
    /// Rotate although some Pods will know neither key: they identify no caller until they are rolled out
    #[arg(long)]
    force: bool,
    /// How to print it
    #[arg(short, long, value_parser = PrintFormat::parser(PrintFormat::TEXT_FORMATS), default_value = "plain")]
    output: PrintFormat,
}

/// Rotates the keys, unless Pods would be left without a known key.
pub(super) async fn run(args: RotateIdentityArgs) -> Result<Exit, CliError> {
    let RotateIdentityArgs { connection, system, force, output } = args;
    let namespace = system.system_namespace;
    let live = connection.connect().await?;
    let mut secret = live.secret(&namespace, IDENTITY_SECRET).await?.ok_or_else(|| CliError::NoIdentity {
        namespace: namespace.clone(),
        why: "it is not there; the operator makes it".to_owned(),
    })?;
    let unusable = |why: String| CliError::NoIdentity { namespace: namespace.clone(), why };
    let keys =
        KeySet::read(&bytes(secret.data.take().unwrap_or_default())).map_err(|error| unusable(error.to_string()))?;
    let mut behind = Vec::new();
    for kind in KINDS.iter().filter(|kind| kind.role == Role::Workload) {
        let objects = live.list(kind, None, |_| true).await?;
        behind.extend(objects.iter().filter_map(|object| left_behind(kind.name, object, &keys.next.public.text())));
    }
    if !behind.is_empty() && !force {
        return Err(CliError::LeftBehind(behind.join(", ")));
    }
    let keys = keys.rotated().map_err(|error| unusable(format!("the system has no random numbers: {error}")))?;
    secret.data = Some(secret_data(&keys));
    live.replace_secret(&namespace, &secret).await?;
    match output {
        PrintFormat::Json | PrintFormat::Yaml => {
            let answer = json!({ "namespace": namespace, "current": keys.current.public.id, "next": keys.next.public.id,
                "leftBehind": behind });
            print(&output.document("the rotation", &answer)?)?;
        }
        _ => print(&describe(&behind))?,
    }
    Ok(Exit::Done)
}

fn describe(behind: &[String]) -> String {
    let rest = behind.iter().map(|name| format!("roll out, for its Pods do not know it: {name}\n"));
    ["the next key signs from now on\n".to_owned()].into_iter().chain(rest).collect()
}

/// Returns the name of a workload whose Pods have keys, but not this one.
fn left_behind(kind: &str, object: &DynamicObject, key: &str) -> Option<String> {
    let known = object.data.pointer("/status/callerKeys")?.as_str()?;
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    let name =
        format!("{}/{} -n {namespace}", kind.to_lowercase(), object.metadata.name.as_deref().unwrap_or_default());
    (!known.is_empty() && known.split(',').all(|known| known != key)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_whose_pods_do_not_know_the_next_key_are_named() {
        let object = |status: serde_json::Value| -> DynamicObject {
            serde_json::from_value(json!({ "metadata": { "name": "a", "namespace": "ns" }, "status": status })).unwrap()
        };
        for (status, behind) in [
            (json!({}), false),
            (json!({ "callerKeys": "one,two" }), false),
            (json!({ "callerKeys": "zero,one" }), true),
        ] {
            let found = left_behind("Agent", &object(status.clone()), "two");
            assert_eq!(found.as_deref(), behind.then_some("agent/a -n ns"), "{status}");
        }
        assert!(describe(&["agent/a -n ns".into()]).ends_with("do not know it: agent/a -n ns\n"));
    }
}
