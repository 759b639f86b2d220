//! Row 15: our objects: those that need attention, and those that an operator which is gone has left behind.

use super::super::{
    finding::{Finding, Issue},
    reading::{Installed, KindCount, Part, Read},
};

const CHECK: &str = "objects";
/// Objects that are named; the others are counted.
const NAMED: usize = 3;

/// Judges the counts.
pub(super) fn check(
    counts: &Read<Vec<KindCount>>,
    installed: Installed,
    operator: &Read<Option<Part>>,
    system: &str,
) -> Finding {
    let counts = match counts {
        Ok(_) if installed == Installed::No => return Finding::skip(CHECK, CHECK, "not installed yet"),
        Ok(counts) => counts,
        Err(why) => return Finding::skip(CHECK, CHECK, why),
    };
    let mut issues = Vec::new();
    let held: Vec<String> =
        counts.iter().flat_map(|kind| kind.held.iter().map(|name| format!("{} {name}", kind.plural))).collect();
    if matches!(operator, Ok(None)) && !held.is_empty() {
        let named = held.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        let more = held.len().saturating_sub(NAMED);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let what = format!("{named}{more} have our finalizer, and there is no operator in {system} to remove it");
        let (kind, name) = held[0].split_once(' ').unwrap_or_default();
        let (namespace, name) = name.split_once('/').unwrap_or_default();
        let remedy = format!(
            "install the operator and delete them, or kubectl -n {namespace} patch {kind} {name} --type=merge -p \
             '{{\"metadata\":{{\"finalizers\":null}}}}'"
        );
        issues.push(Issue::fail(what, remedy));
    }
    let told: Vec<_> = counts.iter().filter_map(attention).collect();
    if !told.is_empty() {
        let remedy = "recif get -A names them, and recif why KIND/NAME says what to do";
        issues.push(Issue::warn(told.join(", "), remedy));
    }
    let all: usize = counts.iter().map(|kind| kind.all).sum();
    Finding::judge(CHECK, CHECK, format!("none of {all} needs attention"), issues)
}

fn attention(kind: &KindCount) -> Option<String> {
    let failed = (kind.failed > 0).then(|| format!("{} failed", kind.failed));
    let waiting = (kind.waiting > 0).then(|| format!("{} waiting for more than 10 min", kind.waiting));
    let told: Vec<_> = failed.into_iter().chain(waiting).collect();
    (!told.is_empty()).then(|| format!("{} {}", kind.plural, told.join(" and ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{finding::Verdict, reading::Unread};

    fn judged(count: KindCount, operator: Option<Part>) -> Finding {
        let count = KindCount { plural: "agents", all: 4, ..count };
        check(&Ok(vec![count]), Installed::Yes, &Ok(operator), "sys")
    }

    #[test]
    fn objects_that_need_attention_are_counted() {
        assert_eq!(judged(KindCount::default(), Some(Part::default())).text, "objects: none of 4 needs attention");
        let found = judged(KindCount { failed: 2, waiting: 1, ..KindCount::default() }, Some(Part::default()));
        assert_eq!(found.verdict, Verdict::Warn);
        assert!(found.text.contains("agents 2 failed and 1 waiting for more than 10 min: recif get"), "{}", found.text);
    }

    #[test]
    fn a_finalizer_without_an_operator_is_named_with_the_command() {
        let held = || KindCount { held: vec!["a/x".into()], ..KindCount::default() };
        assert_eq!(judged(held(), Some(Part::default())).verdict, Verdict::Ok, "also one of 0 replicas is there");
        let found = judged(held(), None);
        assert_eq!(found.verdict, Verdict::Fail);
        assert!(found.text.contains("kubectl -n a patch agents x --type=merge"), "{}", found.text);
    }

    #[test]
    fn before_an_install_there_are_none() {
        let none = check(&Ok(vec![]), Installed::No, &Ok(None), "sys");
        assert_eq!(none.text, "objects: not installed yet");
        let refused = check(&Err(Unread::Forbidden("list agents".into())), Installed::Yes, &Ok(None), "sys");
        assert_eq!(refused.verdict, Verdict::Skip);
    }
}
