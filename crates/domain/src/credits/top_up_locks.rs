//! Locks that let one request per key in this process top up at a time.
//!
//! If the owner of a lock fails, the requests that waited meanwhile fail with the same error, instead of each finding
//! out that the account is locked or a server is unreachable.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foundation::error::{Error, Result};
use foundation::id::KeyId;
use parking_lot::Mutex as SyncMutex;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::debit_batching::DEBIT_QUEUE_MAX;

/// One lock for each key that a request tops up or waits for. A key whose row is locked delays no other key.
#[derive(Default)]
pub struct TopUpLocks(SyncMutex<HashMap<KeyId, Arc<LockQueue>>>);

/// The requests that own or wait for the lock of one key.
#[derive(Default)]
struct LockQueue {
    lock: Arc<Mutex<()>>,
    waiting_count: AtomicUsize,
    /// The number of failures, and the last error.
    failures: SyncMutex<(u64, Option<Arc<Error>>)>,
}

/// A place in the queue of a key, released on drop.
pub struct TopUpLock<'a> {
    locks: &'a TopUpLocks,
    key: &'a KeyId,
    queue: Arc<LockQueue>,
    guard: Option<OwnedMutexGuard<()>>,
}

impl TopUpLocks {
    pub fn for_key<'a>(&'a self, key: &'a KeyId) -> TopUpLock<'a> {
        let mut queues = self.0.lock();
        let queue = queues.entry(key.clone()).or_default().clone();
        TopUpLock { locks: self, key, queue, guard: None }
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        self.0.lock().len()
    }
}

impl TopUpLock<'_> {
    /// Waits for the lock, which is held until `self` is dropped. Returns whether another request held it. Fails at
    /// once if [`DEBIT_QUEUE_MAX`] requests are waiting, and if a request that held the lock meanwhile has failed.
    pub async fn wait(&mut self) -> Result<bool> {
        if let Ok(held) = self.queue.lock.clone().try_lock_owned() {
            self.guard = Some(held);
            return Ok(false);
        }
        let _slot = WaitSlot::acquire(&self.queue)?;
        let failures = self.queue.failures.lock().0;
        self.guard = Some(self.queue.lock.clone().lock_owned().await);
        match &*self.queue.failures.lock() {
            (count, Some(cause)) if *count != failures => Err(Error::Shared(cause.clone())),
            _ => Ok(true),
        }
    }

    /// Fails all requests that wait now with this error, and returns it.
    pub fn fail(&self, cause: Error) -> Error {
        let cause = Arc::new(cause);
        let mut failures = self.queue.failures.lock();
        *failures = (failures.0 + 1, Some(cause.clone()));
        Error::Shared(cause)
    }
}

/// Counts a waiting request until it is dropped.
struct WaitSlot<'a>(&'a LockQueue);

impl<'a> WaitSlot<'a> {
    fn acquire(queue: &'a LockQueue) -> Result<Self> {
        let slot = Self(queue);
        match queue.waiting_count.fetch_add(1, Ordering::Relaxed) < DEBIT_QUEUE_MAX {
            true => Ok(slot),
            false => Err(Error::Overloaded("credits")),
        }
    }
}

impl Drop for WaitSlot<'_> {
    fn drop(&mut self) {
        self.0.waiting_count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for TopUpLock<'_> {
    fn drop(&mut self) {
        let mut queues = self.locks.0.lock();
        self.guard = None;
        // One reference is the map's, one is this one: no other request holds the lock or waits for it.
        if Arc::strong_count(&self.queue) == 2 {
            queues.remove(self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use futures_util::{FutureExt as _, poll};

    use super::*;

    #[tokio::test]
    async fn wait_blocks_when_another_request_holds_the_lock_of_the_key() {
        let (locks, key, other) =
            (TopUpLocks::default(), KeyId::from("key_a"), KeyId::from("key_b"));
        let mut first = locks.for_key(&key);
        assert!(first.wait().await.is_ok_and(|waited| !waited));
        let (mut second, mut third) = (locks.for_key(&key), locks.for_key(&key));
        {
            let (mut waiting, mut leaving) = (second.wait().boxed(), third.wait().boxed());
            assert!(poll!(&mut waiting).is_pending());
            assert!(poll!(&mut leaving).is_pending());
            assert!(locks.for_key(&other).wait().await.is_ok_and(|waited| !waited));

            drop(first);

            assert!(matches!(poll!(&mut waiting), Poll::Ready(Ok(true))));
            assert!(poll!(&mut leaving).is_pending());
        }
        drop(second);
        assert_eq!(locks.count(), 1, "one still waits");
        drop(third);
        assert_eq!(locks.count(), 0);
    }

    #[tokio::test]
    async fn fail_affects_only_requests_that_wait_when_it_is_called() {
        let (locks, key) = (TopUpLocks::default(), KeyId::from("key_a"));
        let mut first = locks.for_key(&key);
        assert!(first.wait().await.is_ok_and(|waited| !waited));
        let (mut second, mut third) = (locks.for_key(&key), locks.for_key(&key));
        let mut waiting = second.wait().boxed();
        assert!(poll!(&mut waiting).is_pending());

        assert!(first.fail(Error::RedisBreakerOpen).is_redis_outage());
        let mut late = third.wait().boxed();
        assert!(poll!(&mut late).is_pending());
        drop(first);

        assert!(waiting.await.is_err_and(|cause| cause.is_redis_outage()));
        drop(second);
        assert!(late.await.is_ok_and(|waited| waited));
    }

    #[tokio::test]
    async fn wait_fails_at_once_when_the_queue_is_full() {
        let (locks, key) = (TopUpLocks::default(), KeyId::from("key_a"));
        let mut first = locks.for_key(&key);
        assert!(first.wait().await.is_ok_and(|waited| !waited));
        let mut waiting: Vec<_> = (0..DEBIT_QUEUE_MAX)
            .map(|_| {
                let mut lock = locks.for_key(&key);
                async move { lock.wait().await.map(|_| lock) }.boxed()
            })
            .collect();
        for lock in &mut waiting {
            assert!(poll!(lock).is_pending());
        }

        let mut refused = locks.for_key(&key);
        assert!(matches!(refused.wait().await, Err(Error::Overloaded(_))));

        drop(waiting.pop());
        let mut admitted = locks.for_key(&key);
        assert!(poll!(admitted.wait().boxed()).is_pending());
    }
}
