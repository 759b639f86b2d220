//! Whether the responses of a workload report what its models used: without that its budgets of tokens and cost have no effect.
//!
//! A response to a POST that succeeded is one that should. Some paths of an image ask no model, so only many of them without any report at
//! all say that it reports nothing.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Reports of usage in the responses of one workload, since this gateway began.
#[derive(Debug, Default)]
pub(super) struct UsageReporting {
    any: AtomicBool,
    without: AtomicU64,
}

/// Report of one response. When the response ends it is counted as missing if it was due and was not found.
#[derive(Debug)]
pub(super) struct ResponseReport<'a> {
    reporting: &'a UsageReporting,
    is_missing: bool,
}

impl UsageReporting {
    /// Reports whether any response had a report.
    pub(super) fn any(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// Returns the number of responses whose report is missing.
    pub(super) fn without(&self) -> u64 {
        self.without.load(Relaxed)
    }
}

impl<'a> ResponseReport<'a> {
    /// Creates the report of a response that need not have one.
    pub(super) fn new(reporting: &'a UsageReporting) -> Self {
        Self { reporting, is_missing: false }
    }

    /// Says that the response has begun, and whether it should have a report unless it is a failure.
    pub(super) fn answered(&mut self, is_due: bool, status: u16) {
        self.is_missing = is_due && (200..300).contains(&status);
    }

    /// Says that the response has a report.
    pub(super) fn found(&mut self) {
        self.is_missing = false;
        self.reporting.any.store(true, Relaxed);
    }
}

impl Drop for ResponseReport<'_> {
    fn drop(&mut self) {
        if self.is_missing {
            self.reporting.without.fetch_add(1, Relaxed);
        }
    }
}
