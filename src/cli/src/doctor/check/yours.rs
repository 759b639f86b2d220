//! Row 8: the user's own rights: to install, or to use what is installed.

use super::super::{
    finding::{Finding, Issue},
    reading::{Read, YourReviews},
};

const CHECK: &str = "your-rights";
const TITLE: &str = "your rights";
/// Rights that are named; the others are counted.
const NAMED: usize = 3;

/// Judges the reviews.
pub(super) fn check(reviews: &Read<YourReviews>, namespace: &str) -> Finding {
    let YourReviews { missing, to_install } = match reviews {
        Ok(reviews) => reviews,
        Err(why) => return Finding::skip(CHECK, TITLE, why),
    };
    let mut issues = Vec::new();
    if !missing.is_empty() {
        let more = missing.len().saturating_sub(NAMED);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let what = format!("you may not {}{more}", missing[..missing.len().min(NAMED)].join(", "));
        let remedy = if *to_install {
            "have an administrator of the cluster install it".to_owned()
        } else {
            format!(
                "have the ClusterRole edit (or recif-edit, recif-view, recif-invoker) of {namespace} and the Role \
                 recif-visitor bound to you"
            )
        };
        issues.push(Issue::warn(what, remedy));
    }
    let ok = if *to_install {
        "you may install it".to_owned()
    } else {
        format!("you may use every kind in {namespace}, call what runs there, and reach gateway and control plane")
    };
    Finding::judge(CHECK, TITLE, ok, issues)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{finding::Verdict, reading::Unread};

    #[test]
    fn a_right_of_yours_that_is_missing_is_no_failure() {
        let judged = |missing: &[&str], to_install| {
            let missing = missing.iter().map(|&right| right.to_owned()).collect();
            check(&Ok(YourReviews { missing, to_install }), "team-a")
        };
        assert_eq!(judged(&[], false).verdict, Verdict::Ok);
        assert_eq!(judged(&[], true).text, "your rights: you may install it");
        let found = judged(&["create agents", "b", "c", "d", "e"], false);
        assert_eq!(found.verdict, Verdict::Warn);
        assert!(found.text.contains("you may not create agents, b, c and 2 more: have"), "{}", found.text);
        assert!(judged(&["create namespaces"], true).text.ends_with("administrator of the cluster install it"));
        assert_eq!(check(&Err(Unread::Failed("away".into())), "a").verdict, Verdict::Skip);
    }
}
