//! Row 10: gateway and control plane, asked through the API server with the user's token; the gateway's certificate.

use jiff::{SignedDuration, Timestamp};

use super::{
    super::{
        finding::{Finding, Issue},
        reading::{Database, Installed, Part, Read, Unread},
    },
    absent::{absent, install, turn_on},
};

const CHECK: &str = "gateway-and-control-plane";
const TITLE: &str = "gateway and control plane";
const NAMES: [(&str, &str); 2] = [("gateway", "recif-gateway"), ("control plane", "recif-control-plane")];
/// Time before its end in which a certificate should have been renewed.
const RENEWED: SignedDuration = SignedDuration::from_hours(14 * 24);

/// Judges gateway and control plane at the time `now` of the API server; `apply` brings back what is missing. A control plane that
/// cannot read the URL of its database is reported by the row of the database alone.
pub(super) fn check(
    parts: [&Read<Option<Part>>; 2],
    database: &Read<Database>,
    certificate: &Read<Option<Timestamp>>,
    now: Timestamp,
    system: &str,
    installed: Installed,
    apply: &str,
) -> Finding {
    if installed == Installed::No {
        return Finding::skip(CHECK, TITLE, "not installed yet");
    }
    let (mut issues, mut unread, mut told) = (Vec::new(), None, Vec::new());
    for ((name, deployment), part) in NAMES.iter().zip(parts) {
        match part {
            Ok(Some(part)) if *name == "control plane" && waits_for_url(part, database) => {
                told.push(format!("the {name} waits for the URL of its database, see there"));
            }
            Ok(Some(part)) => match judge_part(name, deployment, part, system) {
                Ok(found) if found.is_empty() => told.push(format!("the {name} answers")),
                Ok(found) => issues.extend(found),
                Err(why) => unread = Some(why),
            },
            Ok(None) => {
                let what = absent(installed, system).unwrap_or_else(|| "not found".to_owned());
                let what = format!("the {name} was {what}");
                // The control plane may be left out.
                issues.push(match *name {
                    "gateway" => Issue::fail(what, install(apply)),
                    _ => Issue::warn(what, install(&turn_on(apply, "controlPlane.enabled"))),
                });
            }
            Err(why) => unread = Some(why.clone()),
        }
    }
    issues.extend(judge_certificate(certificate, now, system));
    match unread {
        Some(why) if issues.is_empty() => Finding::skip(CHECK, TITLE, why),
        _ => Finding::judge(CHECK, TITLE, told.join(", "), issues),
    }
}

/// Reports whether the control plane does not start because it cannot read the URL of its database.
fn waits_for_url(control_plane: &Part, database: &Read<Database>) -> bool {
    control_plane.replicas > 0 && control_plane.ready() == 0 && matches!(database, Ok(Database::Postgres(Err(_))))
}

fn judge_part(name: &str, deployment: &str, part: &Part, system: &str) -> Result<Vec<Issue>, Unread> {
    let see = format!("see `kubectl -n {system} describe pods -l app.kubernetes.io/name={deployment}`");
    if part.replicas == 0 {
        // The history of the control plane is in a file by default, which only one process may write.
        let replicas = if deployment == "recif-gateway" { 2 } else { 1 };
        let remedy = format!("kubectl -n {system} scale deployment/{deployment} --replicas={replicas}");
        return Ok(vec![Issue::fail(format!("the {name} is scaled to 0"), remedy)]);
    }
    let mut issues = Vec::new();
    for pod in part.pods.iter().filter(|pod| pod.ready) {
        match &pod.answer {
            Some(Ok(401)) if part.signed => issues.push(Issue::fail(
                format!("the {name} refuses your token"),
                "sign in again, or set RECIF_TOKEN to one that `kubectl create token NAME` makes",
            )),
            Some(Ok(500..)) => {
                issues.push(Issue::fail(format!("Pod {} of the {name} answers with an error", pod.name), see.clone()));
            }
            Some(Err(why @ Unread::Forbidden(_))) => return Err(why.clone()),
            Some(Err(why)) => {
                issues
                    .push(Issue::fail(format!("Pod {} of the {name} cannot be reached, {why}", pod.name), see.clone()));
            }
            Some(Ok(_)) | None => {}
        }
    }
    if part.ready() == 0 {
        let said = part.pods.iter().find_map(|pod| pod.readyz.as_ref().ok());
        let said = said.map_or_else(String::new, |(_, body)| format!(" ({})", body.trim()));
        issues.push(Issue::fail(format!("no Pod of the {name} is ready{said}"), see));
    }
    issues.dedup();
    Ok(issues)
}

fn judge_certificate(certificate: &Read<Option<Timestamp>>, now: Timestamp, system: &str) -> Option<Issue> {
    let renew = "renew the certificate in the Secret that the gateway mounts";
    let end = match certificate {
        Ok(end) => (*end)?,
        Err(Unread::Failed(why)) => {
            return Some(Issue::fail(format!("of TLS, {why}"), format!("create it in namespace {system}")));
        }
        Err(_) => return None,
    };
    let left = end.duration_since(now);
    if left.is_negative() {
        return Some(Issue::fail(format!("the gateway's certificate ended at {end}"), renew));
    }
    (left < RENEWED)
        .then(|| Issue::warn(format!("the gateway's certificate ends in {} days", left.as_hours() / 24), renew))
}

#[cfg(test)]
mod tests {
    use crds::postgres_url::PostgresUrlError;

    use super::*;
    use crate::doctor::{finding::Verdict, reading::PartPod};

    fn part(ready: bool, answer: Read<u16>) -> Read<Option<Part>> {
        let readyz = Ok((if ready { 200 } else { 503 }, "starting\n".to_owned()));
        let pods = vec![PartPod { name: "p".into(), ready, readyz, answer: Some(answer), behind: None }];
        Ok(Some(Part { replicas: 1, pods, signed: true, ..Part::default() }))
    }

    fn judged(gateway: &Read<Option<Part>>, end: &Read<Option<Timestamp>>) -> Finding {
        both(gateway, &part(true, Ok(200)), &Ok(Database::File), end)
    }

    fn both(
        gateway: &Read<Option<Part>>,
        control_plane: &Read<Option<Part>>,
        database: &Read<Database>,
        end: &Read<Option<Timestamp>>,
    ) -> Finding {
        let now = Timestamp::UNIX_EPOCH;
        check([gateway, control_plane], database, end, now, "sys", Installed::Yes, "apply it")
    }

    #[test]
    fn a_control_plane_without_a_url_that_can_be_read_is_left_to_the_row_of_the_database() {
        let gateway = part(true, Ok(404));
        let scaled = Ok(Some(Part::default()));
        let unreadable = || Ok(Database::Postgres(Err(PostgresUrlError::Malformed)));
        for (control_plane, database, verdict) in [
            (part(false, Ok(503)), unreadable(), Verdict::Ok),
            (part(false, Ok(503)), Ok(Database::Postgres(Ok(()))), Verdict::Fail),
            (part(true, Ok(503)), unreadable(), Verdict::Fail),
            (scaled, unreadable(), Verdict::Fail),
        ] {
            let found = both(&gateway, &control_plane, &database, &Ok(None));
            assert_eq!(found.verdict, verdict, "{}", found.text);
        }
    }

    #[test]
    fn both_have_to_answer_and_take_the_token() {
        let scaled = Ok(Some(Part::default()));
        for (gateway, verdict, text) in [
            (part(true, Ok(404)), Verdict::Ok, "the gateway answers, the control plane answers"),
            (part(true, Ok(403)), Verdict::Ok, "the gateway answers"),
            (part(true, Ok(401)), Verdict::Fail, "the gateway refuses your token: sign in again"),
            (part(true, Ok(503)), Verdict::Fail, "answers with an error: see"),
            (
                part(true, Err(Unread::Failed("no answer: gone".into()))),
                Verdict::Fail,
                "cannot be reached, no answer: gone: see",
            ),
            (part(false, Ok(404)), Verdict::Fail, "no Pod of the gateway is ready (starting): see"),
            (scaled, Verdict::Fail, "scaled to 0: kubectl"),
            (Ok(None), Verdict::Fail, "the gateway was not found in namespace sys: apply it, or name"),
            (part(true, Err(Unread::Forbidden("create pods/portforward".into()))), Verdict::Skip, "you may not create"),
        ] {
            let found = judged(&gateway, &Ok(None));
            assert_eq!(found.verdict, verdict, "{}", found.text);
            assert!(found.text.contains(text), "{}", found.text);
        }
        let none = Ok(None);
        let before = check(
            [&none, &none],
            &Ok(Database::File),
            &Ok(None),
            Timestamp::UNIX_EPOCH,
            "sys",
            Installed::No,
            "apply it",
        );
        assert_eq!(before.text, "gateway and control plane: not installed yet");
    }

    #[test]
    fn a_caller_without_a_token_is_told_nothing_about_it() {
        let mut gateway = part(true, Ok(401));
        if let Ok(Some(part)) = &mut gateway {
            part.signed = false;
        }
        assert_eq!(judged(&gateway, &Ok(None)).verdict, Verdict::Ok);
    }

    #[test]
    fn a_certificate_is_renewed_in_time() {
        let end = |days: i64| Ok(Some(Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24 * days)));
        for (end, verdict) in [
            (end(15), Verdict::Ok),
            (end(13), Verdict::Warn),
            (end(-1), Verdict::Fail),
            (Err(Unread::Failed("the Secret x is not there".into())), Verdict::Fail),
            (Err(Unread::Forbidden("get secrets".into())), Verdict::Ok),
        ] {
            assert_eq!(judged(&part(true, Ok(404)), &end).verdict, verdict, "{end:?}");
        }
    }
}
