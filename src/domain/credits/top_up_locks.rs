//! Turns: of those in this process who need more credits of one key, one at a time asks for them.
//!
//! Where the one who has the turn fails, those who waited meanwhile fail for the same cause: they need not find out one
//! after the other that an account is locked or a server away.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as SyncMutex, MutexGuard as SyncMutexGuard, PoisonError};

use foundation::error::{Error, Result};
use foundation::id::KeyId;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::debit_queue::DEBIT_QUEUE_MAX;

/// A lock for each key that somebody has or waits for. A key whose row is locked delays no other key.
#[derive(Default)]
pub struct Turns(SyncMutex<HashMap<KeyId, Arc<Queue>>>);

/// Those who have or want the turn of one key.
#[derive(Default)]
struct Queue {
    lock: Arc<Mutex<()>>,
    waiting: AtomicUsize,
    /// How many have failed, and of what the last one.
    failures: SyncMutex<(u64, Option<Arc<Error>>)>,
}

impl Queue {
    fn failures(&self) -> SyncMutexGuard<'_, (u64, Option<Arc<Error>>)> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the queue of a key, given up when it is dropped.
pub struct Turn<'a> {
    turns: &'a Turns,
    key: &'a KeyId,
    queue: Arc<Queue>,
    held: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    pub fn of<'a>(&'a self, key: &'a KeyId) -> Turn<'a> {
        let mut queues = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = queues.entry(key.clone()).or_default().clone();
        Turn { turns: self, key, queue, held: None }
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl Turn<'_> {
    /// Waits for the turn, which is held until `self` is dropped. Returns whether somebody else had it. Fails at once
    /// when [`DEBIT_QUEUE_MAX`] wait already, and when somebody who had the turn meanwhile has failed.
    pub async fn wait(&mut self) -> Result<bool> {
        if let Ok(held) = self.queue.lock.clone().try_lock_owned() {
            self.held = Some(held);
            return Ok(false);
        }
        let _place = Place::take(&self.queue)?;
        let failures = self.queue.failures().0;
        self.held = Some(self.queue.lock.clone().lock_owned().await);
        match &*self.queue.failures() {
            (count, Some(cause)) if *count != failures => Err(Error::Shared(cause.clone())),
            _ => Ok(true),
        }
    }

    /// Has those who wait now fail for the same cause, which is returned.
    pub fn fail(&self, cause: Error) -> Error {
        let cause = Arc::new(cause);
        let mut failures = self.queue.failures();
        *failures = (failures.0 + 1, Some(cause.clone()));
        Error::Shared(cause)
    }
}

/// One of those who may wait.
struct Place<'a>(&'a Queue);

impl<'a> Place<'a> {
    fn take(queue: &'a Queue) -> Result<Self> {
        let place = Self(queue);
        match queue.waiting.fetch_add(1, Ordering::Relaxed) < DEBIT_QUEUE_MAX {
            true => Ok(place),
            false => Err(Error::Busy("credits")),
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut queues = self.turns.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.held = None;
        // One is that of the map, one this one: nobody else has it or waits for it.
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
    async fn wait_returns_for_one_at_a_time_of_a_key_and_at_once_for_another_key() {
        let (turns, key, other) = (Turns::default(), KeyId::from("key_a"), KeyId::from("key_b"));
        let mut first = turns.of(&key);
        assert!(first.wait().await.is_ok_and(|waited| !waited));
        let (mut second, mut third) = (turns.of(&key), turns.of(&key));
        {
            let (mut waiting, mut leaving) = (second.wait().boxed(), third.wait().boxed());
            assert!(poll!(&mut waiting).is_pending());
            assert!(poll!(&mut leaving).is_pending());
            assert!(turns.of(&other).wait().await.is_ok_and(|waited| !waited));

            drop(first);

            assert!(matches!(poll!(&mut waiting), Poll::Ready(Ok(true))));
            assert!(poll!(&mut leaving).is_pending());
        }
        drop(second);
        assert_eq!(turns.count(), 1, "one still waits");
        drop(third);
        assert_eq!(turns.count(), 0);
    }

    #[tokio::test]
    async fn fail_ends_the_wait_of_those_who_wait_and_of_nobody_who_comes_later() {
        let (turns, key) = (Turns::default(), KeyId::from("key_a"));
        let mut first = turns.of(&key);
        assert!(first.wait().await.is_ok_and(|waited| !waited));
        let (mut second, mut third) = (turns.of(&key), turns.of(&key));
        let mut waiting = second.wait().boxed();
        assert!(poll!(&mut waiting).is_pending());

        assert!(first.fail(Error::CountersAway).is_counters_outage());
        let mut late = third.wait().boxed();
        assert!(poll!(&mut late).is_pending());
        drop(first);

        assert!(waiting.await.is_err_and(|cause| cause.is_counters_outage()));
        drop(second);
        assert!(late.await.is_ok_and(|waited| waited));
    }

    #[tokio::test]
    async fn wait_fails_at_once_when_as_many_wait_as_may() {
        let (turns, key) = (Turns::default(), KeyId::from("key_a"));
        let mut first = turns.of(&key);
        assert!(first.wait().await.is_ok_and(|waited| !waited));
        let mut waiting: Vec<_> = (0..DEBIT_QUEUE_MAX)
            .map(|_| {
                let mut turn = turns.of(&key);
                async move { turn.wait().await.map(|_| turn) }.boxed()
            })
            .collect();
        for turn in &mut waiting {
            assert!(poll!(turn).is_pending());
        }

        let mut refused = turns.of(&key);
        assert!(matches!(refused.wait().await, Err(Error::Busy(_))));

        drop(waiting.pop());
        let mut admitted = turns.of(&key);
        assert!(poll!(admitted.wait().boxed()).is_pending());
    }
}
