//! Versions of what is installed, for `recif version`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    api::{ApiReader, Read},
    parts::part,
    views::Definition,
};
use crate::{cluster::UserClient, error::CliError};

/// Longest wait for each read.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);
const PARTS: [(&str, &str); 3] =
    [("operator", "recif-operator"), ("gateway", "recif-gateway"), ("control plane", "recif-control-plane")];

/// Version of something that may be installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InstalledVersion {
    /// It is this.
    Known(String),
    /// It is not installed.
    Absent,
    /// The version is unknown, for this reason.
    Unknown(String),
}

impl std::fmt::Display for InstalledVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Known(version) => f.write_str(version),
            Self::Absent => f.write_str("not installed"),
            Self::Unknown(why) => write!(f, "unknown, {why}"),
        }
    }
}

/// Reads the versions of the parts and of the CustomResourceDefinitions, each with its name.
///
/// # Errors
/// There is no API server.
pub(crate) async fn installed_versions(
    live: &UserClient,
    system: &str,
) -> Result<Vec<(&'static str, InstalledVersion)>, CliError> {
    let api = ApiReader::new(live, TIMEOUT);
    api.version().await?;
    let mut versions = Vec::new();
    for (name, deployment) in PARTS {
        let path = format!("/apis/apps/v1/namespaces/{system}/deployments/{deployment}");
        let read = api.get::<Value>("get deployments", &path).await;
        versions.push((name, of_part(read)));
    }
    versions.push(("crds", of_definitions(api.definitions().await)));
    Ok(versions)
}

fn of_part(read: Read<Option<Value>>) -> InstalledVersion {
    match read.map(|deployment| deployment.map(|deployment| part(&deployment))) {
        Ok(Some(part)) if !part.version.is_empty() => InstalledVersion::Known(part.version),
        Ok(Some(part)) => InstalledVersion::Unknown(format!("its image is {}", part.image)),
        Ok(None) => InstalledVersion::Absent,
        Err(why) => InstalledVersion::Unknown(why.to_string()),
    }
}

fn of_definitions(read: Read<Vec<Definition>>) -> InstalledVersion {
    match read {
        Ok(definitions) if definitions.is_empty() => InstalledVersion::Absent,
        Ok(definitions) => {
            let versions: BTreeSet<_> = definitions.into_iter().filter_map(|one| one.version).collect();
            match versions.is_empty() {
                true => InstalledVersion::Unknown("they have no annotation recif.dev/version".to_owned()),
                false => InstalledVersion::Known(versions.into_iter().collect::<Vec<_>>().join(", ")),
            }
        }
        Err(why) => InstalledVersion::Unknown(why.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::reading::api::Unread;

    #[test]
    fn a_version_is_that_of_the_tag_or_of_the_label() {
        let deployment = |label: Value, image: &str| {
            json!({ "metadata": { "labels": { "app.kubernetes.io/version": label } },
                "spec": { "template": { "spec": { "containers": [{ "image": image }] } } } })
        };
        let known = |version: &str| InstalledVersion::Known(version.to_owned());
        assert_eq!(of_part(Ok(Some(deployment(json!("0.4.0"), "x:0.5.0")))), known("0.5.0"));
        assert_eq!(of_part(Ok(Some(deployment(json!("0.4.0"), "x@sha256:0")))), known("0.4.0"));
        assert_eq!(of_part(Ok(Some(deployment(json!(null), "r/x:0.3.0")))), known("0.3.0"));
        assert!(matches!(of_part(Ok(Some(deployment(json!(null), "x@sha256:0")))), InstalledVersion::Unknown(_)));
        assert_eq!(of_part(Ok(None)), InstalledVersion::Absent);
        let refused = of_part(Err(Unread::Forbidden("get deployments".into())));
        assert_eq!(refused.to_string(), "unknown, you may not get deployments");
    }

    #[test]
    fn definitions_of_several_versions_are_all_told() {
        let one = |version: Option<&str>| Definition { version: version.map(Into::into), ..Definition::default() };
        let told = |all: &[Option<&str>]| of_definitions(Ok(all.iter().map(|version| one(*version)).collect()));
        assert_eq!(told(&[Some("0.4.0"), Some("0.3.0"), Some("0.4.0")]).to_string(), "0.3.0, 0.4.0");
        assert_eq!(told(&[]), InstalledVersion::Absent);
        assert!(matches!(told(&[None]), InstalledVersion::Unknown(_)));
    }
}
