//! Scenarios of the fault suite, with their names in `docs/reliability.md`.

use std::time::Duration;

use e2e::fault::{CallFilter, FaultRule, FaultTrigger, ProxyFault};

/// Scenario: a set of faults and the way in which the operator ends.
pub(crate) struct FaultScenario {
    /// Name.
    pub(crate) name: &'static str,
    /// Rules of the faults that are active while the script is played.
    pub(crate) rules: &'static [FaultRule],
    /// Duration of the faults; `None`: until the script has ended.
    pub(crate) window: Option<Duration>,
    /// Additional writes that are allowed per namespace, as a multiple of those of the undisturbed run; without the applies that
    /// a kill makes necessary again.
    pub(crate) writes: u32,
    /// Way in which the operator ends while the script is played.
    pub(crate) termination: OperatorTermination,
}

/// Way in which the operator ends while the script is played. It is started again each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperatorTermination {
    /// It does not end.
    Never,
    /// By SIGKILL, each time after this many milliseconds.
    Killed(u64),
    /// By itself, at one of its next sixty writes: before the request is sent, before the response is read, or after it.
    AtWrite,
}

impl FaultScenario {
    /// Returns the number of namespaces if `most` are requested. Scenarios of a fixed duration, and those whose operator
    /// ends again and again, show no more with many namespaces; in the others each namespace is a further draw.
    pub(crate) fn seeds(&self, most: usize) -> usize {
        let waits =
            |rule: &FaultRule| matches!(rule.fault, ProxyFault::Delay(_) | ProxyFault::Late(_) | ProxyFault::Silence);
        let is_short =
            self.window.is_none() && self.termination == OperatorTermination::Never && !self.rules.iter().any(waits);
        if is_short { most } else { most.min(LONG) }
    }
}

/// Number of namespaces of a long scenario.
const LONG: usize = 8;

const fn of(name: &'static str, rules: &'static [FaultRule]) -> FaultScenario {
    FaultScenario { name, rules, window: None, writes: 2, termination: OperatorTermination::Never }
}

/// Returns a scenario whose faults last for a fixed time, even if the script takes longer.
const fn within(seconds: u64, name: &'static str, rules: &'static [FaultRule]) -> FaultScenario {
    FaultScenario { window: Some(Duration::from_secs(seconds)), ..of(name, rules) }
}

const ALL: CallFilter = CallFilter { verbs: &[], resource: "", subresource: "", namespace: "" };
const OF_OBJECTS: CallFilter =
    CallFilter { verbs: &["create", "update", "patch", "delete", "get"], resource: "", subresource: "", namespace: "" };
const LISTS: CallFilter = CallFilter { verbs: &["list"], resource: "", subresource: "", namespace: "" };
const STATUS: CallFilter = CallFilter { verbs: &["patch"], resource: "", subresource: "status", namespace: "" };
const DEPLOYMENTS: CallFilter =
    CallFilter { verbs: &["watch"], resource: "deployments", subresource: "", namespace: "" };
const TOOLS: CallFilter = CallFilter { verbs: &["list", "watch"], resource: "tools", subresource: "", namespace: "" };
const APPLIES: CallFilter = CallFilter { verbs: &["patch"], resource: "deployments", subresource: "-", namespace: "" };

pub(crate) const SCENARIOS: &[FaultScenario] = &[
    of(
        "P1-delays",
        &[FaultRule::new(CallFilter::CALLS, FaultTrigger::Chance(0.3), ProxyFault::Delay(Duration::from_secs(2)))],
    ),
    of("P2-drops", &[FaultRule::new(CallFilter::CALLS, FaultTrigger::Chance(0.1), ProxyFault::Drop)]),
    of("P3-lost-answers", &[FaultRule::new(CallFilter::WRITES, FaultTrigger::Chance(0.1), ProxyFault::LoseAnswer)]),
    of(
        "P4-lost-answers-504",
        &[FaultRule::new(CallFilter::WRITES, FaultTrigger::RoundRobin(10), ProxyFault::AnswerWith(504))],
    ),
    of("P5-sent-twice", &[FaultRule::new(CallFilter::WRITES, FaultTrigger::Chance(0.3), ProxyFault::Repeat)]),
    of("P6-conflicts", &[FaultRule::new(STATUS, FaultTrigger::Chance(0.3), ProxyFault::Refuse(409, "Conflict", None))]),
    of(
        "P7-too-many-requests",
        &[FaultRule::new(
            CallFilter::CALLS,
            FaultTrigger::Chance(0.2),
            ProxyFault::Refuse(429, "TooManyRequests", Some(3)),
        )],
    ),
    of(
        "P8-server-errors",
        &[
            FaultRule::new(
                CallFilter::CALLS,
                FaultTrigger::Chance(0.05),
                ProxyFault::Refuse(500, "InternalError", None),
            ),
            FaultRule::new(
                CallFilter::CALLS,
                FaultTrigger::Chance(0.05),
                ProxyFault::Refuse(503, "ServiceUnavailable", None),
            ),
        ],
    ),
    within(
        60,
        "P9-away",
        &[FaultRule::new(ALL, FaultTrigger::Always, ProxyFault::Refuse(503, "ServiceUnavailable", None))],
    ),
    within(
        15,
        "P10-forbidden",
        &[FaultRule::new(APPLIES, FaultTrigger::Always, ProxyFault::Refuse(403, "Forbidden", None))],
    ),
    within(
        15,
        "P10-forbidden-verbs",
        &[FaultRule::new(OF_OBJECTS, FaultTrigger::VerbRoundRobin(4), ProxyFault::Refuse(403, "Forbidden", None))],
    ),
    within(
        20,
        "P11-policy",
        &[FaultRule::new(APPLIES, FaultTrigger::Chance(0.5), ProxyFault::Refuse(422, "Invalid", None))],
    ),
    within(
        20,
        "P12-webhook",
        &[FaultRule::new(APPLIES, FaultTrigger::Chance(0.5), ProxyFault::Refuse(400, "BadRequest", None))],
    ),
    within(
        15,
        "P13-namespace-goes",
        &[FaultRule::new(APPLIES, FaultTrigger::Always, ProxyFault::Refuse(403, "NamespaceTerminating", None))],
    ),
    of("P14-gone", &[FaultRule::new(CallFilter::WATCHES, FaultTrigger::Chance(0.5), ProxyFault::Gone)]),
    of(
        "P16-late-deployments",
        &[FaultRule::new(DEPLOYMENTS, FaultTrigger::Always, ProxyFault::Late(Duration::from_secs(5)))],
    ),
    FaultScenario {
        termination: OperatorTermination::Killed(2000),
        ..of("P15-lists-of-the-past", &[FaultRule::new(LISTS, FaultTrigger::Always, ProxyFault::Past)])
    },
    of(
        "P17-late-watches",
        &[FaultRule::new(CallFilter::WATCHES, FaultTrigger::Always, ProxyFault::Late(Duration::from_secs(3)))],
    ),
    of("P18-deaf", &[FaultRule::new(CallFilter::WATCHES, FaultTrigger::Chance(0.3), ProxyFault::Deaf)]),
    of("P19-duplicates", &[FaultRule::new(CallFilter::WATCHES, FaultTrigger::Always, ProxyFault::Duplicate(0.2))]),
    within(30, "P20-bookmarks", &[FaultRule::new(CallFilter::WATCHES, FaultTrigger::Always, ProxyFault::Deaf)]),
    of("P21-ended-watches", &[FaultRule::new(CallFilter::WATCHES, FaultTrigger::Chance(0.5), ProxyFault::End)]),
    of("P22-silent-writes", &[FaultRule::new(CallFilter::WRITES, FaultTrigger::Chance(0.05), ProxyFault::Silence)]),
    // The operator lives long enough to make progress, on a busy machine too: a debounce of changes takes half a second.
    FaultScenario {
        termination: OperatorTermination::Killed(1500),
        ..of("P24-cut-lists", &[FaultRule::new(LISTS, FaultTrigger::Chance(0.3), ProxyFault::Cut(3000))])
    },
    within(20, "P26-unreadable", &[FaultRule::new(CallFilter::WATCHES, FaultTrigger::Always, ProxyFault::Garble(0.2))]),
    FaultScenario { termination: OperatorTermination::AtWrite, ..of("P29-ends-at-a-write", &[]) },
    within(
        20,
        "P36-tools-undefined",
        &[FaultRule::new(TOOLS, FaultTrigger::Always, ProxyFault::Refuse(404, "NotFound", None))],
    ),
    // It lives no longer than the debounce of missing references, so the agent that waits for one goes on only after the kills.
    FaultScenario { termination: OperatorTermination::Killed(300), ..within(30, "P30-killed", &[]) },
];
