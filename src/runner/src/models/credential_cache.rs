//! Credentials that expire: kept in memory, and renewed before they do.
//!
//! When four fifths of their life are over, one task renews them, while requests go on with the old ones.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use tokio::time::Instant;

use super::error::{ModelError, ModelErrorKind};

/// Longest life that is believed.
const LONGEST_LIFE: Duration = Duration::from_secs(24 * 60 * 60);
/// Time between attempts to renew credentials that are still good.
const RENEWAL_PAUSE: Duration = Duration::from_secs(30);
/// Time for which credentials that could not be fetched are not asked for again.
const FAILURE_LIFE: Duration = Duration::from_secs(2);

/// Credentials as they were fetched.
pub(super) struct FetchedCredential<T> {
    /// Credentials.
    pub(super) value: T,
    /// Time for which they are good.
    pub(super) life: Duration,
}

/// Function that fetches credentials.
type FetchCredential<T> = dyn Fn() -> BoxFuture<'static, Result<FetchedCredential<T>, ModelError>> + Send + Sync;

/// Credentials that are fetched when they are first needed. Clones share them. Invariant: at most one task fetches.
#[derive(Clone)]
pub(super) struct CredentialCache<T> {
    fetch: Arc<FetchCredential<T>>,
    kept: Arc<Mutex<Option<KeptCredential<T>>>>,
    /// Last failure, and the time until which it stands.
    failure: Arc<Mutex<Option<(ModelError, Instant)>>>,
    renewing: Arc<tokio::sync::Mutex<()>>,
}

struct KeptCredential<T> {
    value: T,
    /// Time from which they are renewed.
    due: Instant,
    expires: Instant,
}

impl<T: Clone + Send + Sync + 'static> CredentialCache<T> {
    /// Creates a cache of what `fetch` returns.
    pub(super) fn new<F>(fetch: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<FetchedCredential<T>, ModelError>> + Send + 'static,
    {
        let fetch = Arc::new(move || fetch().boxed());
        Self { fetch, kept: Arc::default(), failure: Arc::default(), renewing: Arc::default() }
    }

    /// Returns credentials that are good now.
    ///
    /// # Errors
    /// There are none, and they cannot be fetched.
    pub(super) async fn current(&self) -> Result<T, ModelError> {
        if let Some((value, is_due)) = self.valid() {
            if is_due && let Ok(guard) = self.renewing.clone().try_lock_owned() {
                let cache = self.clone();
                tokio::spawn(async move {
                    cache.renew_early().await;
                    drop(guard);
                });
            }
            return Ok(value);
        }
        // A task of its own goes on when this request is given up: the others wait for the same credentials.
        let cache = self.clone();
        let fetched = tokio::spawn(async move {
            let _guard = cache.renewing.lock().await;
            match (cache.valid(), cache.failed()) {
                (Some((value, _)), _) => Ok(value),
                (None, Some(error)) => Err(error),
                (None, None) => cache.renew().await,
            }
        });
        let text = "the credentials cannot be fetched while the runtime ends";
        fetched.await.unwrap_or_else(|_| Err(ModelError::no_credentials(ModelErrorKind::Unavailable, text)))
    }

    /// Forgets the credentials if they are those that were refused.
    pub(super) fn forget(&self, are_refused: impl FnOnce(&T) -> bool) {
        let mut kept = self.kept();
        if kept.as_ref().is_some_and(|kept| are_refused(&kept.value)) {
            *kept = None;
        }
    }

    /// Returns the credentials if they are good, and whether they should be renewed.
    fn valid(&self) -> Option<(T, bool)> {
        let now = Instant::now();
        let kept = self.kept();
        let kept = kept.as_ref().filter(|kept| kept.expires > now)?;
        Some((kept.value.clone(), kept.due <= now))
    }

    /// Returns the failure of a moment ago.
    fn failed(&self) -> Option<ModelError> {
        let now = Instant::now();
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.as_ref().filter(|(_, until)| *until > now).map(|(error, _)| error.clone())
    }

    /// Renews credentials that are still good, unless another task has done it meanwhile.
    async fn renew_early(&self) {
        if !self.valid().is_some_and(|(_, is_due)| is_due) {
            return;
        }
        if let Err(error) = self.renew().await {
            tracing::warn!("credentials are not renewed yet: {error}");
            if let Some(kept) = self.kept().as_mut() {
                kept.due = Instant::now() + RENEWAL_PAUSE;
            }
        }
    }

    async fn renew(&self) -> Result<T, ModelError> {
        let fetched = (self.fetch)().await;
        if let Err(error) = &fetched {
            let failure = (error.clone(), Instant::now() + FAILURE_LIFE);
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
        }
        let FetchedCredential { value, life } = fetched?;
        let (life, now) = (life.min(LONGEST_LIFE), Instant::now());
        *self.kept() = Some(KeptCredential { value: value.clone(), due: now + life * 4 / 5, expires: now + life });
        Ok(value)
    }

    fn kept(&self) -> MutexGuard<'_, Option<KeptCredential<T>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Returns a cache of numbers that live for 100 s each, and their count. Those that `fails` names cannot be fetched.
    fn numbers(fails: &'static [u32]) -> (CredentialCache<u32>, Arc<AtomicU32>) {
        let count = Arc::new(AtomicU32::new(0));
        let counted = count.clone();
        let fetch = move || {
            let value = counted.fetch_add(1, Ordering::Relaxed) + 1;
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if fails.contains(&value) {
                    return Err(ModelError::no_credentials(ModelErrorKind::Unavailable, "no number"));
                }
                Ok(FetchedCredential { value, life: Duration::from_secs(100) })
            }
        };
        (CredentialCache::new(fetch), count)
    }

    #[tokio::test(start_paused = true)]
    async fn requests_at_once_fetch_once_and_renewal_keeps_none_waiting() {
        let (cache, count) = numbers(&[]);
        let all = futures::future::join_all((0..8).map(|_| cache.current())).await;
        assert!(all.iter().all(|value| *value == Ok(1)), "{all:?}");
        tokio::time::sleep(Duration::from_secs(85)).await;
        for _ in 0..3 {
            assert_eq!(cache.current().await, Ok(1), "the old one serves meanwhile");
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!((cache.current().await, count.load(Ordering::Relaxed)), (Ok(2), 2));
        tokio::time::sleep(Duration::from_secs(101)).await;
        assert_eq!(cache.current().await, Ok(3), "an expired one is not used");
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_renewed_serves_until_it_expires() {
        let (cache, count) = numbers(&[2, 3]);
        assert_eq!(cache.current().await, Ok(1));
        tokio::time::sleep(Duration::from_secs(85)).await;
        for _ in 0..5 {
            assert_eq!(cache.current().await, Ok(1));
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        assert_eq!(count.load(Ordering::Relaxed), 2, "it is tried again after a while only");
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(cache.current().await.is_err());
        tokio::time::sleep(FAILURE_LIFE).await;
        assert_eq!(cache.current().await, Ok(4));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_that_of_all_that_wait_and_stands_for_a_moment() {
        let (cache, count) = numbers(&[1]);
        let all = futures::future::join_all((0..8).map(|_| cache.current())).await;
        assert!(all.iter().all(Result::is_err), "{all:?}");
        assert!(cache.current().await.is_err());
        assert_eq!(count.load(Ordering::Relaxed), 1);
        tokio::time::sleep(FAILURE_LIFE).await;
        assert_eq!(cache.current().await, Ok(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_given_up_leaves_the_credentials_to_the_next() {
        let (cache, count) = numbers(&[]);
        let soon = tokio::time::timeout(Duration::from_millis(10), cache.current()).await;
        assert!(soon.is_err(), "it takes a second");
        assert_eq!((cache.current().await, count.load(Ordering::Relaxed)), (Ok(1), 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_one_is_forgotten() {
        let (cache, _) = numbers(&[]);
        assert_eq!(cache.current().await, Ok(1));
        cache.forget(|number| *number == 7);
        assert_eq!(cache.current().await, Ok(1));
        cache.forget(|number| *number == 1);
        assert_eq!(cache.current().await, Ok(2));
    }
}
