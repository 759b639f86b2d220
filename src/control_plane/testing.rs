//! What requests are answered from, in tests.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

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
use crate::store::{DatabaseUrl, Store, Writer};

/// An API over this fleet, for everybody, without a database.
pub(super) fn app(fleet: &Arc<Fleet>, gateway: &str) -> App {
    // Nothing is connected to before somebody writes.
    let nowhere = Store::open(&DatabaseUrl::file("/nonexistent/recif.db".as_ref())).unwrap();
    app_of(fleet, gateway, Auth::None { anywhere: true }, nowhere)
}

/// An API over this fleet and a database, which goes with what is returned.
pub(super) async fn app_with_history(fleet: &Arc<Fleet>) -> (App, Database) {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Relaxed);
    let folder = std::env::temp_dir().join(format!("recif-control-plane-{}-{number}", std::process::id()));
    let store = Store::open(&DatabaseUrl::file(&folder.join("recif.db"))).unwrap();
    let writer = store.writer().await.unwrap();
    (app_of(fleet, "", Auth::None { anywhere: true }, store), Database { writer, folder })
}

/// A database that is removed in the end.
pub(super) struct Database {
    /// Writes to it.
    pub(super) writer: Writer,
    folder: PathBuf,
}

impl Drop for Database {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn app_of(fleet: &Arc<Fleet>, gateway: &str, auth: Auth, store: Store) -> App {
    Arc::new(Parts {
        fleet: fleet.clone(),
        around: Around::new(),
        auth,
        loads: Loads::new(),
        store: Arc::new(store),
        clients: Clients::new(CancellationToken::new()),
        relay: Relay::new(gateway).unwrap(),
        synced: AtomicBool::new(true),
    })
}
