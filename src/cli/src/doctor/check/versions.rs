//! Row 1: versions of the API server and the kubelets.

use crds::kubernetes::{MINIMUM_MINOR, NEWEST_SUPPORTED_MINOR, OLDEST_SUPPORTED_MINOR};

use super::super::{
    finding::{Finding, Issue},
    reading::{NodeView, Read},
};

const CHECK: &str = "kubernetes";

/// Judges the versions; kubelets that may not be read are left out.
pub(super) fn check(server: &str, nodes: &Read<Vec<NodeView>>) -> Finding {
    let supported = format!("1.{OLDEST_SUPPORTED_MINOR}–1.{NEWEST_SUPPORTED_MINOR}");
    let kubelets = nodes.iter().flatten().map(|node| (format!("the kubelet of {}", node.name), node.kubelet.as_str()));
    let issues: Vec<_> = [("the API server".to_owned(), server)]
        .into_iter()
        .chain(kubelets)
        .filter_map(|(what, version)| judge(&what, version, &supported))
        .collect();
    if issues.is_empty() {
        let version = server.trim_start_matches('v');
        return Finding::ok(CHECK, format!("Kubernetes {version} (supported: {supported})"));
    }
    Finding::judge(CHECK, "Kubernetes", "", issues)
}

fn judge(what: &str, version: &str, supported: &str) -> Option<Issue> {
    let short = version.trim_start_matches('v');
    let Some(minor) = minor(version) else {
        return Some(Issue::warn(
            format!("{what} has the unknown version {version:?}"),
            format!("see that it is one of {supported}"),
        ));
    };
    if minor < MINIMUM_MINOR {
        return Some(Issue::fail(
            format!("{what} is {short}, older than 1.{MINIMUM_MINOR}"),
            format!("upgrade it to one of {supported}"),
        ));
    }
    if minor < OLDEST_SUPPORTED_MINOR {
        return Some(Issue::warn(
            format!("{what} is {short}, on which Récif is not tested"),
            format!("upgrade it to one of {supported}"),
        ));
    }
    (minor > NEWEST_SUPPORTED_MINOR)
        .then(|| Issue::warn(format!("{what} is {short}, newer than {supported}"), "look for a newer version of Récif"))
}

/// Returns the minor version of Kubernetes 1.
fn minor(version: &str) -> Option<u32> {
    let mut numbers = version.strip_prefix('v').unwrap_or(version).split(['.', '-', '+']);
    (numbers.next()? == "1").then(|| numbers.next()?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{finding::Verdict, reading::Unread};

    #[test]
    fn versions_are_judged_by_what_is_supported() {
        for (version, verdict, text) in [
            ("v1.34.2", Verdict::Ok, "Kubernetes 1.34.2 (supported: 1.32–1.37)"),
            ("v1.32.2+k3s1", Verdict::Ok, "Kubernetes 1.32.2+k3s1 (supported"),
            ("v1.31.0-eks-1", Verdict::Warn, "not tested: upgrade it to one of 1.32–1.37"),
            ("v1.30.4", Verdict::Warn, "not tested"),
            ("v1.38.0", Verdict::Warn, "newer than 1.32–1.37: look for a newer version"),
            ("v1.29.9", Verdict::Fail, "older than 1.30: upgrade it"),
            ("main", Verdict::Warn, "unknown version \"main\": "),
        ] {
            let found = check(version, &Err(Unread::Forbidden("list nodes".into())));
            assert_eq!(found.verdict, verdict, "{version}");
            assert!(found.text.contains(text), "{version}: {}", found.text);
        }
    }

    #[test]
    fn a_kubelet_that_is_too_old_is_named() {
        let node = NodeView { name: "n1".into(), kubelet: "v1.28.0".into(), ..NodeView::default() };
        let found = check("v1.34.2", &Ok(vec![node]));
        assert_eq!(found.verdict, Verdict::Fail);
        assert!(found.text.contains("the kubelet of n1 is 1.28.0"), "{}", found.text);
    }
}
