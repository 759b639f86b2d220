//! Application state for tests.

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
    app::{AppState, SharedAppState},
    auth::{Auth, TokenPenalties},
    fleet::FleetCache,
    live::subscribers::Subscribers,
    load::LoadCache,
    related::RelatedObjects,
    relay::Relay,
};

/// Rights that a test grants and revokes: `alice list tools a`. The token of `alice` is `alice`.
#[derive(Debug, Default)]
pub(super) struct GrantedRights(Mutex<BTreeSet<String>>);

impl GrantedRights {
    /// Grants a right.
    pub(super) fn grant(&self, right: &str) {
        self.0.lock().unwrap().insert(right.into());
    }

    /// Revokes a right.
    pub(super) fn revoke(&self, right: &str) {
        self.0.lock().unwrap().remove(right);
    }
}

#[async_trait]
impl Reviews for GrantedRights {
    async fn identify(&self, token: &str, _: &[String]) -> Result<Option<Identity>, RequestError> {
        Ok(Some(Identity { name: token.into(), ..Identity::default() }))
    }

    async fn is_allowed(&self, who: &Identity, right: &Right<'_>) -> Result<bool, RequestError> {
        let asked = format!("{} {} {} {}", who.name, right.verb, right.resource, right.namespace);
        Ok(self.0.lock().unwrap().contains(asked.trim_end()))
    }
}

/// Creates the state of an API over this fleet that checks rights, without a database.
pub(super) fn app_with_rights(fleet: &Arc<FleetCache>) -> (SharedAppState, Arc<GrantedRights>) {
    let given = Arc::new(GrantedRights::default());
    let nowhere = Store::open(&DatabaseUrl::file("/nonexistent/recif.db".as_ref())).unwrap();
    (app_of(fleet, "", checked_by(&given), nowhere), given)
}

/// Creates the state of an API over this fleet that checks rights, and a database, which is removed when the last value is dropped.
pub(super) async fn app_with_rights_and_history(
    fleet: &Arc<FleetCache>,
) -> (SharedAppState, Arc<GrantedRights>, TemporaryDatabase) {
    let given = Arc::new(GrantedRights::default());
    let (store, database) = temporary_database().await;
    (app_of(fleet, "", checked_by(&given), store), given, database)
}

fn checked_by(rights: &Arc<GrantedRights>) -> Auth {
    Auth::Kubernetes(Access::new(rights.clone(), Vec::new(), |_| ()), TokenPenalties::default())
}

/// Creates the state of an API over this fleet that is open to every caller, without a database.
pub(super) fn app(fleet: &Arc<FleetCache>, gateway: &str) -> SharedAppState {
    // The store connects only when it is used.
    let nowhere = Store::open(&DatabaseUrl::file("/nonexistent/recif.db".as_ref())).unwrap();
    app_of(fleet, gateway, Auth::None { any_host: true }, nowhere)
}

/// Creates the state of an API over this fleet and a database, which is removed when the second value is dropped.
pub(super) async fn app_with_history(fleet: &Arc<FleetCache>) -> (SharedAppState, TemporaryDatabase) {
    let (store, database) = temporary_database().await;
    (app_of(fleet, "", Auth::None { any_host: true }, store), database)
}

async fn temporary_database() -> (Store, TemporaryDatabase) {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Relaxed);
    let folder = std::env::temp_dir().join(format!("recif-control-plane-{}-{number}", std::process::id()));
    let store = Store::open(&DatabaseUrl::file(&folder.join("recif.db"))).unwrap();
    let writer = store.writer().await.unwrap();
    (store, TemporaryDatabase { writer, folder })
}

/// Database whose folder is removed on drop.
pub(super) struct TemporaryDatabase {
    /// Writer for the database.
    pub(super) writer: Writer,
    folder: PathBuf,
}

impl Drop for TemporaryDatabase {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn app_of(fleet: &Arc<FleetCache>, gateway: &str, auth: Auth, store: Store) -> SharedAppState {
    Arc::new(AppState {
        fleet: fleet.clone(),
        related: RelatedObjects::new(),
        auth,
        loads: LoadCache::new(),
        store: Arc::new(store),
        mirror: Arc::default(),
        keeps_spans: true,
        subscribers: Subscribers::new(CancellationToken::new()),
        relay: Relay::new(gateway, None).unwrap(),
        synced: AtomicBool::new(true),
    })
}
