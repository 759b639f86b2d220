//! Row 5: our CustomResourceDefinitions, by the digest of their schemas.
//!
//! The API server fills defaults into the spec of a definition, so of the spec only the names of the fields are compared: an
//! edit of the schema leaves the annotations as they are.

use serde_json::Value;

use super::{
    super::{
        finding::{Finding, Issue},
        reading::{Definition, Installed, Read, definition},
    },
    absent::ON_CONFLICT,
};

const CHECK: &str = "crds";
/// Fields that are named; the others are counted.
const NAMED: usize = 3;

/// Returns the definitions that this program has.
pub(super) fn built_in() -> Vec<Definition> {
    let manifests = crds::manifests().unwrap_or_default();
    let objects = manifests.iter().filter_map(|(_, yaml)| serde_yaml::from_str::<Value>(yaml).ok());
    objects.map(|object| definition(&object)).collect()
}

/// Judges the definitions in the cluster by those of this program, which is of the version `own`.
pub(super) fn check(cluster: &Read<Vec<Definition>>, installed: Installed, ours: &[Definition], own: &str) -> Finding {
    let cluster = match cluster {
        Ok(_) if installed == Installed::No => return Finding::skip(CHECK, CHECK, "not installed yet"),
        Ok(cluster) => cluster,
        Err(why) => return Finding::skip(CHECK, CHECK, why),
    };
    let (mut missing, mut broken, mut foreign, mut near, mut far) = (vec![], vec![], vec![], vec![], vec![]);
    let mut cut = vec![];
    for built_in in ours {
        match cluster.iter().find(|there| there.name == built_in.name) {
            None => missing.push(built_in.name.as_str()),
            Some(there) if !there.established => broken.push(built_in.name.as_str()),
            Some(there) if there.schema == built_in.schema => {
                cut.extend(lacking(built_in, there).into_iter().map(|field| (built_in.name.as_str(), field)));
            }
            Some(there) => match &there.version {
                None => foreign.push(built_in.name.as_str()),
                Some(version) if is_near(version, own) => near.push(version.as_str()),
                Some(version) => far.push(version.as_str()),
            },
        }
    }
    let apply = upgrade(cluster);
    let mut issues = Vec::new();
    if !missing.is_empty() {
        issues.push(Issue::fail(format!("missing {}", missing.join(", ")), &apply));
    }
    if let Some(name) = broken.first() {
        let what = format!("not Established {}", broken.join(", "));
        issues.push(Issue::fail(what, format!("see `kubectl describe crd {name}`")));
    }
    if !foreign.is_empty() {
        issues.push(Issue::fail(format!("not of this program {}", foreign.join(", ")), &apply));
    }
    if !cut.is_empty() {
        let named: Vec<_> = cut.iter().take(NAMED).map(|(name, field)| format!("{field} of {name}")).collect();
        let more = cut.len().saturating_sub(NAMED);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let what = format!("changed by another client, which took out {}{more}", named.join(", "));
        issues.push(Issue::fail(what, &apply));
    }
    for (versions, issue) in
        [(near, Issue::warn as fn(String, String) -> Issue), (far, Issue::fail as fn(String, String) -> Issue)]
    {
        if let Some(version) = versions.first() {
            let what = format!("{} of {} are of {version}, this program is {own}", versions.len(), ours.len());
            let newer = numbers(version) > numbers(own);
            let remedy = if newer { format!("use the program of {version}") } else { apply.clone() };
            issues.push(issue(what, remedy));
        }
    }
    Finding::judge(CHECK, CHECK, format!("all {} are of this program's version, {own}", ours.len()), issues)
}

/// Returns the command that brings the definitions up to date, by the tool that made those in the cluster.
fn upgrade(cluster: &[Definition]) -> String {
    let helm = "helm upgrade recif-crds <chart>";
    let manifests = "`recif crds | kubectl apply --server-side --force-conflicts -f -`";
    match cluster.first() {
        Some(Definition { by_helm: true, release: Some(release), .. }) => {
            format!("helm upgrade {} <chart> -n {} {ON_CONFLICT}", release.name, release.namespace)
        }
        Some(one) if one.by_helm => format!("{helm} {ON_CONFLICT}"),
        Some(_) => manifests.to_owned(),
        None => format!("{helm}, or {manifests}"),
    }
}

/// Returns the fields of a definition that the one in the cluster lacks, without those within them.
fn lacking<'a>(ours: &'a Definition, there: &Definition) -> Vec<&'a str> {
    let mut lacking: Vec<&str> = Vec::new();
    // In their order a field comes before those within it.
    for path in ours.fields.iter().filter(|path| !there.fields.contains(*path)) {
        let is_within = |outer: &&str| path.strip_prefix(*outer).is_some_and(|rest| rest.starts_with(['.', '[']));
        if !lacking.iter().any(is_within) {
            lacking.push(path);
        }
    }
    lacking
}

/// Reports whether two versions are at most one minor version apart.
fn is_near(one: &str, other: &str) -> bool {
    match (numbers(one), numbers(other)) {
        (Some((a, b)), Some((c, d))) => a == c && b.abs_diff(d) <= 1,
        _ => false,
    }
}

fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim_start_matches('v').split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{
        finding::Verdict,
        reading::{HelmRelease, Unread},
    };

    fn one(name: &str, schema: &str, version: Option<&str>) -> Definition {
        Definition {
            name: name.into(),
            schema: Some(schema.into()),
            version: version.map(Into::into),
            established: true,
            ..Definition::default()
        }
    }

    #[test]
    fn definitions_are_judged_by_schema_then_by_version() {
        let ours = [one("a", "1", Some("0.4.0")), one("b", "2", Some("0.4.0"))];
        let b = |schema, version| one("b", schema, version);
        for (second, verdict, text) in [
            (Some(b("2", None)), Verdict::Ok, "all 2 are of this program's version, 0.4.0"),
            (Some(b("2", Some("0.1.0"))), Verdict::Ok, "all 2"),
            (Some(b("1", Some("0.4.0"))), Verdict::Warn, "1 of 2 are of 0.4.0"),
            (
                Some(b("1", Some("0.3.9"))),
                Verdict::Warn,
                "crds: 1 of 2 are of 0.3.9, this program is 0.4.0: `recif crds | kubectl apply ",
            ),
            (Some(b("1", Some("0.5.0"))), Verdict::Warn, "use the program of 0.5.0"),
            (Some(b("1", Some("0.2.0"))), Verdict::Fail, "1 of 2 are of 0.2.0"),
            (Some(b("1", Some("1.4.0"))), Verdict::Fail, "use the program of 1.4.0"),
            (Some(b("1", None)), Verdict::Fail, "not of this program b: "),
            (Some(Definition { established: false, ..b("2", None) }), Verdict::Fail, "not Established b: see `kubectl"),
            (None, Verdict::Fail, "missing b: "),
        ] {
            let cluster = [Some(ours[0].clone()), second].into_iter().flatten().collect();
            let found = check(&Ok(cluster), Installed::Yes, &ours, "0.4.0");
            assert_eq!(found.verdict, verdict, "{}", found.text);
            assert!(found.text.contains(text), "{}", found.text);
        }
        assert_eq!(check(&Ok(vec![]), Installed::No, &ours, "0.4.0").verdict, Verdict::Skip);
        assert_eq!(check(&Err(Unread::Forbidden("x".into())), Installed::Yes, &ours, "0.4.0").verdict, Verdict::Skip);
    }

    #[test]
    fn the_remedy_is_of_the_tool_that_made_them_and_also_upgrades_what_another_client_has_changed() {
        let made = |by_helm| upgrade(&[Definition { by_helm, ..one("a", "1", None) }]);
        let release = Some(HelmRelease { name: "ours".into(), namespace: "charts".into() });
        let named = upgrade(&[Definition { by_helm: true, release, ..one("a", "1", None) }]);
        assert!(named.starts_with("helm upgrade ours <chart> -n charts (with --force-conflicts "), "{named}");
        assert_eq!(made(true), "helm upgrade recif-crds <chart> (with --force-conflicts if it reports a conflict)");
        assert_eq!(made(false), "`recif crds | kubectl apply --server-side --force-conflicts -f -`");
        assert_eq!(upgrade(&[]), format!("helm upgrade recif-crds <chart>, or {}", made(false)));
    }

    #[test]
    fn a_schema_from_which_another_client_took_fields_fails_though_its_annotations_are_ours() {
        let with = |fields: &[&str]| Definition {
            fields: fields.iter().map(|field| (*field).to_owned()).collect(),
            ..one("a", "1", Some("0.4.0"))
        };
        let ours = [with(&["spec", "spec.env", "spec.env[].name", "spec.environment", "status"])];
        for (fields, told) in [
            (vec!["spec", "spec.env", "spec.env[].name", "spec.environment", "spec.more", "status"], None),
            (vec!["spec", "spec.env", "spec.environment", "status"], Some("took out spec.env[].name of a: `recif")),
            (vec!["spec", "spec.environment", "status"], Some("took out spec.env of a: `recif crds")),
            (vec!["status"], Some("took out spec of a: `recif crds")),
            (vec!["spec"], Some("took out spec.env of a, spec.environment of a, status of a: `recif crds")),
        ] {
            let found = check(&Ok(vec![with(&fields)]), Installed::Yes, &ours, "0.4.0");
            assert_eq!(found.verdict, if told.is_some() { Verdict::Fail } else { Verdict::Ok }, "{}", found.text);
            assert!(found.text.contains(told.unwrap_or("all 1 are of this")), "{}", found.text);
        }
    }

    #[test]
    fn this_program_has_a_definition_of_each_kind() {
        assert_eq!(built_in().len(), crds::KINDS.len());
        for one in built_in() {
            assert!(one.schema.is_some() && one.version.as_deref() == Some(env!("CARGO_PKG_VERSION")), "{one:?}");
            assert!(one.fields.contains("spec") && one.fields.contains("status.conditions[].type"), "{one:?}");
        }
    }
}
