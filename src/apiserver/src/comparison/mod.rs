//! The comparison with the real API server: a script of requests whose answers must be equal but for uids, versions and times.
//!
//! The script is data. A test plays it to [`ApiServer`](crate::ApiServer) and checks codes and messages; an end-to-end test plays
//! it to a real API server, too, and compares the [`RecordedResponse`]s. Each step may use what an earlier one has answered: `{NAME.uid}`
//! and `{NAME.version}` of a step that is saved as `NAME`, and `{ns}`, the namespace.

mod difference;
mod play;
mod player;
mod script;

pub use self::{
    difference::{DIFFERENCES, Difference, differences},
    play::play,
    player::RecordedResponse,
    script::{ScriptStep, script},
};
