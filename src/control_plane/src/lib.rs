//! Shows the fleet: REST and live changes, answered from a read model that watches keep up to date.
//!
//! [`fleet`] holds every object once, in the form in which it is sent, so that a page is a walk over an index and a copy of
//! bytes, and no request is passed on to the API server. What may hold a credential is masked before it is kept. [`mirror`]
//! copies it into a database.

mod api;
mod app;
mod args;
mod auth;
pub mod fleet;
mod live;
mod load;
pub mod mirror;
mod process;
mod related;
mod relay;
mod serve;
mod stream_body;
#[cfg(test)]
mod testing;
mod ui;
mod watches;
mod write_timeout;

pub use args::ControlPlaneArgs;
pub use process::run;
