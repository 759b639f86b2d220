//! Row 13: database of the control plane, in which the history is.

use super::super::{
    finding::{Finding, Issue},
    reading::{Database, Installed, Part, Read, Unread},
};

const CHECK: &str = "database";
/// Seconds that the history may be behind.
const BEHIND: u64 = 60;

/// Judges the database by its URL and by what the control plane says. `system` is the namespace of the control plane.
pub(super) fn check(
    control_plane: &Read<Option<Part>>,
    database: &Read<Database>,
    installed: Installed,
    system: &str,
) -> Finding {
    let part = match control_plane {
        Ok(Some(part)) => part,
        Ok(None) if installed == Installed::Yes => return Finding::skip(CHECK, CHECK, "there is no control plane"),
        Ok(None) => return Finding::skip(CHECK, CHECK, "not installed yet"),
        Err(why) => return Finding::skip(CHECK, CHECK, why),
    };
    let mut issues = Vec::new();
    // The control plane has the URL from its environment, which it gets when it starts.
    let restart = format!("`kubectl -n {system} rollout restart deployment/recif-control-plane`");
    match database {
        Ok(Database::Postgres(Err(error))) => issues.push(Issue::fail(
            format!("its URL {error}"),
            format!("correct it in the Secret from which the control plane has DATABASE_URL, then {restart}"),
        )),
        Ok(Database::File) if !part.has_claim => issues.push(Issue::warn(
            "the history is in a file that goes with the Pod of the control plane",
            format!(
                "create the Secret recif-database with the url of a PostgreSQL, then {restart}; or mount a \
                 PersistentVolumeClaim"
            ),
        )),
        Ok(_) | Err(_) => {}
    }
    let said: Vec<&str> =
        part.pods.iter().flat_map(|pod| pod.readyz.iter()).flat_map(|(_, body)| body.lines()).collect();
    let note = said.iter().find_map(|line| line.strip_prefix("database: "));
    let behind = part.pods.iter().filter_map(|pod| pod.behind).max().unwrap_or_default();
    if let Some(note) = note {
        let remedy = format!("see that it runs and admits the control plane; after a change of its Secret {restart}");
        issues.push(Issue::fail(note, remedy));
    } else if behind > BEHIND {
        let what = format!("the history is {behind} s behind");
        issues.push(Issue::warn(what, "see the load of the database"));
    }
    let forbidden = part.pods.iter().find_map(|pod| match &pod.readyz {
        Err(why @ Unread::Forbidden(_)) => Some(why),
        _ => None,
    });
    match forbidden {
        Some(why) if issues.is_empty() => Finding::skip(CHECK, CHECK, why),
        _ => Finding::judge(CHECK, CHECK, "it takes the history", issues),
    }
}

#[cfg(test)]
mod tests {
    use crds::postgres_url::PostgresUrlError;

    use super::*;
    use crate::doctor::{finding::Verdict, reading::PartPod};

    fn part(body: &str, behind: u64, has_claim: bool) -> Read<Option<Part>> {
        let readyz = Ok((200, body.to_owned()));
        let pod = PartPod { name: "p".into(), ready: true, readyz, answer: None, behind: Some(behind) };
        Ok(Some(Part { pods: vec![pod], has_claim, ..Part::default() }))
    }

    #[test]
    fn the_history_has_to_be_stored() {
        let postgres = || Ok(Database::Postgres(Ok(())));
        let bad = Ok(Database::Postgres(Err(PostgresUrlError::Malformed)));
        let away = "ok\ndatabase: unavailable (the database does not answer); the history is 9 s behind\n";
        let refused = || Unread::Forbidden("get secrets".into());
        for (part, database, verdict, text) in [
            (part("ok\n", 0, false), postgres(), Verdict::Ok, "database: it takes the history"),
            (part("ok\n", 60, true), Ok(Database::File), Verdict::Ok, "it takes"),
            (
                part("ok\n", 0, false),
                Ok(Database::File),
                Verdict::Warn,
                "goes with the Pod of the control plane: create",
            ),
            (part("ok\n", 61, false), postgres(), Verdict::Warn, "61 s behind: see"),
            (part(away, 9, false), postgres(), Verdict::Fail, "does not answer); the history is 9 s behind: see"),
            (part("ok\n", 0, false), bad, Verdict::Fail, "its URL cannot be read"),
            (part("ok\n", 0, false), Err(refused()), Verdict::Ok, "it takes"),
            (Ok(None), Ok(Database::File), Verdict::Skip, "there is no control plane"),
            (Err(refused()), Ok(Database::File), Verdict::Skip, "you may not"),
        ] {
            let found = check(&part, &database, Installed::Yes, "sys");
            assert_eq!(found.verdict, verdict, "{}", found.text);
            assert!(found.text.contains(text), "{}", found.text);
        }
        let none = check(&Ok(None), &Ok(Database::File), Installed::No, "sys");
        assert_eq!(none.text, "database: not installed yet");
    }

    #[test]
    fn what_a_change_of_the_secret_needs_is_said_with_it() {
        let away = "ok\ndatabase: unavailable (the database does not answer); the history is 9 s behind\n";
        for (body, database) in [
            (away, Database::Postgres(Ok(()))),
            ("ok\n", Database::Postgres(Err(PostgresUrlError::Malformed))),
            ("ok\n", Database::File),
        ] {
            let found = check(&part(body, 0, false), &Ok(database), Installed::Yes, "sys");
            let command = "`kubectl -n sys rollout restart deployment/recif-control-plane`";
            assert!(found.text.contains(command), "{}", found.text);
        }
    }
}
