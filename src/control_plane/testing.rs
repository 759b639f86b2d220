//! What requests are answered from, in tests.

use std::sync::{Arc, atomic::AtomicBool};

use tokio_util::sync::CancellationToken;

use super::{
    api::{App, Parts},
    around::Around,
    auth::Auth,
    fleet::Fleet,
    live::Clients,
    load::Loads,
    relay::Relay,
};

/// An API over this fleet, for everybody.
pub(super) fn app(fleet: &Arc<Fleet>, gateway: &str) -> App {
    app_of(fleet, gateway, Auth::None { anywhere: true })
}

/// An API over this fleet.
pub(super) fn app_of(fleet: &Arc<Fleet>, gateway: &str, auth: Auth) -> App {
    Arc::new(Parts {
        fleet: fleet.clone(),
        around: Around::new(),
        auth,
        loads: Loads::new(),
        clients: Clients::new(CancellationToken::new()),
        relay: Relay::new(gateway).unwrap(),
        synced: AtomicBool::new(true),
    })
}
