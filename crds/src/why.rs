//! Explains the state of an object in one sentence: its phase, what it waits for, and what the user can do about it.
//!
//! Everything is read from the object itself, so that operator, CLI and control plane give the same answer, also while
//! the operator is down. The cause is a condition's reason and message; the [advice](crate::advice) is a table by reason.
//! [`notes`] and [`pod_local_state`] are lines after that sentence, also for an object without a problem.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta},
    jiff::Timestamp,
};
use meta::{CommonStatus, Phase, PhaseClass, condition_type};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    ENDED_BY_READY_PODS, ReferencePhase, WorkloadPhase,
    advice::{hint, hint_by_message},
    agent::AgentSpec,
    reason,
};

/// Explanation of the state of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusExplanation {
    /// Whole explanation as one sentence, with the advice after a dash.
    pub sentence: String,
    /// Phase last written, if any.
    pub phase: Option<String>,
    /// Time at which the object entered this phase, as far as its history goes back.
    pub since: Option<Timestamp>,
    /// Reason in CamelCase, for machines: that of the `Ready` condition unless the object is stalled.
    pub reason: Option<String>,
    /// Advice as an imperative clause; `None` if nothing is to be done or no advice is known.
    pub hint: Option<&'static str>,
    /// Set if the object is not as it should be: it waits, is Failed or in Error, is degraded, or is being deleted.
    pub attention: bool,
}

const OPERATOR: &str = "see whether the operator runs and watches this namespace";

/// Reasons whose cause is checked again periodically, with back-off and without a write to the status.
const RECHECKED_PERIODICALLY: &[&str] = &[reason::NAME_CONFLICT, reason::SELECTOR_IMMUTABLE, reason::REFUSED];

/// Types of the conditions that say what an object goes without, whatever its phase, and that it answers no requests today.
const NOTED: [&str; 7] = [
    condition_type::KNOWLEDGE_BASES_CONFIGURED,
    condition_type::TOOLS_RESOLVED,
    condition_type::CONFIG_UNDERSTOOD,
    condition_type::DEFINITION_CURRENT,
    condition_type::EGRESS_RESTRICTED,
    condition_type::WITHIN_LIMITS,
    condition_type::LIMITS_ENFORCED,
];

/// Text in the message of `Available` after which another writer of the number of Pods is named.
const DEPLOYMENT_READY: &str = " deployment is ready; ";

/// Explains the state of an object.
///
/// `kind` is the name of its kind; `status` is `None` for an object without one.
pub fn why(kind: &str, metadata: &ObjectMeta, status: Option<&CommonStatus>) -> StatusExplanation {
    let unseen = CommonStatus::default();
    let status = status.unwrap_or(&unseen);
    let subject = format!(
        "{kind} {}/{}",
        metadata.namespace.as_deref().unwrap_or("default"),
        metadata.name.as_deref().unwrap_or_default()
    );
    let cause = CauseCondition::of(status);
    let Explanation { text, hint } = if metadata.deletion_timestamp.is_some() {
        deleting(metadata, status, &cause)
    } else if let Some(phase) = status.written_phase() {
        match (metadata.generation, status.observed_generation) {
            (Some(wanted), Some(seen)) if seen < wanted => behind(phase, seen, wanted),
            _ => in_phase(phase, status, &cause),
        }
    } else {
        Explanation::new("has not been looked at yet", Some(OPERATOR))
    };
    let advice = hint.map(|hint| format!(" — {hint}")).unwrap_or_default();
    StatusExplanation {
        sentence: format!("{subject} {text}{advice}."),
        phase: status.phase.clone(),
        since: since(status),
        reason: cause.reason.map(Into::into),
        hint,
        attention: !is_as_wanted(metadata, status),
    }
}

/// Returns what an object goes without, that another model answers for its own, and that calls wait for a person, also while it is
/// Ready: the message of each condition on that.
pub fn notes(status: &CommonStatus) -> Vec<String> {
    let noted = NOTED.into_iter().filter_map(|type_| status.condition(type_));
    let lacking = noted.filter(|found| found.status != "True" && !found.message.is_empty());
    let active = [condition_type::MODEL_FALLBACK, condition_type::APPROVALS_PENDING];
    let active = active.into_iter().filter_map(|type_| status.condition(type_)).filter(|found| found.status == "True");
    lacking.chain(active).map(|found| found.message.clone()).collect()
}

/// Reports whether an object has settled, or is stopped, at the newest generation of its spec.
fn is_as_wanted(metadata: &ObjectMeta, status: &CommonStatus) -> bool {
    status.condition(condition_type::READY).is_none_or(|ready| ready.status != "False")
        && metadata.deletion_timestamp.is_none()
        && metadata.generation.is_none_or(|wanted| status.observed_generation.is_none_or(|seen| seen >= wanted))
        && matches!(status.phase.as_deref().and_then(phase_class), Some(PhaseClass::Settled | PhaseClass::Stopped))
}

/// Returns the class of a phase; `None` for one that this build does not know.
fn phase_class(phase: &str) -> Option<PhaseClass> {
    WorkloadPhase::parse(phase).map(Phase::class).or_else(|| ReferencePhase::parse(phase).map(Phase::class))
}

/// Returns a warning that several Pods of an Agent do not share its conversations and tasks, also while it is Ready;
/// `None` when they share them, when there is one Pod at most, or when a runtime other than `corail` answers. Flows
/// have neither conversations nor tasks.
///
/// `rendered` is the storage that the Agent's ConfigMap names. It is needed for a spec without `storage`: only the
/// operator knows whether the namespace has a database.
pub fn pod_local_state(kind: &str, spec: &Value, rendered: Option<&str>) -> Option<String> {
    let spec = AgentSpec::deserialize(spec).ok().filter(|spec| kind == "Agent" && spec.framework == "corail")?;
    let given = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
    let in_memory = match spec.storage.as_deref() {
        Some(storage) if !storage.is_empty() => storage == "memory",
        _ => !given(&spec.database_url) && rendered == Some("memory"),
    };
    let pods = match &spec.traffic.scaling {
        Some(scaling) if spec.replicas > 0 => scaling.max_replicas,
        _ => spec.replicas,
    };
    (in_memory && pods > 1).then(|| {
        format!("A2A tasks and conversations are held by their Pod, of which there may be {pods}: set storage to postgresql, which shares them")
    })
}

/// Text about the object, and advice.
struct Explanation {
    text: String,
    hint: Option<&'static str>,
}

impl Explanation {
    fn new(text: impl Into<String>, hint: Option<&'static str>) -> Self {
        Self { text: text.into(), hint }
    }
}

/// Condition that holds the cause: `Stalled` when it is true, else `Ready`.
#[derive(Default)]
struct CauseCondition<'a> {
    ready: Option<bool>,
    reason: Option<&'a str>,
    message: &'a str,
}

impl<'a> CauseCondition<'a> {
    fn of(status: &'a CommonStatus) -> Self {
        let is_true = |condition: &&Condition| condition.status == "True";
        let ready = status.condition(condition_type::READY);
        let cause = status.condition(condition_type::STALLED).filter(is_true).or(ready);
        Self {
            ready: ready.map(|ready| is_true(&ready)),
            reason: cause
                .map(|condition| condition.reason.as_str())
                .or(status.failure.as_ref().map(|failure| failure.reason.as_str())),
            message: cause
                .map(|condition| condition.message.as_str())
                .or(status.history.last().map(|entry| entry.reason.as_str()))
                .map(|message| message.trim().trim_end_matches('.'))
                .unwrap_or_default(),
        }
    }

    fn hint(&self) -> Option<&'static str> {
        hint_by_message(self.message).or_else(|| self.reason.and_then(hint))
    }

    /// Returns the message with the reason, as in `Tool/weather is missing (MissingDependency)`, or the one of the two
    /// that exists.
    fn text(&self) -> String {
        match (self.reason, self.message) {
            (Some(reason), "") => reason.into(),
            (Some(reason), message) => format!("{message} ({reason})"),
            (None, message) => message.into(),
        }
    }
}

fn deleting(metadata: &ObjectMeta, status: &CommonStatus, cause: &CauseCondition<'_>) -> Explanation {
    let finalizers = metadata.finalizers.as_deref().unwrap_or_default();
    let text = match finalizers {
        [] => "is being deleted".into(),
        [only] if only == crate::FINALIZER && status.phase.as_deref() == Some("Terminating") => {
            let rest = if cause.message.is_empty() { "its Deployment to go" } else { cause.message };
            return Explanation::new(format!("is being deleted and waits for: {rest}"), cause.hint());
        }
        [only] if only == crate::FINALIZER => {
            return Explanation::new("is to be deleted, which the operator has not looked at yet", Some(OPERATOR));
        }
        several => format!("is being deleted and waits for its finalizers: {}", several.join(", ")),
    };
    Explanation::new(text, None)
}

fn behind(phase: &str, seen: i64, wanted: i64) -> Explanation {
    Explanation::new(
        format!("is {phase} at generation {seen} of its spec; generation {wanted} has not been looked at yet"),
        Some(OPERATOR),
    )
}

fn in_phase(phase: &str, status: &CommonStatus, cause: &CauseCondition<'_>) -> Explanation {
    let standing = phase_class(phase);
    let said = cause.text();
    let retry = if standing == Some(PhaseClass::Failed) || is_current_failure(status, cause) {
        retry(status)
    } else {
        String::new()
    };
    let text = match standing {
        None => format!("is {phase}, a phase this build does not know"),
        Some(PhaseClass::Settled | PhaseClass::Stopped) if cause.ready != Some(false) => {
            let serves = standing == Some(PhaseClass::Settled) && WorkloadPhase::parse(phase).is_some();
            let word = if serves { "Ready" } else { phase };
            // The reason of a converged object repeats its phase, so only the message is shown.
            match (cause.reason, cause.message) {
                (Some(reason::STOPPED), _) => "is stopped: spec.replicas is 0".into(),
                (Some(reason::SCALED_TO_ZERO), _) => "is Ready, scaled to zero: the next request starts a Pod".into(),
                (_, "") => match replicas_by_others(status) {
                    Some(others) => format!("is {word}; {others}"),
                    None => format!("is {word}"),
                },
                (_, message) => format!("is {word}: {message}"),
            }
        }
        Some(_) if said.is_empty() => format!("is {phase}{retry}"),
        // A reason equal to the phase means that the object waits only for its Pods.
        Some(PhaseClass::Progressing) if cause.reason == Some(phase) => match cause.message {
            "" => format!("is {phase}{retry}"),
            message => format!("is {phase}: {message}{retry}"),
        },
        Some(PhaseClass::Progressing) => format!("is {phase} and waits: {said}{retry}"),
        Some(_) => format!("is {phase}: {said}{retry}"),
    };
    Explanation::new(text, cause.hint().filter(|_| cause.ready != Some(true)))
}

/// Returns the part of the message of `Available` that names another writer of the number of Pods.
fn replicas_by_others(status: &CommonStatus) -> Option<&str> {
    let available = status.condition(condition_type::AVAILABLE)?;
    available.message.split_once(DEPLOYMENT_READY).map(|(_, others)| others)
}

/// Reports whether the failure is what keeps the object where it is: its record outlives the recovery by ten minutes.
fn is_current_failure(status: &CommonStatus, cause: &CauseCondition<'_>) -> bool {
    cause.ready != Some(true) && status.failure.as_ref().is_some_and(|failure| cause.reason == Some(&failure.reason))
}

/// Returns a clause on the next attempt after a failure.
fn retry(status: &CommonStatus) -> String {
    let Some(failure) = &status.failure else { return String::new() };
    let reason = failure.reason.as_str();
    if reason::DISCOVERY_FAILURES.contains(&reason) {
        return ", retried automatically".into();
    }
    if RECHECKED_PERIODICALLY.contains(&reason) {
        return ", checked again within 5 minutes".into();
    }
    if ENDED_BY_READY_PODS.contains(&reason) {
        return ", continues automatically once its Pods are ready".into();
    }
    match (&failure.next_attempt_at, failure.retryable) {
        (Some(at), true) if failure.attempts > 0 => format!(", attempt {} failed, next at {}", failure.attempts, at.0),
        (Some(at), true) => format!(", tried again at {}", at.0),
        (_, false) => ", not retried until the spec or its references change".into(),
        (None, true) => String::new(),
    }
}

/// Returns the time at which the present phase was entered, if the history still holds it.
fn since(status: &CommonStatus) -> Option<Timestamp> {
    let phase = status.phase.as_deref()?;
    status.history.iter().rev().find(|entry| entry.to == phase && entry.from != phase).map(|entry| entry.at.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_an_object_goes_without_is_said_while_it_is_ready_too() {
        let condition = |type_: &str, status: &str, message: &str| {
            json!({ "type": type_, "status": status, "reason": "R", "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z" })
        };
        let with_fallback = |fallback: &str| {
            let status = json!({ "phase": "Running", "conditions": [
                condition("Ready", "True", ""),
                condition("ConfigUnderstood", "Unknown", "the image must know it"),
                condition("ToolsResolved", "False", "a tool is left out"),
                condition("KnowledgeBasesConfigured", "True", ""),
                condition("Available", "False", "no Pod is ready"),
                condition("ModelFallback", fallback, "m2 answers"),
                condition("ApprovalsPending", fallback, "2 calls wait"),
                condition("WithinLimits", if fallback == "True" { "False" } else { "True" }, "its budget"),
                condition("DefinitionCurrent", "False", "a tool changed"),
            ] });
            notes(&serde_json::from_value(status).unwrap())
        };
        let lacking = ["a tool is left out", "the image must know it", "a tool changed"];
        assert_eq!(with_fallback("False"), lacking);
        assert_eq!(with_fallback("True"), [&lacking[..], &["its budget", "m2 answers", "2 calls wait"]].concat());
        assert_eq!(notes(&CommonStatus::default()), [""; 0]);
    }
}
