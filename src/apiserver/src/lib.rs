//! A small Kubernetes API server in memory: the verbs, patches, watches and errors of the real one for the kinds that Récif needs.
//! `recif dev` runs on it, and so do tests of the whole operator; the end-to-end tests compare it with the real one. No client and no
//! sockets: [`ApiServer`] is a [`tower::Service`], from which a `kube::Client` can be made; the time is a parameter.
//!
//! A request is read ([`routes`], [`options`]), and then ([`verbs`]) works on the store under one lock ([`state`]): [`mod@write`] and
//! [`patched`] make the new object, [`managed`] records the owners of its fields, [`admission`] checks it, [`store`] keeps it as
//! JSON ([`snapshot`]), and [`collect`] does what follows, of those objects that the change concerns ([`owners`]). Watches read the
//! changes of their kind from the store's [`ring`]. Logs of containers come from the node ([`PodLogs`]).

mod admission;
mod bodies;
mod builtin;
mod collect;
pub mod comparison;
mod defaults;
mod definitions;
mod delete;
mod discovery;
mod errors;
mod field_path;
mod fields;
mod forms;
mod generated_names;
mod key;
mod kinds;
mod lists;
mod logs;
mod managed;
mod object;
mod openapi;
mod options;
mod owners;
mod patch;
mod patched;
mod reply;
mod reviews;
mod ring;
mod routes;
mod scale;
mod schema;
mod select;
mod selectable;
mod server;
mod snapshot;
mod state;
mod store;
mod structure;
mod structured_merge;
mod table;
mod target;
mod valid;
mod verbs;
mod watch;
mod write;
mod written_fields;

pub use logs::{LogError, LogOptions, LogStream, PodLogs};
pub use reply::ResponseBody;
pub use server::ApiServer;
