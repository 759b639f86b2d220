//! Rows 2 and 11: dry runs of the sample agent: whether native sidecars are kept, and whether the namespace takes it. And the
//! workloads there whose own Pods are refused, such as by a `podTemplate` that Pod Security of the namespace or of the operator
//! forbids.

use serde_json::Value;

use super::super::{
    finding::{Finding, Issue},
    reading::{DryRun, DryRuns, Read, RefusedPods},
};

const SIDECARS: &str = "sidecars";
const PODS: &str = "pods";

/// Judges whether the API server keeps `restartPolicy: Always` of an init container.
pub(super) fn check_sidecar(runs: &DryRuns) -> Finding {
    let title = "native sidecars";
    let pod = match &runs.pod {
        DryRun::Accepted(pod) => pod,
        DryRun::Refused(_) => return Finding::skip(SIDECARS, title, "the dry run of a Pod was refused, see pods"),
        DryRun::Unread(why) => return Finding::skip(SIDECARS, title, why),
    };
    let first = pod.pointer("/spec/initContainers").and_then(Value::as_array).into_iter().flatten();
    let kept = first.filter(|container| container["restartPolicy"] == "Always").count() > 0;
    let dropped = Issue::fail(
        "the API server drops restartPolicy of init containers",
        "turn on the feature gate SidecarContainers, or upgrade Kubernetes",
    );
    Finding::judge(SIDECARS, title, "they are kept", if kept { vec![] } else { vec![dropped] })
}

/// Judges whether the namespace takes the sample agent's Deployment and Pod, and the Pods of the workloads that it has.
pub(super) fn check(runs: &DryRuns, refused: &Read<Vec<RefusedPods>>, namespace: &str) -> Finding {
    let title = format!("pods in {namespace}");
    let (mut issues, mut unread) = (Vec::new(), None);
    for run in [&runs.deployment, &runs.pod] {
        match run {
            DryRun::Accepted(_) => {}
            DryRun::Refused(said) => issues.push(refusal(said, namespace)),
            DryRun::Unread(why) => unread = Some(why),
        }
    }
    issues.dedup();
    issues.extend(refused.as_ref().ok().and_then(|refused| judge_refused(refused, namespace)));
    if let DryRun::Accepted(pod) = &runs.pod {
        let changed = changed_requests(&runs.sent, pod);
        if !changed.is_empty() {
            issues.push(Issue::warn(
                format!("a LimitRange or webhook changes the resources of {}", changed.join(", ")),
                "set spec.resources of agents, or accept it",
            ));
        }
    }
    match unread {
        Some(why) if issues.is_empty() => Finding::skip(PODS, &title, why),
        _ => Finding::judge(PODS, &title, "the sample agent is accepted", issues),
    }
}

/// Returns the issue in the server's words, with what to do.
fn refusal(said: &str, namespace: &str) -> Issue {
    if let Some((quota, counts)) = exceeded_quota(said) {
        let what = format!("refused by quota {quota:?} ({counts})");
        return Issue::fail(what, "raise it, or use another namespace");
    }
    let remedy = if said.contains("violates PodSecurity") {
        "leave the level of the namespace at restricted or below, or use another namespace"
    } else if said.contains("failed quota") {
        "set spec.resources of agents, or add a LimitRange with defaults"
    } else if said.contains("admission webhook") {
        "ask for an exception by the owner of the webhook, or use another namespace"
    } else if said.contains("namespaces \"") && said.contains("not found") {
        "create it, or name another one with -n"
    } else {
        "change what refuses it, or name another namespace with -n"
    };
    let what = cause(said);
    Issue::fail(format!("refused, {}", if what.is_empty() { namespace } else { what }), remedy)
}

/// Returns the issue of the workloads whose Pods are refused: the first is named, the others are counted.
fn judge_refused(refused: &[RefusedPods], namespace: &str) -> Option<Issue> {
    let RefusedPods { workload, said } = refused.first()?;
    let more = refused.len() - 1;
    let more = if more == 0 { String::new() } else { format!(" and of {more} more") };
    let remedy = format!("change its spec, or what refuses it; see `recif why {workload} -n {namespace}`");
    Some(Issue::fail(format!("those of {workload}{more} are refused, {}", cause(said)), remedy))
}

/// Returns why the server refuses something, without what it refuses.
fn cause(said: &str) -> &str {
    said.split_once("is forbidden: ").map_or(said, |(_, why)| why)
}

/// Returns the name of the quota and its counts, of `exceeded quota: small, requested: pods=1, used: pods=10, limited: pods=10`.
fn exceeded_quota(said: &str) -> Option<(&str, String)> {
    let (quota, rest) = said.split_once("exceeded quota: ")?.1.split_once(", requested: ")?;
    let (used, limited) = rest.split_once(", used: ")?.1.split_once(", limited: ")?;
    let limits: Vec<_> = limited.split(',').filter_map(|one| one.split_once('=')).collect();
    let counts = used.split(',').filter_map(|one| {
        let (what, used) = one.split_once('=')?;
        let (_, limit) = limits.iter().find(|(name, _)| *name == what)?;
        Some(format!("{what}: used {used}, limited {limit}"))
    });
    Some((quota, counts.collect::<Vec<_>>().join("; ")))
}

/// Returns the containers whose resources are not those that were sent.
fn changed_requests(sent: &Value, got: &Value) -> Vec<String> {
    let containers = |pod: &'_ Value| -> Vec<(String, Value)> {
        let lists =
            ["/spec/initContainers", "/spec/containers"].map(|list| pod.pointer(list).and_then(Value::as_array));
        let all = lists.into_iter().flatten().flatten();
        all.map(|one| (one["name"].as_str().unwrap_or_default().to_owned(), one["resources"].clone())).collect()
    };
    let is_empty = |value: &Value| value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
    let got = containers(got);
    let changed = containers(sent).into_iter().filter(|(name, sent)| {
        let now = got.iter().find(|(other, _)| other == name).map(|(_, resources)| resources);
        now.is_some_and(|now| now != sent && !(is_empty(now) && is_empty(sent)))
    });
    changed.map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::{finding::Verdict, reading::Unread};

    fn pod(resources: Value, restart: Value) -> Value {
        json!({ "spec": { "initContainers": [{ "name": "proxy", "restartPolicy": restart }],
            "containers": [{ "name": "agent", "resources": resources }] } })
    }

    fn runs(run: DryRun) -> DryRuns {
        let accepted = DryRun::Accepted(Box::new(json!({})));
        DryRuns { deployment: accepted, pod: run, sent: pod(json!(null), json!("Always")) }
    }

    fn accepted(resources: Value, restart: Value) -> DryRuns {
        runs(DryRun::Accepted(Box::new(pod(resources, restart))))
    }

    fn judged(runs: &DryRuns, namespace: &str) -> Finding {
        check(runs, &Ok(Vec::new()), namespace)
    }

    #[test]
    fn a_sidecar_has_to_be_kept() {
        assert_eq!(check_sidecar(&accepted(json!({}), json!("Always"))).verdict, Verdict::Ok);
        assert_eq!(check_sidecar(&accepted(json!({}), json!(null))).verdict, Verdict::Fail);
        assert_eq!(check_sidecar(&runs(DryRun::Refused("quota".into()))).verdict, Verdict::Skip);
        let forbidden = DryRun::Unread(Unread::Forbidden("create pods".into()));
        assert_eq!(check_sidecar(&runs(forbidden.clone())).verdict, Verdict::Skip);
        assert_eq!(judged(&runs(forbidden), "a").text, "pods in a: you may not create pods");
    }

    #[test]
    fn a_changed_request_is_told_of() {
        assert_eq!(judged(&accepted(json!({}), json!("Always")), "a").verdict, Verdict::Ok);
        let found = judged(&accepted(json!({ "limits": { "cpu": "1" } }), json!("Always")), "a");
        assert_eq!(
            (found.verdict, found.text.contains("the resources of agent: set")),
            (Verdict::Warn, true),
            "{}",
            found.text
        );
    }

    #[test]
    fn a_refusal_is_told_in_the_servers_words() {
        for (said, text) in [
            (
                "pods \"x\" is forbidden: exceeded quota: small, requested: pods=1, used: pods=10, limited: pods=10",
                "pods in team-a: refused by quota \"small\" (pods: used 10, limited 10): raise it, or use another namespace",
            ),
            (
                "pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\": privileged",
                "pods in team-a: refused, violates PodSecurity \"restricted:latest\": privileged: leave the level",
            ),
            (
                "pods \"x\" is forbidden: failed quota: q: must specify limits.cpu",
                "failed quota: q: must specify limits.cpu: set",
            ),
            ("admission webhook \"w\" denied the request: no", "denied the request: no: ask"),
            ("namespaces \"team-a\" not found", "not found: create it"),
            ("pods \"x\" is forbidden: maximum cpu usage per Pod is 1m", "per Pod is 1m: change"),
        ] {
            let found = judged(&runs(DryRun::Refused(said.into())), "team-a");
            assert_eq!(found.verdict, Verdict::Fail);
            assert!(found.text.contains(text), "{}", found.text);
        }
    }

    #[test]
    fn a_workload_whose_pods_are_refused_is_named_with_what_refuses_them() {
        let one = |name: &str| RefusedPods {
            workload: format!("agent/{name}"),
            said: "pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\": hostNetwork".into(),
        };
        let fine = accepted(json!({}), json!("Always"));
        for (refused, who) in [(vec![one("a")], "agent/a"), (vec![one("a"), one("b")], "agent/a and of 1 more")] {
            let found = check(&fine, &Ok(refused), "team-a");
            let expected = format!(
                "pods in team-a: those of {who} are refused, violates PodSecurity \"restricted:latest\": hostNetwork: \
                 change its spec, or what refuses it; see `recif why agent/a -n team-a`"
            );
            assert_eq!((found.verdict, found.text), (Verdict::Fail, expected));
        }
        let unread = Err(Unread::Forbidden("list deployments".into()));
        assert_eq!(check(&fine, &unread, "team-a").verdict, Verdict::Ok, "the dry runs are judged without it");
    }
}
