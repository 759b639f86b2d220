//! Graceful degradation: a workload of several members serves those that can be rendered, and names the others.

use crate::references::Inputs;

/// Workload that serves a part of its members while the others lack something.
pub trait Degradable {
    /// Writes the state of each member into the status, for its phase and references. Returns whether that changed anything.
    fn report_members(&mut self, inputs: &Inputs) -> bool;

    /// Returns what is left out while the rest runs, as one sentence, as [`Degradable::report_members`] wrote it.
    fn degraded(&self) -> Option<String>;

    /// Returns the references without the pending ones that it can do without, for when those have been waited for long enough.
    fn omit_pending(&self, inputs: Inputs) -> Inputs;
}
