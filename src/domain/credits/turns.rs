//! Turns: of those in this process who need more credits of one key, one at a time asks for them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex as SyncMutex, PoisonError};

use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::id::KeyId;

/// A lock for each key that somebody has or waits for. A key whose row is locked delays no other key.
#[derive(Default)]
pub struct Turns(SyncMutex<HashMap<KeyId, Arc<Mutex<()>>>>);

/// A place in the queue of a key, given up when it is dropped.
pub struct Turn<'a> {
    turns: &'a Turns,
    key: &'a KeyId,
    lock: Arc<Mutex<()>>,
    held: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    pub fn of<'a>(&'a self, key: &'a KeyId) -> Turn<'a> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lock = locks.entry(key.clone()).or_default().clone();
        Turn { turns: self, key, lock, held: None }
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl Turn<'_> {
    /// Waits for the turn, which is held until `self` is dropped. Returns whether somebody else had it.
    pub async fn wait(&mut self) -> bool {
        if let Ok(held) = self.lock.clone().try_lock_owned() {
            self.held = Some(held);
            return false;
        }
        self.held = Some(self.lock.clone().lock_owned().await);
        true
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut locks = self.turns.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.held = None;
        // One is that of the map, one this one: nobody else has it or waits for it.
        if Arc::strong_count(&self.lock) == 2 {
            locks.remove(self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use futures_util::{FutureExt as _, poll};

    use super::*;

    #[tokio::test]
    async fn one_at_a_time_has_the_turn_of_a_key_and_others_do_not_wait_for_it() {
        let (turns, key, other) = (Turns::default(), KeyId::from("key_a"), KeyId::from("key_b"));
        let mut first = turns.of(&key);
        assert!(!first.wait().await);
        let (mut second, mut third) = (turns.of(&key), turns.of(&key));
        {
            let (mut waiting, mut leaving) = (second.wait().boxed(), third.wait().boxed());
            assert_eq!(poll!(&mut waiting), Poll::Pending);
            assert_eq!(poll!(&mut leaving), Poll::Pending);
            assert!(!turns.of(&other).wait().await);

            drop(first);

            assert_eq!(poll!(&mut waiting), Poll::Ready(true));
            assert_eq!(poll!(&mut leaving), Poll::Pending);
        }
        drop(second);
        assert_eq!(turns.count(), 1, "one still waits");
        drop(third);
        assert_eq!(turns.count(), 0);
    }
}
