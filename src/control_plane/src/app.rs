//! Holds what the API is made of.

use std::sync::{Arc, atomic::AtomicBool};

use store::Store;

use crate::{
    auth::Auth, fleet::FleetCache, live::subscribers::Subscribers, load::LoadCache, mirror::MirrorState,
    related::RelatedObjects, relay::Relay,
};

/// What requests are answered from.
#[derive(Debug)]
pub(crate) struct AppState {
    /// The objects.
    pub(crate) fleet: Arc<FleetCache>,
    /// What hangs on them.
    pub(crate) related: RelatedObjects,
    /// Who may see what.
    pub(crate) auth: Auth,
    /// How busy workloads are.
    pub(crate) loads: LoadCache,
    /// What happened before.
    pub(crate) store: Arc<Store>,
    /// How it goes with what is written there.
    pub(crate) mirror: Arc<MirrorState>,
    /// Those who follow.
    pub(crate) subscribers: Subscribers,
    /// The way to the gateway.
    pub(crate) relay: Relay,
    /// Whether every watch has had a complete list: before, an answer would leave things out.
    pub(crate) synced: AtomicBool,
}

/// What requests are answered from.
pub(crate) type SharedAppState = Arc<AppState>;
