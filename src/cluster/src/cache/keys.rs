//! Keys by which gateways vouch for callers: the Secret `recif-identity` in the operator's namespace. Every gateway and operator watches
//! it, so that all use the same keys. The leading operator creates it where it is missing.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use identity::{KeyError, KeySet};
use k8s_openapi::ByteString;
use serde::Deserialize;
use tokio::sync::watch;

use crate::{
    ObjectMap, ObjectVersion, Transport, Watch, WatchHealth, WatchSource, error::RequestError, resource::Resource,
    secret::SecretObject,
};

/// Name of the Secret.
pub const IDENTITY_SECRET: &str = "recif-identity";
/// [`IDENTITY_SECRET`] as a field selector: with rights on a single name, only such a watch is allowed.
const FIELD_SELECTOR: &str = "metadata.name=recif-identity";
/// Delay before an operator that cannot create the Secret tries again.
const RETRY: Duration = Duration::from_secs(10);

/// Keys as last read. They stay when the Secret is deleted, because Pods know these.
#[derive(Debug, Clone, Default)]
pub struct Keys(Arc<SharedKeys>);

#[derive(Debug, Default)]
struct SharedKeys {
    keys: Mutex<Option<Arc<KeySet>>>,
    /// True while the Secret exists.
    exists: watch::Sender<bool>,
}

impl Keys {
    /// Returns the keys, once they have been read.
    pub fn get(&self) -> Option<Arc<KeySet>> {
        self.0.keys.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns a receiver that is notified each time the Secret is read anew or deleted; its value says whether the Secret exists.
    pub fn subscribe(&self) -> watch::Receiver<bool> {
        self.0.exists.subscribe()
    }

    /// Stores the keys that were read from the Secret.
    pub fn set(&self, keys: Arc<KeySet>) {
        *self.0.keys.lock().unwrap_or_else(PoisonError::into_inner) = Some(keys);
        self.0.exists.send_replace(true);
    }

    /// Watches the Secret in `namespace`, for ever.
    pub async fn follow(self, namespace: String, transport: Arc<Transport>, board: Arc<WatchHealth>) {
        let map = Arc::new(ObjectMap::default());
        map.subscribe(move |change| match change.new.as_deref() {
            Some(Ok(keys)) => self.set(Arc::clone(keys)),
            Some(Err(error)) => tracing::error!("Secret {IDENTITY_SECRET} is not used: {error}"),
            None => {
                self.0.exists.send_replace(false);
            }
        });
        let decode = Arc::new(|_: &ObjectVersion, json: &str| read(json));
        let source = WatchSource { resource: Resource::SECRET, labels: None, fields: Some(FIELD_SELECTOR), decode };
        Watch::new(source, Some(namespace), transport, map, board).run().await;
    }

    /// Creates the Secret whenever it is missing, for as long as this future is polled. If it existed before, it gets the keys that were
    /// read then, because those are the ones that Pods know.
    pub async fn maintain(&self, secret: &SecretObject) {
        let mut there = self.0.exists.subscribe();
        loop {
            match self.ensure(secret).await {
                // The wait cannot fail, because the sender is ours.
                Ok(()) => drop(there.wait_for(|there| !there).await),
                Err(error) => {
                    tracing::warn!(%error, "Secret {IDENTITY_SECRET} cannot be made: no caller can be vouched for without it");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    /// Creates the Secret if it is missing, and otherwise reads its keys.
    ///
    /// # Errors
    /// [`KeysError`].
    pub async fn ensure(&self, secret: &SecretObject) -> Result<(), KeysError> {
        if *self.0.exists.borrow() {
            return Ok(());
        }
        let known = self.get();
        if let Some(found) = secret.get().await? {
            self.set(Arc::new(KeySet::read(&bytes(found.data.unwrap_or_default()))?));
            return Ok(());
        }
        let keys = known.map_or_else(|| KeySet::generate().map(Arc::new), Ok)?;
        if secret.create(secret_data(&keys)).await? {
            tracing::info!("made Secret {IDENTITY_SECRET}, by which gateways vouch for callers");
            self.set(keys);
        } else if let Some(found) = secret.get().await? {
            self.set(Arc::new(KeySet::read(&bytes(found.data.unwrap_or_default()))?));
        }
        Ok(())
    }
}

/// Reason for missing keys.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The API server refused, or did not answer.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The Secret does not hold valid keys.
    #[error("Secret {IDENTITY_SECRET} is not used: {0}; delete it, and another one is made")]
    Bad(#[from] KeyError),
    /// No keys can be generated.
    #[error("the system has no random numbers: {0}")]
    Random(#[from] getrandom::Error),
}

/// Returns the keys as the data of a Secret.
pub fn secret_data(keys: &KeySet) -> BTreeMap<String, ByteString> {
    keys.data().into_iter().map(|(name, key)| (name.to_owned(), ByteString(key.into_bytes()))).collect()
}

/// Returns the values of a Secret as bytes.
pub fn bytes(data: BTreeMap<String, ByteString>) -> BTreeMap<String, Vec<u8>> {
    data.into_iter().map(|(name, value)| (name, value.0)).collect()
}

/// Decodes the keys of the Secret. Invalid keys are no reason to fail the watch.
fn read(json: &str) -> Result<Result<Arc<KeySet>, KeyError>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Secret {
        #[serde(default)]
        data: BTreeMap<String, ByteString>,
    }
    let secret: Secret = serde_json::from_str(json)?;
    Ok(KeySet::read(&bytes(secret.data)).map(Arc::new))
}
