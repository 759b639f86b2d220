//! Database of the control plane: a copy of the objects in the cluster, the history of their transitions, what models used, and the
//! spans of traces.
//!
//! The copy is for users that prefer SQL to the API server, and may be deleted at any time; only transitions, usage and spans
//! outlive their objects. So the rules are those of a cache that several processes fill at once, with optimistic concurrency: a row is
//! replaced only by a newer one, by the resource version as a number, which grows over the whole cluster; rows that belong
//! together are written in one transaction; and a process that starts compares the stored rows with the objects.
//!
//! SQLite and PostgreSQL get the same statements. They differ only in how connections are set up and locks are taken: see
//! [`database`], [`transaction`] and [`migrations`].

mod database;
mod error;
mod gaps;
mod migrations;
mod reconcile;
mod record;
mod spans;
mod sql;
#[cfg(test)]
mod tests;
mod transaction;
mod transitions;
mod url;
mod usage;
mod write;

pub use database::{Store, Writer};
pub use error::StoreError;
pub use gaps::gaps;
pub use reconcile::{KindComparison, StoredVersion, Unconfirmed};
pub use record::{Batch, Deletion, ObjectKey, Record, ServerTool, ToolServerRow, ToolSet, TransitionRow, WorkloadRow};
pub use spans::{RunQuery, RunSum, SpanRow, StoredSpan};
pub use transitions::{Cursor, HistoryScope, ObjectTransition, TransitionPage};
pub use url::DatabaseUrl;
pub use usage::{UsageGroup, UsageQuery, UsageRow, UsageStep, UsageSum};
