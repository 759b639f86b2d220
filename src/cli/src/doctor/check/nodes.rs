//! Row 4: nodes for our images, which are of Linux, amd64 and arm64.

use super::super::{
    finding::{Finding, Issue},
    reading::{ARCHITECTURES, NodeView, Read},
};

const CHECK: &str = "nodes";

/// Judges the nodes.
pub(super) fn check(nodes: &Read<Vec<NodeView>>) -> Finding {
    let nodes = match nodes {
        Ok(nodes) => nodes,
        Err(why) => return Finding::skip(CHECK, CHECK, why),
    };
    let ready: Vec<_> = nodes.iter().filter(|node| node.ready).collect();
    let (ours, others): (Vec<&NodeView>, Vec<&NodeView>) =
        ready.iter().copied().partition(|node| node.os == "linux" && ARCHITECTURES.contains(&node.arch.as_str()));
    let mut issues = Vec::new();
    if ours.is_empty() {
        let what = format!("none of {} is Ready, of Linux, and of amd64 or arm64", nodes.len());
        issues.push(Issue::fail(what, "add one, or see `kubectl describe nodes`"));
    } else if let Some(other) = others.first() {
        issues.push(Issue::warn(
            format!(
                "{} of {} run no images of ours, such as {} ({}/{})",
                others.len(),
                ready.len(),
                other.name,
                other.os,
                other.arch
            ),
            "keep Pods away from them with a taint, or with a nodeSelector on kubernetes.io/arch",
        ));
    }
    Finding::judge(
        CHECK,
        CHECK,
        format!("{} of {} are Ready, of Linux, amd64 or arm64", ours.len(), nodes.len()),
        issues,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{finding::Verdict, reading::Unread};

    fn node(os: &str, arch: &str, ready: bool) -> NodeView {
        NodeView { name: "n".into(), os: os.into(), arch: arch.into(), ready, ..NodeView::default() }
    }

    #[test]
    fn a_node_that_runs_our_images_is_needed() {
        let good = node("linux", "arm64", true);
        for (nodes, verdict) in [
            (vec![good.clone(), node("linux", "amd64", false)], Verdict::Ok),
            (vec![good.clone(), node("windows", "amd64", true)], Verdict::Warn),
            (vec![good, node("linux", "s390x", true)], Verdict::Warn),
            (vec![node("linux", "amd64", false), node("linux", "s390x", true)], Verdict::Fail),
            (vec![], Verdict::Fail),
        ] {
            assert_eq!(check(&Ok(nodes.clone())).verdict, verdict, "{nodes:?}");
        }
        let found = check(&Err(Unread::Forbidden("list nodes".into())));
        assert_eq!((found.verdict, found.text.as_str()), (Verdict::Skip, "nodes: you may not list nodes"));
    }
}
