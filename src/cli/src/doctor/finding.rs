//! Findings of the checks, and their output.

use serde::Serialize;

use crate::exit::Exit;

/// Verdict of a check, from the best to the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// Nothing to do.
    Ok,
    /// Not judged.
    Skip,
    /// It works, and something should be done.
    Warn,
    /// It does not work.
    Fail,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Skip => "skip",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// Name of the check, for programs.
    pub check: &'static str,
    /// Verdict.
    pub verdict: Verdict,
    /// Text for people, in one line. That of a warning or failure ends, after a colon, with what to do.
    pub text: String,
}

/// Issue that a check has found: what is wrong, how badly, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Issue {
    verdict: Verdict,
    what: String,
    remedy: String,
}

impl Issue {
    /// Returns a warning: what is wrong, and what to do.
    pub(super) fn warn(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { verdict: Verdict::Warn, what: what.into(), remedy: remedy.into() }
    }

    /// Returns a failure: what is wrong, and what to do.
    pub(super) fn fail(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { verdict: Verdict::Fail, ..Self::warn(what, remedy) }
    }
}

impl Finding {
    /// Returns the finding of a check without an issue.
    pub(super) fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, text: text.into() }
    }

    /// Returns the finding of a check that could not be made; `title` begins its line.
    pub(super) fn skip(check: &'static str, title: &str, why: impl std::fmt::Display) -> Self {
        Self { check, verdict: Verdict::Skip, text: format!("{title}: {why}") }
    }

    /// Returns the finding from the issues of a check: the worst come first, and their verdict is that of the check.
    /// Without an issue the text is `ok`.
    pub(super) fn judge(check: &'static str, title: &str, ok: impl Into<String>, mut issues: Vec<Issue>) -> Self {
        issues.sort_by_key(|issue| std::cmp::Reverse(issue.verdict));
        let Some(worst) = issues.first().map(|issue| issue.verdict) else {
            return Self::ok(check, format!("{title}: {}", ok.into()));
        };
        let told: Vec<_> = issues.iter().map(|issue| one_line(&format!("{}: {}", issue.what, issue.remedy))).collect();
        Self { check, verdict: worst, text: format!("{title}: {}", told.join("; ")) }
    }
}

/// Joins the lines of a text of foreign origin.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// All findings.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Worst verdict that counts.
    pub verdict: Verdict,
    /// Namespace that was checked.
    pub namespace: String,
    /// Namespace of operator, gateway and control plane.
    pub system_namespace: String,
    /// One finding per check, in a fixed order.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Makes the report of these findings.
    pub(super) fn new(namespace: &str, system_namespace: &str, findings: Vec<Finding>) -> Self {
        let judged = findings.iter().map(|finding| finding.verdict).filter(|verdict| *verdict != Verdict::Skip);
        let verdict = judged.max().unwrap_or(Verdict::Skip);
        Self { verdict, namespace: namespace.to_owned(), system_namespace: system_namespace.to_owned(), findings }
    }

    /// Returns the lines for people.
    pub(super) fn text(&self) -> String {
        self.findings.iter().map(|finding| format!("{:<4}  {}\n", finding.verdict.word(), finding.text)).collect()
    }

    /// Returns the exit code; with `strict` a warning counts as a failure.
    pub(super) fn exit(&self, strict: bool) -> Exit {
        let bad = if strict { Verdict::Warn } else { Verdict::Fail };
        if self.verdict >= bad { Exit::NotReady } else { Exit::Done }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(issues: Vec<Issue>) -> Finding {
        Finding::judge("nodes", "nodes", "2 are ready", issues)
    }

    #[test]
    fn the_worst_issue_comes_first_and_gives_the_verdict() {
        let finding = found(vec![Issue::warn("slow", "wait"), Issue::fail("a\n  gone", "start it")]);
        assert_eq!((finding.verdict, finding.text.as_str()), (Verdict::Fail, "nodes: a gone: start it; slow: wait"));
        assert_eq!(found(Vec::new()).text, "nodes: 2 are ready");
    }

    #[test]
    fn the_exit_code_is_that_of_the_worst_verdict() {
        for (issues, usual, strict) in [
            (vec![], Exit::Done, Exit::Done),
            (vec![Issue::warn("a", "b")], Exit::Done, Exit::NotReady),
            (vec![Issue::warn("a", "b"), Issue::fail("a", "b")], Exit::NotReady, Exit::NotReady),
        ] {
            let report = Report::new("a", "b", vec![Finding::skip("x", "x", "unknown"), found(issues)]);
            assert_eq!((report.exit(false), report.exit(true)), (usual, strict));
        }
    }

    #[test]
    fn a_line_begins_with_its_verdict() {
        let report = Report::new("a", "b", vec![found(vec![]), Finding::skip("crds", "crds", "not installed yet")]);
        assert_eq!(report.text(), "ok    nodes: 2 are ready\nskip  crds: not installed yet\n");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!((&json["verdict"], &json["findings"][1]["verdict"]), (&"ok".into(), &"skip".into()));
    }
}
