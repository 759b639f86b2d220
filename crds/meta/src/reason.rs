//! Reasons of conditions and failures that the state machine knows or sets for every kind.

use super::condition_type;

/// An action panicked: a defect of the operator.
pub const PANIC: &str = "Panic";
/// No action handles the phase: a defect of the operator.
pub const UNHANDLED: &str = "Unhandled";
/// An action made a move that its table does not declare: a defect of the operator.
pub const ILLEGAL_EDGE: &str = "IllegalEdge";
/// An action changed the spec: a defect of the operator.
pub const SPEC_CHANGED_BY_ACTION: &str = "SpecChangedByAction";
/// The object moves between phases over and over: a defect of the operator.
pub const OSCILLATING: &str = "Oscillating";
/// Another operator writes the same object.
pub const OTHER_OPERATOR: &str = "OtherOperator";
/// The API server does not answer, or asks for a pause.
pub const API_SERVER_UNAVAILABLE: &str = "ApiServerUnavailable";
/// The namespace is being deleted, so that nothing can be created in it.
pub const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";
/// The operator lacks a permission, or a quota is exhausted.
pub const FORBIDDEN: &str = "Forbidden";
/// The API server, an admission policy or a webhook rejects the request.
pub const REFUSED: &str = "Refused";
/// A Deployment of this name has another selector, which cannot be changed.
pub const SELECTOR_IMMUTABLE: &str = "SelectorImmutable";
/// The API server drops fields of the status that decide on steps, so that the object cannot go on.
pub const CRD_OUTDATED: &str = condition_type::CRD_OUTDATED;
/// The Pods do not know the key by which gateways vouch for callers. Any other wait takes its place.
pub const UNKNOWN_KEYS: &str = "UnknownKeys";
/// The spec asks for no Pods, and none is left.
pub const STOPPED: &str = "Stopped";
/// The spec asks for no Pods, and some are still ending.
pub const STOPPING: &str = "Stopping";
/// No requests come and no Pod runs; the next request starts one.
pub const SCALED_TO_ZERO: &str = "ScaledToZero";
