//! Row 9: images: those that nodes have, and what the kubelets say of the others.

use super::super::{
    finding::{Finding, Issue},
    reading::{ImageUse, NodeView, Pulled, Read, Unread, WaitingImage},
};

const CHECK: &str = "images";
const PULL: &str =
    "see that the nodes reach the registry and that imagePullSecrets has its password, or correct the image";

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
    let mut asked = 0;
    for Pulled { image, result } in pulled.into_iter().flatten() {
        match result {
            Ok(None) => asked += 1,
            Ok(Some(why)) => issues.push(Issue::fail(format!("{image}, {why}"), PULL)),
            Err(why @ Unread::Forbidden(_)) => {
                issues.push(Issue::warn(format!("{image} was not pulled, {why}"), "leave out --pull"))
            }
            Err(why) => issues.push(Issue::fail(format!("{image}, {why}"), PULL)),
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
    let ok = match asked {
        0 => format!("no Pod waits for one of {}", uses.len()),
        asked => format!("{asked} were pulled and start"),
    };
    Finding::judge(CHECK, CHECK, ok, issues)
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
        ImageUse { part: "agents", image: image.into() }
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
        let judged = |result| {
            let pulled = [Pulled { image: "r.io/x".into(), result }];
            check(&Ok((vec![used("r.io/x")], vec![])), &node(&[]), Some(&pulled))
        };
        assert_eq!(judged(Ok(None)).text, "images: 1 were pulled and start");
        assert_eq!(judged(Ok(Some("not found".into()))).verdict, Verdict::Fail);
        assert_eq!(judged(Err(Unread::Forbidden("create pods".into()))).verdict, Verdict::Warn);
        assert_eq!(judged(Err(Unread::Failed("quota".into()))).verdict, Verdict::Fail);
        assert_eq!(check(&Err(Unread::NotInstalled), &node(&[]), None).verdict, Verdict::Skip);
    }
}
