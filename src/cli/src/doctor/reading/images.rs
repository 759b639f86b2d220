//! Readings of images: which are used, and which containers wait for theirs.

use crds::{agent::DEFAULT_IMAGE, pod_problem::IMAGE_PULL_REASONS};
use serde_json::Value;

use super::{
    api::{ApiReader, Read, Unread, items, text},
    parts::Part,
    views::Scope,
};

/// Variables of the operator with images, and what they are for.
const VARIABLES: [(&str, &str); 3] =
    [("RECIF_RUNNER_IMAGE", "flows"), ("RECIF_PROXY_IMAGE", "sidecar"), ("RECIF_AGENT_IMAGE", "agents")];

/// Image that is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::doctor) struct ImageUse {
    /// Its use, such as `sidecar`.
    pub part: &'static str,
    /// Its name.
    pub image: String,
    /// Credentials with which a part pulls it; `None`: Pods of workloads use it, which have Secrets of their own.
    pub puller: Option<Puller>,
}

/// Credentials with which a Pod of a part pulls its image.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::doctor) struct Puller {
    /// Its ServiceAccount, which may have Secrets for it.
    pub account: String,
    /// Secrets that the Pod names.
    pub secrets: Vec<String>,
}

/// Container that waits for its image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::doctor) struct WaitingImage {
    /// Namespace and name of its Pod.
    pub pod: String,
    /// The image.
    pub image: String,
    /// The kubelet's words.
    pub said: String,
}

/// Reads the images of the installed parts, and what waits for its image in both namespaces.
pub(super) async fn read(
    api: &ApiReader<'_>,
    scope: &Scope,
    parts: [Option<&Part>; 3],
) -> Read<(Vec<ImageUse>, Vec<WaitingImage>)> {
    let mut waiting = Vec::new();
    let mut namespaces = vec![&scope.namespace, &scope.system];
    namespaces.dedup();
    for namespace in namespaces {
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        let ours = "&labelSelector=app.kubernetes.io%2Fpart-of%3Drecif";
        let pods = api.list::<Value>("list pods", &path, ours).await?.unwrap_or_default();
        waiting.extend(pods.iter().flat_map(waiting_images));
    }
    let uses = uses(parts);
    if uses.is_empty() && waiting.is_empty() {
        return Err(Unread::NotInstalled);
    }
    Ok((uses, waiting))
}

fn uses([operator, gateway, control_plane]: [Option<&Part>; 3]) -> Vec<ImageUse> {
    let parts = [("operator", operator), ("gateway", gateway), ("control plane", control_plane)];
    let used = |(part, found): (&'static str, Option<&Part>)| {
        let Part { image, account, pull_secrets, .. } = found?;
        let puller = Puller { account: account.clone(), secrets: pull_secrets.clone() };
        Some(ImageUse { part, image: image.clone(), puller: Some(puller) })
    };
    let mut uses: Vec<ImageUse> = parts.into_iter().filter_map(used).collect();
    if let Some(operator) = operator {
        for (variable, part) in VARIABLES {
            let flag = format!("--{}", variable.trim_start_matches("RECIF_").to_lowercase().replace('_', "-"));
            let set = operator.setting(&flag, variable).filter(|image| !image.is_empty());
            let image = set.or((part == "agents").then_some(DEFAULT_IMAGE));
            uses.extend(image.map(|image| ImageUse { part, image: image.to_owned(), puller: None }));
        }
    }
    uses
}

/// Returns the containers of a Pod that wait for their images.
pub(in crate::doctor) fn waiting_images(pod: &Value) -> Vec<WaitingImage> {
    let of = |list: &'static str| items(pod, list);
    let all = of("/status/initContainerStatuses").chain(of("/status/containerStatuses"));
    let waits = all.filter_map(|container| {
        let waiting = container.pointer("/state/waiting")?;
        let (reason, message) = (text(waiting, "/reason"), text(waiting, "/message"));
        IMAGE_PULL_REASONS.contains(&reason.as_str()).then(|| WaitingImage {
            pod: format!("{}/{}", text(pod, "/metadata/namespace"), text(pod, "/metadata/name")),
            image: text(container, "/image"),
            said: if message.is_empty() { reason } else { format!("{reason}: {message}") },
        })
    });
    waits.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_container_without_its_image_is_found_in_the_kubelets_words() {
        let state = |reason: &str| {
            json!({ "metadata": { "namespace": "a", "name": "p" }, "status": { "containerStatuses": [
                { "image": "x:1", "state": { "waiting": { "reason": reason, "message": "not found" } } }] } })
        };
        let waits = waiting_images(&state("ErrImagePull"));
        assert_eq!((waits[0].pod.as_str(), waits[0].said.as_str()), ("a/p", "ErrImagePull: not found"));
        assert!(waiting_images(&state("ContainerCreating")).is_empty());
    }

    #[test]
    fn agents_have_an_image_also_where_the_operator_names_none() {
        let mut operator = Part { image: "r/recif:1".into(), pull_secrets: vec!["registry".into()], ..Part::default() };
        let agents = |operator: &Part| {
            uses([Some(operator), None, None]).into_iter().find(|one| one.part == "agents").unwrap().image
        };
        assert_eq!(agents(&operator), "corail:latest");
        operator.args = vec!["operator".into(), "--agent-image=r/runner:1".into()];
        assert_eq!(agents(&operator), "r/runner:1");
        let all = uses([Some(&operator), None, None]);
        let secrets = |one: &ImageUse| Some(one.puller.clone()?.secrets);
        let told: Vec<_> = all.iter().map(|one| (one.part, secrets(one))).collect();
        assert_eq!(told, [("operator", Some(vec!["registry".to_owned()])), ("agents", None)]);
        assert!(uses([None, None, None]).is_empty());
    }
}
