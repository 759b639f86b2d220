//! Holds what the API is made of.

use std::sync::{Arc, atomic::AtomicBool};

use store::Store;

use crate::{
    around::Around, auth::Auth, fleet::Fleet, live::subscribers::Clients, load::Loads, mirror::State as MirrorState,
    relay::Relay,
};

/// What requests are answered from.
#[derive(Debug)]
pub(crate) struct Parts {
    /// The objects.
    pub(crate) fleet: Arc<Fleet>,
    /// What hangs on them.
    pub(crate) around: Around,
    /// Who may see what.
    pub(crate) auth: Auth,
    /// How busy workloads are.
    pub(crate) loads: Loads,
    /// What happened before.
    pub(crate) store: Arc<Store>,
    /// How it goes with what is written there.
    pub(crate) mirror: Arc<MirrorState>,
    /// Those who follow.
    pub(crate) clients: Clients,
    /// The way to the gateway.
    pub(crate) relay: Relay,
    /// Whether every watch has had a complete list: before, an answer would leave things out.
    pub(crate) synced: AtomicBool,
}

/// What requests are answered from.
pub(crate) type App = Arc<Parts>;
