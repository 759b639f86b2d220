//! Row 6: the operator: a replica that holds the lease, a standby, and what they say of themselves.

use jiff::{SignedDuration, Timestamp};

use super::{
    super::{
        finding::{Finding, Issue},
        reading::{Installed, Part, Read, Unread},
    },
    absent::{absent, install},
};

const CHECK: &str = "operator";
/// Age from which a lease is not held any more; it is renewed every two seconds.
const LEASE_AGE: SignedDuration = SignedDuration::from_secs(15);

/// Judges the operator at the time `now` of the API server; `apply` brings back what is missing.
pub(super) fn check(
    operator: &Read<Option<Part>>,
    lease: &Read<Option<(String, Option<Timestamp>)>>,
    now: Timestamp,
    system: &str,
    installed: Installed,
    apply: &str,
) -> Finding {
    let part = match operator {
        Ok(Some(part)) => part,
        Ok(None) => {
            return match absent(installed, system) {
                Some(what) => Finding::judge(CHECK, CHECK, "", vec![Issue::fail(what, install(apply))]),
                None => Finding::skip(CHECK, CHECK, "not installed yet"),
            };
        }
        Err(why) => return Finding::skip(CHECK, CHECK, why),
    };
    let see = format!("see `kubectl -n {system} describe pods -l app.kubernetes.io/name=recif-operator`");
    let (mut issues, ready) = (Vec::new(), part.ready());
    if part.replicas == 0 {
        let remedy = format!("kubectl -n {system} scale deployment/recif-operator --replicas=2");
        issues.push(Issue::fail("it is scaled to 0", remedy));
    } else if ready == 0 {
        let said = part.pods.iter().find_map(|pod| unready(&pod.readyz)).unwrap_or_default();
        issues.push(Issue::fail(format!("none of its {} Pods is ready{said}", part.replicas), see.clone()));
    } else if ready == 1 {
        issues.push(Issue::warn("it has no standby", format!("scale it to 2, or {see}")));
    }
    // Without a ready Pod, a lease without a holder is no news; a single replica may do without one.
    if ready > 0 && part.setting("--leader-elect", "RECIF_LEADER_ELECT") != Some("false") {
        issues.extend(lease.as_ref().ok().and_then(|lease| judge_lease(lease.as_ref(), now, system)));
    }
    for pod in part.pods.iter().filter(|pod| pod.ready) {
        match &pod.readyz {
            Ok((200, body)) if body.trim() != "ok" => {
                let notes: Vec<_> = body.lines().filter(|line| *line != "ok").collect();
                issues.push(Issue::warn(
                    format!("{} says {}", pod.name, notes.join(", ")),
                    "give it the right, or repair what it names",
                ));
            }
            Ok((200, _)) | Err(Unread::Forbidden(_)) => {}
            Ok((code, body)) => {
                issues.push(Issue::warn(format!("{} answers {code}, {}", pod.name, body.trim()), see.clone()));
            }
            Err(why) => issues.push(Issue::warn(format!("{} was not asked, {why}", pod.name), see.clone())),
        }
    }
    issues.dedup();
    Finding::judge(
        CHECK,
        CHECK,
        format!("{ready} of {} Pods are ready, and one holds the lease", part.replicas),
        issues,
    )
}

fn unready(readyz: &Read<(u16, String)>) -> Option<String> {
    let (code, body) = readyz.as_ref().ok()?;
    (*code != 200).then(|| format!(" ({})", body.trim()))
}

fn judge_lease(lease: Option<&(String, Option<Timestamp>)>, now: Timestamp, system: &str) -> Option<Issue> {
    let see = format!("see the logs, `kubectl -n {system} logs deployment/recif-operator`");
    match lease {
        Some((holder, Some(renewed))) if !holder.is_empty() => {
            let age = now.duration_since(*renewed);
            (age >= LEASE_AGE)
                .then(|| Issue::fail(format!("its lease was renewed {} s ago", age.as_secs()), see.clone()))
        }
        _ => Some(Issue::fail("its lease has no holder", see)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{finding::Verdict, reading::PartPod};

    fn pod(ready: bool, code: u16, body: &str) -> PartPod {
        PartPod { name: "p".into(), ready, readyz: Ok((code, body.into())), answer: None, behind: None }
    }

    fn judged(replicas: i64, pods: Vec<PartPod>, lease: Option<(&str, i64)>) -> Finding {
        let lease = lease.map(|(holder, age)| (holder.to_owned(), Some(Timestamp::from_second(100 - age).unwrap())));
        let now = Timestamp::from_second(100).unwrap();
        check(&Ok(Some(Part { replicas, pods, ..Part::default() })), &Ok(lease), now, "sys", Installed::Yes, "apply")
    }

    #[test]
    fn one_replica_holds_the_lease_and_another_stands_by() {
        let good = || pod(true, 200, "ok\n");
        let held = Some(("uid", 2));
        for (replicas, pods, lease, verdict, text) in [
            (2, vec![good(), good()], held, Verdict::Ok, "2 of 2 Pods are ready"),
            (1, vec![good()], held, Verdict::Warn, "no standby: scale it to 2"),
            (2, vec![good(), pod(false, 503, "x")], held, Verdict::Warn, "no standby"),
            (
                2,
                vec![good(), pod(true, 200, "ok\nwatch a: refused\n")],
                held,
                Verdict::Warn,
                "p says watch a: refused: ",
            ),
            (2, vec![good(), pod(true, 503, "gone\n")], held, Verdict::Warn, "p answers 503, gone: see"),
            (
                2,
                vec![pod(false, 503, "list agents: forbidden\n")],
                None,
                Verdict::Fail,
                "is ready (list agents: forbidden): see",
            ),
            (0, vec![], None, Verdict::Fail, "scaled to 0: kubectl -n sys scale"),
            (2, vec![good(), good()], Some(("uid", 15)), Verdict::Fail, "renewed 15 s ago: see the logs"),
            (2, vec![good(), good()], Some(("", 2)), Verdict::Fail, "no holder: "),
            (2, vec![good(), good()], None, Verdict::Fail, "no holder: "),
        ] {
            let found = judged(replicas, pods, lease);
            assert_eq!(found.verdict, verdict, "{}", found.text);
            assert!(found.text.contains(text), "{}", found.text);
        }
    }

    #[test]
    fn an_operator_that_is_not_there_is_missed_only_after_an_install() {
        let none = |installed| check(&Ok(None), &Ok(None), Timestamp::UNIX_EPOCH, "sys", installed, "apply");
        assert_eq!(none(Installed::No).text, "operator: not installed yet");
        let missed = none(Installed::Yes);
        assert_eq!(missed.verdict, Verdict::Fail);
        assert!(missed.text.ends_with(": apply, or name its namespace with --system-namespace"), "{}", missed.text);
        let refused = Err(Unread::Forbidden("get deployments".into()));
        let unread = check(&refused, &Ok(None), Timestamp::UNIX_EPOCH, "sys", Installed::Yes, "apply");
        assert_eq!(unread.verdict, Verdict::Skip);
    }
}
