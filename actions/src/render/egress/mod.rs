//! Renders `egress` of a workload: the addresses that its configuration names, the egress part of its NetworkPolicy, and the list
//! that its runtime reads.

mod addresses;
mod rules;

pub use addresses::{RenderedAddresses, rendered_addresses};
pub use rules::EgressRules;
