//! The keys by which gateways vouch for callers: the Secret `recif-identity` in the operator's namespace, watched by every
//! gateway and operator, so that all sign alike, and made by the operator that leads where there is none.

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
/// [`IDENTITY`] as a field selector, which is what rights on one name allow to watch.
const FIELD_SELECTOR: &str = "metadata.name=recif-identity";
/// How long an operator that cannot make the Secret waits before it tries again.
const RETRY: Duration = Duration::from_secs(10);

/// The keys as last read. What was read stays when the Secret goes: Pods know these.
#[derive(Debug, Clone, Default)]
pub struct Keys(Arc<SharedKeys>);

#[derive(Debug, Default)]
struct SharedKeys {
    keys: Mutex<Option<Arc<KeySet>>>,
    /// Whether the Secret is there.
    exists: watch::Sender<bool>,
}

impl Keys {
    /// The keys, once they were read.
    pub fn get(&self) -> Option<Arc<KeySet>> {
        self.0.keys.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes whether the Secret is there, each time that it was read anew or went.
    pub fn subscribe(&self) -> watch::Receiver<bool> {
        self.0.exists.subscribe()
    }

    /// The Secret holds these now.
    pub fn set(&self, keys: Arc<KeySet>) {
        *self.0.keys.lock().unwrap_or_else(PoisonError::into_inner) = Some(keys);
        self.0.exists.send_replace(true);
    }

    /// Follows the Secret in `namespace`, for ever.
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

    /// Makes the Secret whenever it is not there, for as long as this is polled: with the keys that were read before if it was
    /// there once, for those are the ones that Pods know.
    pub async fn maintain(&self, secret: &SecretObject) {
        let mut there = self.0.exists.subscribe();
        loop {
            match self.ensure(secret).await {
                // The sender is ours.
                Ok(()) => drop(there.wait_for(|there| !there).await),
                Err(error) => {
                    tracing::warn!(%error, "Secret {IDENTITY_SECRET} cannot be made: no caller can be vouched for without it");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    /// Makes the Secret if it is not there, and reads what there is then.
    ///
    /// # Errors
    /// As the API server answered.
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

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The API server refused, or was not there.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// What is in the Secret are none.
    #[error("Secret {IDENTITY_SECRET} is not used: {0}; delete it, and another one is made")]
    Bad(#[from] KeyError),
    /// None can be made.
    #[error("the system has no random numbers: {0}")]
    Random(#[from] getrandom::Error),
}

/// The data of a Secret with these keys.
pub fn secret_data(keys: &KeySet) -> BTreeMap<String, ByteString> {
    keys.data().into_iter().map(|(name, key)| (name.to_owned(), ByteString(key.into_bytes()))).collect()
}

/// The values of a Secret.
pub fn bytes(data: BTreeMap<String, ByteString>) -> BTreeMap<String, Vec<u8>> {
    data.into_iter().map(|(name, value)| (name, value.0)).collect()
}

/// Reads the keys of the Secret. One that holds others is no reason to fail the watch.
fn read(json: &str) -> Result<Result<Arc<KeySet>, KeyError>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Secret {
        #[serde(default)]
        data: BTreeMap<String, ByteString>,
    }
    let secret: Secret = serde_json::from_str(json)?;
    Ok(KeySet::read(&bytes(secret.data)).map(Arc::new))
}
