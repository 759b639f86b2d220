//! Usage of models: read from the sidecars of all Pods, priced, and stored.

mod callers;
mod collector;
mod prices;
#[cfg(test)]
mod tests;

pub(super) use callers::StoredCallers;
pub(super) use collector::UsageCollector;
