//! Advice for the user by the reason of a condition.

use crate::{
    pod_problem::{NEEDS_CONTAINER, NEVER_PULLED, NO_PROGRAM, NOT_ON_NODE},
    reason,
};

const DEFECT: &str = "report it as a defect of the operator, with the output of `recif trace`";

/// Advice for the user by reason, in the imperative.
const HINTS: &[(&str, &str)] = &[
    (reason::MISSING_DEPENDENCY, "create what is missing, fix what is in Error, or remove the reference"),
    (reason::REFERENCE_CYCLE, "remove one of the references named here to break the cycle"),
    (reason::DEGRADED, "fix what the message names; the other flows are served"),
    (
        reason::SERVER_UNREACHABLE,
        "see whether the server runs at spec.url and lets the operator in; its last tools stay",
    ),
    (reason::SERVER_TIMEOUT, "raise spec.timeout, or see why the server takes so long; its last tools stay"),
    (reason::SERVER_REFUSED, "correct spec.url or the credentials in spec.headersFrom"),
    (
        reason::ADDRESS_DENIED,
        "choose another spec.url, let the allowedNamespaces of the server that it leads to admit this namespace, or have the \
         operator's --mcp-deny-cidr changed",
    ),
    (reason::INVALID_SERVER_ANSWER, "see whether an MCP server is at spec.url"),
    (reason::INVALID_HEADER, "correct the value that spec.headersFrom names: printable text in one line"),
    (reason::INVALID_CERTIFICATE, "put certificates in PEM into the Secret that spec.tls.caSecretRef names"),
    (
        reason::TOOL_NOT_FOUND,
        "choose a tool that the server has, in mcpServerRef.toolName; it continues automatically once the server has it",
    ),
    (
        reason::TOOL_CHANGED,
        "read the new definition with `recif tools diff`, then take it with `recif tools accept`; of a Tool, correct \
         mcpServerRef.digest, or remove it",
    ),
    (reason::TOOL_NOT_ACCEPTED, "read the definition with `recif tools diff`, then take it with `recif tools accept`"),
    (
        reason::HIDDEN_TEXT,
        "read what it hides with `recif tools diff`, and name it to `recif tools accept` only if you trust it",
    ),
    (
        reason::IDENTITY_REQUIRED,
        "set proxy.requireIdentity of what it calls to false, or let the Tool call the gateway with a token in headersFrom",
    ),
    (
        reason::PLAIN_HTTP,
        "set protocol of the Agent to chat or a2a if it speaks that, or call it by a Tool of type http",
    ),
    (
        reason::APPROVAL_UNSUPPORTED,
        "remove approval, give the tool to an Agent with Récif's runner, or do what the message says",
    ),
    (
        reason::APPROVAL_UNMATCHED,
        "write names in approval.tools as the server has them, without prefix, or remove what matches nothing",
    ),
    (
        reason::UNKNOWN_KEYS,
        "run `recif rollout` for it: until then no caller has a name there, and with proxy.requireIdentity none gets in",
    ),
    (
        reason::NO_USAGE_REPORTED,
        "let the image answer with the header `x-recif-usage`, or limit its requests by requestsPerMinute",
    ),
    (reason::NAME_CONFLICT, "rename this object or delete that one"),
    (reason::INVALID_SPEC, "correct the spec and apply it again"),
    (reason::REFUSED, "see which admission policy or webhook refuses it, and have it changed, or change the spec"),
    (reason::IMAGE_PULL, "check the image's name and imagePullSecrets"),
    (reason::CRASH_LOOP, "read the Pod's log with `kubectl logs --previous`"),
    (reason::UNSCHEDULABLE, "lower the resource requests, loosen the node selection, or add nodes"),
    (
        reason::CREATE_CONTAINER_CONFIG_ERROR,
        "create the Secret, ConfigMap or key that the container's environment names",
    ),
    (
        reason::NOT_READY,
        "if it stays, a volume is missing or its readiness probe fails: see `kubectl describe pods` and `kubectl logs`",
    ),
    (
        reason::PODS_NOT_READY,
        "if it stays, a volume is missing or its readiness probe fails: see `kubectl describe pods` and `kubectl logs`",
    ),
    (
        reason::SELECTOR_IMMUTABLE,
        "delete the Deployment of this name, which another client created; it is created again",
    ),
    (
        reason::MISSING_DATABASE_URL,
        "set spec.databaseUrl, have the operator's --database-namespaces name this namespace, or set storage to memory",
    ),
    (reason::INVALID_DATABASE_URL, "correct spec.databaseUrl: postgresql://user:password@host:5432/database"),
    (reason::PROGRESS_DEADLINE_EXCEEDED, "see `kubectl describe pods` and `kubectl logs`"),
    (reason::UNHEALTHY, "see `kubectl logs`"),
    (
        reason::REPLICA_FAILURE,
        "see which quota, LimitRange or Pod Security level refuses the Pods, and change it or the spec",
    ),
    (reason::CONTESTED, "find who changes it with `kubectl get --show-managed-fields -o yaml`, and stop them"),
    (reason::OTHER_OPERATOR, "stop one of the two operators, or give each namespaces of its own with --namespaces"),
    (
        reason::CRD_OUTDATED,
        "upgrade the CRDs, which are older than the operator; it continues automatically within five minutes",
    ),
    (reason::OSCILLATING, DEFECT),
    (reason::DELETING, "wait; if it stays, see which finalizers hold it with `kubectl get -o yaml`"),
    (
        reason::DRAINING,
        "wait until its Pods have ended; if it stays, look at them and at the finalizers of the Deployment",
    ),
    (reason::API_SERVER_UNAVAILABLE, "wait; if it stays, see how the API server and its admission webhooks are"),
    (
        reason::FORBIDDEN,
        "give the operator's ServiceAccount the permission named here, or have the quota or policy changed",
    ),
    (reason::NAMESPACE_TERMINATING, "wait: the namespace is being deleted; apply the object in another one"),
    (reason::PANIC, DEFECT),
    (reason::ILLEGAL_EDGE, DEFECT),
    (reason::SPEC_CHANGED_BY_ACTION, DEFECT),
    (reason::UNHANDLED, DEFECT),
];

/// Advice by the words of a message, where the reason is that of the failure later on. The first words that fit hold: those of an
/// image that is never pulled begin as those of another one.
const HINTS_BY_WORDS: &[(&str, &str)] = &[
    (NEVER_PULLED, "set imagePullPolicy to IfNotPresent, or load it onto the nodes"),
    (NOT_ON_NODE, "give the operator --agent-image (chart: agentImage), set spec.image, or load it onto the nodes"),
    (NEEDS_CONTAINER, "set the annotation recif.dev/dev-command to what runs instead, such as uv run shop.py"),
    (NO_PROGRAM, "install it, or set the annotation recif.dev/dev-command to what runs instead"),
];

/// Returns the advice for a condition's reason as an imperative clause; `None` for a reason without advice.
pub fn hint(reason: &str) -> Option<&'static str> {
    HINTS.iter().find(|(known, _)| *known == reason).map(|(_, hint)| *hint)
}

/// Returns the advice for a message, where the reason alone says too little.
pub(crate) fn hint_by_message(message: &str) -> Option<&'static str> {
    HINTS_BY_WORDS.iter().find(|(words, _)| message.contains(words)).map(|(_, hint)| *hint)
}

/// Returns every reason with advice, and the advice.
pub fn hints() -> impl Iterator<Item = (&'static str, &'static str)> {
    HINTS.iter().copied()
}

/// Returns the reason itself if there is advice for it. There are few of them, so it may label a metric.
pub fn known_reason(reason: &str) -> Option<&'static str> {
    HINTS.iter().find(|(known, _)| *known == reason).map(|(known, _)| *known)
}
