//! Shared state of the API handlers.

use std::sync::{Arc, atomic::AtomicBool};

use store::Store;

use crate::{
    auth::Auth, fleet::FleetCache, live::subscribers::Subscribers, load::LoadCache, mirror::MirrorState,
    related::RelatedObjects, relay::Relay,
};

/// State from which all requests are answered.
#[derive(Debug)]
pub(crate) struct AppState {
    /// Read model of the objects.
    pub(crate) fleet: Arc<FleetCache>,
    /// Objects related to them: Deployments, Pods, ConfigMaps and Events.
    pub(crate) related: RelatedObjects,
    /// Authentication and authorization of callers.
    pub(crate) auth: Auth,
    /// Cache of the load of workloads.
    pub(crate) loads: LoadCache,
    /// Database with the history.
    pub(crate) store: Arc<Store>,
    /// State of the mirror that writes to the database.
    pub(crate) mirror: Arc<MirrorState>,
    /// Set if spans are received and kept.
    pub(crate) keeps_spans: bool,
    /// Clients of `/v1/events`.
    pub(crate) subscribers: Subscribers,
    /// Reverse proxy to the gateway.
    pub(crate) relay: Relay,
    /// Set once the watches have settled (see [`cluster::WatchHealth::settled`]). Before that every API request gets 503,
    /// because an answer could be incomplete.
    pub(crate) synced: AtomicBool,
}

/// Shared [`AppState`].
pub(crate) type SharedAppState = Arc<AppState>;
