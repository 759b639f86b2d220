//! Row 7: rights of our accounts, by a review of each rule of the manifests.

use super::super::{
    finding::{Finding, Issue},
    reading::{AccountReviews, Denied, Read},
};

const CHECK: &str = "account-rights";
const TITLE: &str = "rights of the accounts";
/// Rights that are named; the others are counted.
const NAMED: usize = 3;

/// Judges the reviews; `apply` brings back what is missing.
pub(super) fn check(reviews: &Read<AccountReviews>, apply: &str) -> Finding {
    let AccountReviews { asked, missing, excess } = match reviews {
        Ok(reviews) if reviews.asked == 0 => return Finding::skip(CHECK, TITLE, "no part was found"),
        Ok(reviews) => reviews,
        Err(why) => return Finding::skip(CHECK, TITLE, why),
    };
    let mut issues = Vec::new();
    if !missing.is_empty() {
        let what = format!("{} missing, {}", missing.len(), named(missing, "may not"));
        issues.push(Issue::fail(what, apply));
    }
    if !excess.is_empty() {
        let what = format!("more than needed, {}", named(excess, "may"));
        issues.push(Issue::warn(what, "remove the binding that gives it, see `kubectl auth can-i --list --as`"));
    }
    Finding::judge(CHECK, TITLE, format!("{asked} reviews, none is missing"), issues)
}

fn named(rights: &[Denied], may: &str) -> String {
    let first: Vec<_> = rights.iter().take(NAMED).map(|one| format!("{} {may} {}", one.account, one.right)).collect();
    let more = rights.len().saturating_sub(NAMED);
    if more == 0 { first.join(", ") } else { format!("{} and {more} more", first.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{finding::Verdict, reading::Unread};

    #[test]
    fn a_right_that_is_missing_is_named() {
        let one = |right: &str| Denied { account: "recif-operator".into(), right: right.into() };
        let judged = |missing, excess| check(&Ok(AccountReviews { asked: 9, missing, excess }), "apply it");
        assert_eq!(judged(vec![], vec![]).verdict, Verdict::Ok);
        let found = judged(vec![one("list pods"), one("b"), one("c"), one("d")], vec![]);
        assert_eq!(found.verdict, Verdict::Fail);
        assert!(
            found.text.contains("4 missing, recif-operator may not list pods")
                && found.text.contains("and 1 more: apply it")
        );
        let found = judged(vec![], vec![one("create pods")]);
        assert_eq!(found.verdict, Verdict::Warn, "{}", found.text);
        for why in [Unread::NotInstalled, Unread::Forbidden("create subjectaccessreviews".into())] {
            let found = check(&Err(why), "apply it");
            assert_eq!(found.verdict, Verdict::Skip, "{}", found.text);
        }
        assert_eq!(check(&Ok(AccountReviews::default()), "apply it").verdict, Verdict::Skip);
    }
}
