//! Counts the operator's requests by category.

use std::{collections::BTreeMap, fmt};

use e2e::audit::AuditEvent;

/// Resources of a workload's children, in the plural of the audit log.
const CHILDREN: [&str; 7] =
    ["serviceaccounts", "configmaps", "secrets", "services", "networkpolicies", "poddisruptionbudgets", "deployments"];

/// Numbers of requests by category.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RequestCounts {
    /// Reads.
    pub(crate) reads: usize,
    /// Dry runs.
    pub(crate) dry_runs: usize,
    /// Writes of metadata of our kinds: the finalizer.
    pub(crate) metadata: usize,
    /// Writes of the status of our kinds.
    pub(crate) status: usize,
    /// Writes of children.
    pub(crate) children: usize,
    /// Events.
    pub(crate) events: usize,
    /// Other writes.
    pub(crate) other_writes: usize,
    by_request: BTreeMap<String, usize>,
}

impl RequestCounts {
    /// Counts the requests that are not upkeep.
    pub(crate) fn of<'a>(requests: impl IntoIterator<Item = &'a AuditEvent>) -> Self {
        let mut counts = Self::default();
        for request in requests.into_iter().filter(|request| !request.is_upkeep()) {
            counts.add(request);
        }
        counts
    }

    fn add(&mut self, request: &AuditEvent) {
        let resource = request.resource();
        let is_child = CHILDREN.contains(&resource.as_str());
        let field = match (request.is_write(), resource.as_str()) {
            _ if request.is_dry_run() => &mut self.dry_runs,
            (false, _) => &mut self.reads,
            (true, _) if ours(&resource) => &mut self.metadata,
            (true, _) if resource.strip_suffix("/status").is_some_and(ours) => &mut self.status,
            (true, "events") => &mut self.events,
            (true, _) if is_child => &mut self.children,
            (true, _) => &mut self.other_writes,
        };
        *field += 1;
        let refused = if request.code() >= 400 { format!(" {}", request.code()) } else { String::new() };
        *self.by_request.entry(format!("{} {resource}{refused}", request.verb)).or_default() += 1;
    }

    pub(crate) fn writes(&self) -> usize {
        self.metadata + self.status + self.children + self.events + self.other_writes
    }

    pub(crate) fn total(&self) -> usize {
        self.reads + self.writes() + self.dry_runs
    }

    /// Lists each kind of request with its count.
    pub(crate) fn breakdown(&self) -> String {
        let each: Vec<String> = self.by_request.iter().map(|(request, count)| format!("{count} {request}")).collect();
        if each.is_empty() { "no request".into() } else { each.join(", ") }
    }
}

fn ours(resource: &str) -> bool {
    crds::kinds::KINDS.iter().any(|kind| kind.plural == resource)
}

impl fmt::Display for RequestCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} reads, {} writes", self.reads, self.writes())?;
        if self.dry_runs > 0 {
            write!(f, ", {} dry-run", self.dry_runs)?;
        }
        Ok(())
    }
}
