//! What requests are answered from, in tests.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

use async_trait::async_trait;
use cluster::{
    access::{Access, Reviews},
    error::RequestError,
    reviews::{Identity, Right},
};
use store::{DatabaseUrl, Store, Writer};
use tokio_util::sync::CancellationToken;

use super::{
    app::{App, Parts},
    around::Around,
    auth::{Auth, Guesses},
    fleet::Fleet,
    live::subscribers::Clients,
    load::Loads,
    relay::Relay,
};

/// Rights that a test gives and takes: `alice list tools a`. The token of `alice` is `alice`.
#[derive(Debug, Default)]
pub(super) struct Given(Mutex<BTreeSet<String>>);

impl Given {
    /// Gives a right.
    pub(super) fn give(&self, right: &str) {
        self.0.lock().unwrap().insert(right.into());
    }

    /// Takes a right.
    pub(super) fn take(&self, right: &str) {
        self.0.lock().unwrap().remove(right);
    }
}

#[async_trait]
impl Reviews for Given {
    async fn identify(&self, token: &str, _: &[String]) -> Result<Option<Identity>, RequestError> {
        Ok(Some(Identity { name: token.into(), ..Identity::default() }))
    }

    async fn may(&self, who: &Identity, right: &Right<'_>) -> Result<bool, RequestError> {
        let asked = format!("{} {} {} {}", who.name, right.verb, right.resource, right.namespace);
        Ok(self.0.lock().unwrap().contains(asked.trim_end()))
    }
}

/// An API over this fleet, for those who have rights, without a database.
pub(super) fn app_with_rights(fleet: &Arc<Fleet>) -> (App, Arc<Given>) {
    let given = Arc::new(Given::default());
    let nowhere = Store::open(&DatabaseUrl::file("/nonexistent/recif.db".as_ref())).unwrap();
    let auth = Auth::Kubernetes(Access::new(given.clone(), Vec::new(), |_| ()), Guesses::default());
    (app_of(fleet, "", auth, nowhere), given)
}

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
        mirror: Arc::default(),
        clients: Clients::new(CancellationToken::new()),
        relay: Relay::new(gateway, None).unwrap(),
        synced: AtomicBool::new(true),
    })
}
