//! Reasons for which no Pod can call a workload, although it is there.

use crds::reason;

/// Reason for which no Pod can call a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Uncallable {
    /// Reason of the condition.
    pub(crate) reason: &'static str,
    /// Rest of a sentence that begins with the workload.
    pub(crate) what: &'static str,
}

/// Reason of a workload with `proxy.requireIdentity`.
pub(crate) const ONLY_GATEWAYS: Uncallable = Uncallable {
    reason: reason::IDENTITY_REQUIRED,
    what: "answers only requests through the gateway (proxy.requireIdentity)",
};

/// Reason of an Agent that speaks a protocol of its own.
pub(crate) const PLAIN_HTTP: Uncallable =
    Uncallable { reason: reason::PLAIN_HTTP, what: "speaks plain http: only chat and a2a agents can be tools" };
