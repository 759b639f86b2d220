//! The faults, each with the name that `docs/reliability.md` gives it.

use std::time::Duration;

use e2e::fault::{Fault, Of, Rule, When};

/// What is disturbed, and how.
pub(crate) struct Scenario {
    /// Its name.
    pub(crate) name: &'static str,
    /// What is done to calls while the script is played.
    pub(crate) rules: &'static [Rule],
    /// How long there are faults; `None`: until the script has ended.
    pub(crate) window: Option<Duration>,
    /// How many writes an object may cost more than undisturbed, for each that it costs there.
    pub(crate) writes: u32,
    /// How the operator ends while the script is played.
    pub(crate) ends: Ends,
}

/// How the operator ends while the script is played, each time to be started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    /// It does not.
    Never,
    /// By SIGKILL, after so many milliseconds each.
    Killed(u64),
    /// By itself, at one of its next sixty writes: before it is sent, before it is answered, or after.
    AtAWrite,
}

impl Scenario {
    /// In how many namespaces it is played where `most` are asked for. Those that last for a set time, or whose operator ends again
    /// and again, show no more with many; the others are as many draws.
    pub(crate) fn seeds(&self, most: usize) -> usize {
        let waits = |rule: &Rule| matches!(rule.fault, Fault::Delay(_) | Fault::Late(_) | Fault::Silence);
        let is_short = self.window.is_none() && self.ends == Ends::Never && !self.rules.iter().any(waits);
        if is_short { most } else { most.min(LONG) }
    }
}

/// Namespaces of a scenario that is long.
const LONG: usize = 8;

const fn of(name: &'static str, rules: &'static [Rule]) -> Scenario {
    Scenario { name, rules, window: None, writes: 2, ends: Ends::Never }
}

/// For so long, and no longer, however long the script takes.
const fn within(seconds: u64, name: &'static str, rules: &'static [Rule]) -> Scenario {
    Scenario { window: Some(Duration::from_secs(seconds)), ..of(name, rules) }
}

const ALL: Of = Of { verbs: &[], resource: "", subresource: "", namespace: "" };
const OF_OBJECTS: Of =
    Of { verbs: &["create", "update", "patch", "delete", "get"], resource: "", subresource: "", namespace: "" };
const LISTS: Of = Of { verbs: &["list"], resource: "", subresource: "", namespace: "" };
const STATUS: Of = Of { verbs: &["patch"], resource: "", subresource: "status", namespace: "" };
const DEPLOYMENTS: Of = Of { verbs: &["watch"], resource: "deployments", subresource: "", namespace: "" };
const TOOLS: Of = Of { verbs: &["list", "watch"], resource: "tools", subresource: "", namespace: "" };
const APPLIES: Of = Of { verbs: &["patch"], resource: "deployments", subresource: "-", namespace: "" };

pub(crate) const SCENARIOS: &[Scenario] = &[
    of("P1-delays", &[Rule::new(Of::CALLS, When::Chance(0.3), Fault::Delay(Duration::from_secs(2)))]),
    of("P2-drops", &[Rule::new(Of::CALLS, When::Chance(0.1), Fault::Drop)]),
    of("P3-lost-answers", &[Rule::new(Of::WRITES, When::Chance(0.1), Fault::LoseAnswer)]),
    of("P4-lost-answers-504", &[Rule::new(Of::WRITES, When::InTurn(10), Fault::AnswerWith(504))]),
    of("P5-sent-twice", &[Rule::new(Of::WRITES, When::Chance(0.3), Fault::Repeat)]),
    of("P6-conflicts", &[Rule::new(STATUS, When::Chance(0.3), Fault::Refuse(409, "Conflict", None))]),
    of(
        "P7-too-many-requests",
        &[Rule::new(Of::CALLS, When::Chance(0.2), Fault::Refuse(429, "TooManyRequests", Some(3)))],
    ),
    of(
        "P8-server-errors",
        &[
            Rule::new(Of::CALLS, When::Chance(0.05), Fault::Refuse(500, "InternalError", None)),
            Rule::new(Of::CALLS, When::Chance(0.05), Fault::Refuse(503, "ServiceUnavailable", None)),
        ],
    ),
    within(60, "P9-away", &[Rule::new(ALL, When::Always, Fault::Refuse(503, "ServiceUnavailable", None))]),
    within(15, "P10-forbidden", &[Rule::new(APPLIES, When::Always, Fault::Refuse(403, "Forbidden", None))]),
    within(
        15,
        "P10-forbidden-verbs",
        &[Rule::new(OF_OBJECTS, When::VerbInTurn(4), Fault::Refuse(403, "Forbidden", None))],
    ),
    within(20, "P11-policy", &[Rule::new(APPLIES, When::Chance(0.5), Fault::Refuse(422, "Invalid", None))]),
    within(20, "P12-webhook", &[Rule::new(APPLIES, When::Chance(0.5), Fault::Refuse(400, "BadRequest", None))]),
    within(
        15,
        "P13-namespace-goes",
        &[Rule::new(APPLIES, When::Always, Fault::Refuse(403, "NamespaceTerminating", None))],
    ),
    of("P14-gone", &[Rule::new(Of::WATCHES, When::Chance(0.5), Fault::Gone)]),
    of("P16-late-deployments", &[Rule::new(DEPLOYMENTS, When::Always, Fault::Late(Duration::from_secs(5)))]),
    Scenario {
        ends: Ends::Killed(2000),
        ..of("P15-lists-of-the-past", &[Rule::new(LISTS, When::Always, Fault::Past)])
    },
    of("P17-late-watches", &[Rule::new(Of::WATCHES, When::Always, Fault::Late(Duration::from_secs(3)))]),
    of("P18-deaf", &[Rule::new(Of::WATCHES, When::Chance(0.3), Fault::Deaf)]),
    of("P19-duplicates", &[Rule::new(Of::WATCHES, When::Always, Fault::Duplicate(0.2))]),
    within(30, "P20-bookmarks", &[Rule::new(Of::WATCHES, When::Always, Fault::Deaf)]),
    of("P21-ended-watches", &[Rule::new(Of::WATCHES, When::Chance(0.5), Fault::End)]),
    of("P22-silent-writes", &[Rule::new(Of::WRITES, When::Chance(0.05), Fault::Silence)]),
    Scenario {
        ends: Ends::Killed(500),
        ..of("P24-cut-lists", &[Rule::new(LISTS, When::Chance(0.3), Fault::Cut(3000))])
    },
    within(20, "P26-unreadable", &[Rule::new(Of::WATCHES, When::Always, Fault::Garble(0.2))]),
    Scenario { ends: Ends::AtAWrite, ..of("P29-ends-at-a-write", &[]) },
    within(20, "P36-tools-undefined", &[Rule::new(TOOLS, When::Always, Fault::Refuse(404, "NotFound", None))]),
    // Lives shorter than the half second in which changes are collected: that goes on only when they are over.
    Scenario { ends: Ends::Killed(300), ..within(30, "P30-killed", &[]) },
];
