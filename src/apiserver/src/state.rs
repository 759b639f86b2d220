//! State that the clones and watches of a server share: the store under its lock, what wakes watches, and the sources of time,
//! accounts and logs.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use jiff::Timestamp;
use tokio::sync::watch;

use crate::{
    kinds::{self, Kind},
    logs::PodLogs,
    openapi,
    reviews::Account,
    store::Store,
};

/// State of a server.
pub(crate) struct ServerState {
    pub(crate) kinds: &'static [Kind],
    store: Mutex<Store>,
    /// For each kind, what wakes its watches.
    changes: Vec<watch::Sender<()>>,
    clock: Box<dyn Fn() -> Timestamp + Send + Sync>,
    account: Box<Account>,
    logs: Mutex<Option<Arc<dyn PodLogs>>>,
    /// Hashes of the documents of OpenAPI, by their paths.
    hashes: OnceLock<Vec<(String, String)>>,
}

impl ServerState {
    /// Makes the state of a server without objects.
    pub(crate) fn new(
        clock: impl Fn() -> Timestamp + Send + Sync + 'static,
        account: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let kinds = kinds::all();
        Self {
            kinds,
            store: Mutex::new(Store::new(kinds)),
            changes: kinds.iter().map(|_| watch::Sender::new(())).collect(),
            clock: Box::new(clock),
            account: Box::new(account),
            logs: Mutex::new(None),
            hashes: OnceLock::new(),
        }
    }

    /// Returns the store. A request that panicked leaves it as it is: each write is one step.
    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time.
    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Returns a receiver that is notified of changes of a kind.
    pub(crate) fn changes_of(&self, kind: usize) -> watch::Receiver<()> {
        self.changes[kind].subscribe()
    }

    /// Wakes the watches of a kind.
    pub(crate) fn wake(&self, kind: usize) {
        self.changes[kind].send_replace(());
    }

    /// Returns what knows the accounts of tokens.
    pub(crate) fn account(&self) -> &Account {
        &*self.account
    }

    /// Returns the logs of the node's containers, if there is a node.
    pub(crate) fn logs(&self) -> Option<Arc<dyn PodLogs>> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the logs of the node's containers.
    pub(crate) fn set_logs(&self, logs: Arc<dyn PodLogs>) {
        *self.logs.lock().unwrap_or_else(PoisonError::into_inner) = Some(logs);
    }

    /// Returns the paths and hashes of the documents of OpenAPI, which do not change.
    pub(crate) fn hashes(&self) -> &[(String, String)] {
        self.hashes.get_or_init(|| openapi::hashes(self.kinds))
    }
}
