//! What the control plane keeps in a database: a copy of what the cluster holds, and what became of its objects.
//!
//! The copy is for those who would rather ask SQL than an API server, and may be thrown away at any time; only the
//! transitions outlive the objects they tell of. So the rules are those of a cache that several fill at once: a row is
//! replaced only by a newer one, told by the resource version as a number, which grows over the whole cluster; what
//! belongs together is written in one transaction; and whoever starts compares what is stored with what there is.
//!
//! SQLite and PostgreSQL are asked with the same texts. Where they differ is in [`database`] and nowhere else.

mod database;
mod error;
mod gaps;
mod migrations;
mod reconcile;
mod record;
mod sql;
#[cfg(test)]
mod tests;
mod transaction;
mod transitions;
mod url;
mod write;

pub use database::{Store, Writer};
pub use error::StoreError;
pub use gaps::gaps;
pub use reconcile::{KindComparison, StoredVersion, Unconfirmed};
pub use record::{Batch, Deletion, ObjectKey, Record, ServerTool, ToolServerRow, ToolSet, TransitionRow, WorkloadRow};
pub use transitions::{Cursor, HistoryScope, ObjectTransition, TransitionPage};
pub use url::DatabaseUrl;
