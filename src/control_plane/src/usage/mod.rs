//! Usage of models: read from the sidecars of all Pods, priced, and stored.

mod collector;
mod prices;
#[cfg(test)]
mod tests;

pub(super) use collector::UsageCollector;
