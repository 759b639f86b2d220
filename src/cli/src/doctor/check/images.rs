//! Row 9: images: those that nodes have, and what the kubelets say of the others.

use super::super::{
    finding::{Finding, Issue},
    reading::{ImageUse, LeftPod, NodeView, PullOutcome, Pulled, Read, Unread, WaitingImage},
};

const CHECK: &str = "images";
const PULL: &str =
    "see that the nodes reach the registry and that imagePullSecrets has its password, or correct the image";
/// The doctor's Pod has no Secret of the agents, of which each names its own.
const PULL_OF_WORKLOADS: &str = "see that the nodes reach the registry, or correct the image; if the registry asks for a password, give the \
     ServiceAccount default there the Secrets that agents name in spec.imagePullSecrets, and ask again";

/// Judges the images.
pub(super) fn check(
    images: &Read<(Vec<ImageUse>, Vec<WaitingImage>)>,
    nodes: &Read<Vec<NodeView>>,
    pulled: Option<&[Pulled]>,
) -> Finding {
    let (uses, waiting) = match images {
        Ok(read) => read,
        Err(why) => return Finding::skip(CHECK, CHECK, why),
    };
    let mut issues: Vec<_> = waiting
        .iter()
        .map(|one| Issue::fail(format!("{} of Pod {}, {}", one.image, one.pod, one.said), PULL))
        .collect();
    let mut started = 0;
    for one in pulled.into_iter().flatten() {
        started += usize::from(one.outcome == PullOutcome::Started);
        issues.extend(judge_pull(one));
        if let Some(LeftPod { pod, why }) = &one.left {
            issues.push(Issue::warn(format!("Pod {pod} could not be removed, {why}"), "delete it"));
        }
    }
    // Without the nodes it is not known which images are there.
    for one in nodes.iter().flat_map(|nodes| uses.iter().filter(move |one| is_nowhere(&one.image, nodes))) {
        let what = format!("{} ({}) names no registry, and no node has it", one.image, one.part);
        let remedy = match one.part {
            "agents" => "give the operator --agent-image (chart: agentImage), or load it onto the nodes",
            _ => "use an image with the name of its registry, or load it onto the nodes",
        };
        issues.push(Issue::warn(what, remedy));
    }
    let ok = match started {
        0 => format!("no Pod waits for one of {}", uses.len()),
        1 => "1 was pulled, or was on its node, and starts".to_owned(),
        started => format!("{started} were pulled, or were on their nodes, and start"),
    };
    Finding::judge(CHECK, CHECK, ok, issues)
}

/// Judges what became of a Pod that pulled an image.
fn judge_pull(pulled: &Pulled) -> Option<Issue> {
    let Pulled { image, place, of_workloads, outcome, .. } = pulled;
    let remedy = if *of_workloads { PULL_OF_WORKLOADS } else { PULL };
    Some(match outcome {
        PullOutcome::Started => return None,
        PullOutcome::Exited(code) => Issue::warn(
            format!("{image} in {place} ended with exit code {code} when it was asked for its version"),
            "see that it is the right image",
        ),
        PullOutcome::Failed(why) => Issue::fail(format!("{image} in {place}, {why}"), remedy),
        PullOutcome::Unscheduled(why) => {
            Issue::warn(format!("{image} in {place} was not pulled, {why}"), "see `kubectl describe nodes`")
        }
        PullOutcome::Unread(why @ Unread::Forbidden(_)) => {
            Issue::warn(format!("{image} in {place} was not pulled, {why}"), "leave out --pull")
        }
        PullOutcome::Unread(why) => {
            Issue::fail(format!("{image} in {place} was not pulled, {why}"), "fix that, or leave out --pull")
        }
    })
}

/// Reports whether no node can have the image: it has no registry to come from, and none holds it.
fn is_nowhere(image: &str, nodes: &[NodeView]) -> bool {
    // `recif.local` is the name under which a local build is loaded, and no registry.
    let has_registry = image.split_once('/').is_some_and(|(host, _)| host != "recif.local");
    let held = |node: &NodeView| node.images.iter().any(|name| is_same(name, image));
    !has_registry && !nodes.iter().any(held)
}

/// Reports whether a node's name of an image is this one; nodes write the registry and folder of Docker Hub out.
fn is_same(held: &str, image: &str) -> bool {
    let short = |name: &str| {
        let name = name.strip_prefix("docker.io/").unwrap_or(name);
        let name = name.strip_prefix("library/").unwrap_or(name).to_owned();
        if name.rsplit('/').next().is_some_and(|last| last.contains([':', '@'])) {
            name
        } else {
            format!("{name}:latest")
        }
    };
    short(held) == short(image)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    fn used(image: &str) -> ImageUse {
        ImageUse { part: "agents", image: image.into(), puller: None }
    }

    fn node(images: &[&str]) -> Read<Vec<NodeView>> {
        let images = images.iter().map(|&image| image.to_owned()).collect();
        Ok(vec![NodeView { images, ..NodeView::default() }])
    }

    #[test]
    fn an_image_without_a_registry_has_to_be_on_a_node() {
        for (image, held, verdict) in [
            ("ghcr.io/x/runner:1", &[][..], Verdict::Ok),
            ("localhost:5000/x", &[], Verdict::Ok),
            ("corail:latest", &["docker.io/library/corail:latest"], Verdict::Ok),
            ("corail", &["docker.io/library/corail:latest"], Verdict::Ok),
            ("recif.local/runner:dev", &["recif.local/runner:dev"], Verdict::Ok),
            ("corail:latest", &["docker.io/library/corail:1"], Verdict::Warn),
            ("recif.local/runner:dev", &[], Verdict::Warn),
        ] {
            let found = check(&Ok((vec![used(image)], vec![])), &node(held), None);
            assert_eq!(found.verdict, verdict, "{image}: {}", found.text);
        }
        let unknown = Err(Unread::Forbidden("list nodes".into()));
        assert_eq!(check(&Ok((vec![used("corail:latest")], vec![])), &unknown, None).verdict, Verdict::Ok);
    }

    #[test]
    fn the_kubelets_words_are_passed_on() {
        let waits = WaitingImage { pod: "a/p".into(), image: "x:1".into(), said: "ErrImagePull: not found".into() };
        let found = check(&Ok((vec![], vec![waits])), &node(&[]), None);
        assert_eq!(found.verdict, Verdict::Fail);
        assert!(found.text.starts_with("images: x:1 of Pod a/p, ErrImagePull: not found: see"), "{}", found.text);
    }

    #[test]
    fn what_was_pulled_is_judged() {
        let pull = |outcome, of_workloads| Pulled {
            image: "r.io/x".into(),
            place: "team-a".into(),
            of_workloads,
            outcome,
            left: None,
        };
        let judged = |pulled: &[Pulled]| check(&Ok((vec![used("r.io/x")], vec![])), &node(&[]), Some(pulled));
        for (outcome, verdict, text) in [
            (PullOutcome::Started, Verdict::Ok, "images: 1 was pulled, or was on its node, and starts"),
            (PullOutcome::Exited(2), Verdict::Warn, "r.io/x in team-a ended with exit code 2"),
            (PullOutcome::Failed("not found".into()), Verdict::Fail, "r.io/x in team-a, not found: see that the nodes"),
            (PullOutcome::Unscheduled("0/1 nodes".into()), Verdict::Warn, "was not pulled, 0/1 nodes: see"),
            (PullOutcome::Unread(Unread::Forbidden("create pods".into())), Verdict::Warn, "you may not create pods"),
            (PullOutcome::Unread(Unread::Failed("quota".into())), Verdict::Fail, "was not pulled, quota"),
        ] {
            let found = judged(&[pull(outcome, false)]);
            assert_eq!(found.verdict, verdict, "{}", found.text);
            assert!(found.text.contains(text), "{}", found.text);
        }
        let both = [pull(PullOutcome::Started, true), pull(PullOutcome::Started, false)];
        assert_eq!(judged(&both).text, "images: 2 were pulled, or were on their nodes, and start");
        let of_workloads = judged(&[pull(PullOutcome::Failed("401".into()), true)]);
        assert!(of_workloads.text.contains("spec.imagePullSecrets"), "{}", of_workloads.text);
        let left = LeftPod { pod: "team-a/recif-doctor-1".into(), why: "refused".into() };
        let found = judged(&[Pulled { left: Some(left), ..pull(PullOutcome::Started, false) }]);
        assert_eq!(found.verdict, Verdict::Warn);
        assert!(
            found.text.contains("Pod team-a/recif-doctor-1 could not be removed, refused: delete it"),
            "{}",
            found.text
        );
        assert_eq!(check(&Err(Unread::NotInstalled), &node(&[]), None).verdict, Verdict::Skip);
    }
}
