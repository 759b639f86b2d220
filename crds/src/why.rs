//! `why`: one sentence that says where an object is, what it waits for, and what to do about it.
//!
//! Everything is read from the object itself, so that operator, CLI and control plane say the same, also while the operator
//! is down. What went wrong is a condition's reason and message; what to do is a table by reason. [`held_by_pods`] is a
//! line after that sentence, also of an object that nothing is wrong with.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta},
    jiff::Timestamp,
};
use meta::{CommonStatus, Phase, PhaseClass};
use serde::Deserialize;
use serde_json::Value;

use crate::{AgentSpec, ENDED_BY_READY_PODS, ReferencePhase, WorkloadPhase};

/// The answer to "why is it like this?".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusExplanation {
    /// The whole answer, as one sentence, with what to do after a dash.
    pub sentence: String,
    /// The phase last written, if any.
    pub phase: Option<String>,
    /// Since when it is in this phase, as far as its history goes back.
    pub since: Option<Timestamp>,
    /// The reason in CamelCase, for machines; `Ready` condition's unless the object is stalled.
    pub reason: Option<String>,
    /// What to do, as a clause in the imperative; `None` if nothing is to be done or nothing is known.
    pub hint: Option<&'static str>,
}

const OPERATOR: &str = "see whether the operator runs and watches this namespace";

const DEFECT: &str = "report it as a defect of the operator, with the output of `recif trace`";

/// What a user can do about a reason, in the imperative.
const HINTS: &[(&str, &str)] = &[
    ("MissingDependency", "create what is missing, fix what is in Error, or remove the reference"),
    ("ReferenceCycle", "take one of the references named here out of the circle"),
    ("Degraded", "fix what the message names; the other flows are served"),
    ("ServerUnreachable", "see whether the server runs at spec.url and lets the operator in; its last tools stay"),
    ("ServerTimeout", "raise spec.timeout, or see why the server takes so long; its last tools stay"),
    ("ServerRefused", "correct spec.url or the credentials in spec.headersFrom"),
    (
        "AddressDenied",
        "choose another spec.url, let the allowedNamespaces of the server that it leads to admit this namespace, or have the \
         operator's --mcp-deny-cidr changed",
    ),
    ("InvalidServerAnswer", "see whether an MCP server is at spec.url"),
    ("InvalidHeader", "correct the value that spec.headersFrom names: printable text in one line"),
    ("InvalidCertificate", "put certificates in PEM into the Secret that spec.tls.caSecretRef names"),
    (
        "ToolNotFound",
        "choose a tool that the server has, in mcpServerRef.toolName; it goes on by itself once the server has it",
    ),
    (
        "IdentityRequired",
        "set proxy.requireIdentity of what it calls to false, or let the Tool call the gateway with a token in headersFrom",
    ),
    (
        "UnknownKeys",
        "run `recif rollout` for it: until then no caller has a name there, and with proxy.requireIdentity none gets in",
    ),
    ("NameConflict", "rename this object or delete that one"),
    ("InvalidSpec", "correct the spec and apply it again"),
    ("Refused", "see which admission policy or webhook refuses it, and have it changed, or change the spec"),
    ("ImagePull", "check the image's name and imagePullSecrets; an image without '/' must be on the node already"),
    ("CrashLoop", "read the Pod's log with `kubectl logs --previous`"),
    ("Unschedulable", "lower the resource requests, loosen the node selection, or add nodes"),
    ("CreateContainerConfigError", "create the Secret, ConfigMap or key that the container's environment names"),
    ("NotReady", "if it stays, its readiness probe fails: see `kubectl logs`"),
    ("PodsNotReady", "if it stays, its readiness probe fails: see `kubectl logs`"),
    ("SelectorImmutable", "delete the Deployment of this name, which Récif did not make; it will be made anew"),
    (
        "MissingDatabaseUrl",
        "set spec.databaseUrl, have the operator's --database-namespaces name this namespace, or set storage to memory",
    ),
    ("InvalidDatabaseUrl", "correct spec.databaseUrl: postgresql://user:password@host:5432/database"),
    ("ProgressDeadlineExceeded", "see `kubectl describe pods` and `kubectl logs`"),
    ("Unhealthy", "see `kubectl logs`"),
    ("ReplicaFailure", "see which quota, LimitRange or Pod Security level refuses the Pods, and change it or the spec"),
    ("Contested", "find who changes it with `kubectl get --show-managed-fields -o yaml`, and stop them"),
    ("OtherOperator", "stop one of the two operators, or give each namespaces of its own with --namespaces"),
    ("CRDOutdated", "the operator is newer than the CRDs; it goes on by itself within five minutes of their upgrade"),
    ("Oscillating", DEFECT),
    ("Deleting", "wait; if it stays, see which finalizers hold it with `kubectl get -o yaml`"),
    ("Draining", "wait until its Pods have ended; if it stays, look at them and at the finalizers of the Deployment"),
    ("ApiServerUnavailable", "wait; if it stays, see how the API server and its admission webhooks are"),
    ("Forbidden", "give the operator's ServiceAccount the permission named here, or have the quota or policy changed"),
    ("NamespaceTerminating", "wait: the namespace is being deleted; apply the object in another one"),
    ("Panic", DEFECT),
    ("IllegalEdge", DEFECT),
    ("SpecChangedByAction", DEFECT),
    ("Unhandled", DEFECT),
];

/// Failures to learn a server's tools: it is asked again without a word, so the object cannot say when.
const RETRIED_BY_DISCOVERY: &[&str] = &[
    "ServerUnreachable",
    "ServerTimeout",
    "ServerRefused",
    "AddressDenied",
    "InvalidServerAnswer",
    "InvalidHeader",
    "InvalidCertificate",
];

/// Failures whose cause is looked at again and again, ever more rarely, without a word.
const RECHECKED_PERIODICALLY: &[&str] = &["NameConflict", "SelectorImmutable", "Refused"];

/// What `Available` says of a workload whose number of Pods somebody else sets, up to who that is.
const DEPLOYMENT_READY: &str = " deployment is ready; ";

/// What a user can do about a condition's reason: a clause in the imperative. `None` for a reason without advice.
pub fn hint(reason: &str) -> Option<&'static str> {
    HINTS.iter().find(|(known, _)| *known == reason).map(|(_, hint)| *hint)
}

/// Says why an object is as it is.
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
    }
}

/// What several Pods of an Agent do not know of each other, also while it is Ready; `None` when they share it, when there is
/// one Pod at most, or when another runtime than ours answers. Flows have neither conversations nor tasks.
///
/// `rendered` is the storage that its ConfigMap names, which says more than a spec without `storage`: whether its namespace
/// has a database is the operator's.
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

/// What is said of the object, and what to do.
struct Explanation {
    text: String,
    hint: Option<&'static str>,
}

impl Explanation {
    fn new(text: impl Into<String>, hint: Option<&'static str>) -> Self {
        Self { text: text.into(), hint }
    }
}

/// The condition that says why: `Stalled` when it is true, else `Ready`.
#[derive(Default)]
struct CauseCondition<'a> {
    ready: Option<bool>,
    reason: Option<&'a str>,
    message: &'a str,
}

impl<'a> CauseCondition<'a> {
    fn of(status: &'a CommonStatus) -> Self {
        let condition = |name: &str| status.conditions.iter().find(|condition| condition.type_ == name);
        let is_true = |condition: &&Condition| condition.status == "True";
        let ready = condition("Ready");
        let cause = condition("Stalled").filter(is_true).or(ready);
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
        self.reason.and_then(hint)
    }

    /// `Tool/weather is missing (MissingDependency)`, or whichever of the two there is.
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
    let standing =
        WorkloadPhase::parse(phase).map(Phase::class).or_else(|| ReferencePhase::parse(phase).map(Phase::class));
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
            // What a converged object says of itself repeats the phase.
            match (cause.reason, cause.message) {
                (Some("Stopped"), _) => "is stopped: spec.replicas is 0".into(),
                (Some("ScaledToZero"), _) => "is Ready, scaled to zero: the next request starts a Pod".into(),
                (_, "") => match replicas_by_others(status) {
                    Some(others) => format!("is {word}; {others}"),
                    None => format!("is {word}"),
                },
                (_, message) => format!("is {word}: {message}"),
            }
        }
        Some(_) if said.is_empty() => format!("is {phase}{retry}"),
        // A phase that is its own reason waits for nothing but its Pods.
        Some(PhaseClass::Progressing) if cause.reason == Some(phase) => match cause.message {
            "" => format!("is {phase}{retry}"),
            message => format!("is {phase}: {message}{retry}"),
        },
        Some(PhaseClass::Progressing) => format!("is {phase} and waits: {said}{retry}"),
        Some(_) => format!("is {phase}: {said}{retry}"),
    };
    Explanation::new(text, cause.hint().filter(|_| cause.ready != Some(true)))
}

/// What `Available` says of somebody else who sets the number of Pods.
fn replicas_by_others(status: &CommonStatus) -> Option<&str> {
    let available = status.conditions.iter().find(|condition| condition.type_ == "Available")?;
    available.message.split_once(DEPLOYMENT_READY).map(|(_, others)| others)
}

/// Whether the failure is what keeps the object where it is: its record outlives the recovery by ten minutes.
fn is_current_failure(status: &CommonStatus, cause: &CauseCondition<'_>) -> bool {
    cause.ready != Some(true) && status.failure.as_ref().is_some_and(|failure| cause.reason == Some(&failure.reason))
}

/// When a failure is tried again.
fn retry(status: &CommonStatus) -> String {
    let Some(failure) = &status.failure else { return String::new() };
    let reason = failure.reason.as_str();
    if RETRIED_BY_DISCOVERY.contains(&reason) {
        return ", asked again by itself".into();
    }
    if RECHECKED_PERIODICALLY.contains(&reason) {
        return ", checked again within 5 minutes".into();
    }
    if ENDED_BY_READY_PODS.contains(&reason) {
        return ", goes on by itself once its Pods are ready".into();
    }
    match (&failure.next_attempt_at, failure.retryable) {
        (Some(at), true) if failure.attempts > 0 => format!(", attempt {} failed, next at {}", failure.attempts, at.0),
        (Some(at), true) => format!(", tried again at {}", at.0),
        (_, false) => ", not retried until the spec or its references change".into(),
        (None, true) => String::new(),
    }
}

/// When the present phase was entered, if the history still holds it.
fn since(status: &CommonStatus) -> Option<Timestamp> {
    let phase = status.phase.as_deref()?;
    status.history.iter().rev().find(|entry| entry.to == phase && entry.from != phase).map(|entry| entry.at.0)
}
