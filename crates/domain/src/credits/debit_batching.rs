//! Decides which direct debits are decided together, which wait, and which are rejected.

use std::collections::HashMap;
use std::time::Duration;

use foundation::clock::Monotonic;
use foundation::id::KeyId;

/// The maximum number of debits that wait in one queue.
pub const DEBIT_QUEUE_MAX: usize = 1_000;
/// For how long a replica rejects the debits of a key, without a database call, after it found the account locked.
const LOCKED_QUEUE_PAUSE: Duration = Duration::from_millis(250);
/// From this number of queues on, queues that have paused long enough are removed.
const QUEUES_SWEEP_MIN: usize = 1_024;

/// Identifies a queue. An embedded server has only `None`.
pub type DebitQueueId = Option<KeyId>;

/// The queues of debits of type `D`.
#[derive(Debug)]
pub struct DebitQueues<D>(HashMap<DebitQueueId, DebitQueue<D>>);

#[derive(Debug)]
enum DebitQueue<D> {
    /// A batch is in progress, and these debits wait for its end.
    InProgress(Vec<D>),
    /// The last batch found the account locked.
    Paused(Monotonic),
}

/// What happens to a debit that arrives.
#[derive(Debug, PartialEq, Eq)]
pub enum EnqueueResult<D> {
    Waiting,
    /// A batch begins with it.
    Start(Vec<D>),
    /// It is rejected, because too many wait.
    Full(D),
    /// It is rejected, because its account was found locked a moment ago.
    Locked(D),
}

/// What happens to the debits that waited for the end of a batch.
#[derive(Debug, PartialEq, Eq)]
pub enum FinishResult<D> {
    /// There are none.
    Idle,
    /// They are the next batch.
    Start(Vec<D>),
    /// They are rejected, because their account is locked.
    Locked(Vec<D>),
}

impl<D> Default for DebitQueues<D> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<D> DebitQueues<D> {
    /// Adds a debit to a queue.
    pub fn enqueue(&mut self, id: &DebitQueueId, debit: D, now: Monotonic) -> EnqueueResult<D> {
        match self.0.get_mut(id) {
            Some(DebitQueue::InProgress(waiting)) if waiting.len() < DEBIT_QUEUE_MAX => {
                waiting.push(debit);
                EnqueueResult::Waiting
            }
            Some(DebitQueue::InProgress(_)) => EnqueueResult::Full(debit),
            Some(DebitQueue::Paused(since)) if now.since(*since) < LOCKED_QUEUE_PAUSE => {
                EnqueueResult::Locked(debit)
            }
            Some(DebitQueue::Paused(_)) | None => {
                self.0.insert(id.clone(), DebitQueue::InProgress(Vec::new()));
                EnqueueResult::Start(vec![debit])
            }
        }
    }

    /// Records the end of the batch of a queue. `is_locked`: it found an account locked.
    pub fn finish_batch(
        &mut self,
        id: &DebitQueueId,
        is_locked: bool,
        now: Monotonic,
    ) -> FinishResult<D> {
        let Some(DebitQueue::InProgress(waiting)) = self.0.remove(id) else {
            return FinishResult::Idle;
        };
        if is_locked && id.is_some() {
            self.pause_queue(id.clone(), now);
            FinishResult::Locked(waiting)
        } else if waiting.is_empty() {
            FinishResult::Idle
        } else {
            self.0.insert(id.clone(), DebitQueue::InProgress(Vec::new()));
            FinishResult::Start(waiting)
        }
    }

    fn pause_queue(&mut self, id: DebitQueueId, now: Monotonic) {
        if self.0.len() >= QUEUES_SWEEP_MIN {
            self.0.retain(|_, queue| match queue {
                DebitQueue::InProgress(_) => true,
                DebitQueue::Paused(since) => now.since(*since) < LOCKED_QUEUE_PAUSE,
            });
        }
        self.0.insert(id, DebitQueue::Paused(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> KeyId {
        KeyId::from(format!("key_{n}").as_str())
    }

    fn ms(ms: u64) -> Monotonic {
        Monotonic::from_ms(ms)
    }

    #[test]
    fn debits_that_arrive_during_a_batch_are_the_next_one() {
        let mut queues = DebitQueues::default();
        assert_eq!(queues.enqueue(&Some(key(1)), 'a', ms(0)), EnqueueResult::Start(vec!['a']));
        assert_eq!(queues.enqueue(&Some(key(1)), 'b', ms(0)), EnqueueResult::Waiting);
        assert_eq!(queues.enqueue(&Some(key(1)), 'c', ms(0)), EnqueueResult::Waiting);
        assert_eq!(queues.enqueue(&Some(key(2)), 'd', ms(0)), EnqueueResult::Start(vec!['d']));

        assert_eq!(
            queues.finish_batch(&Some(key(1)), false, ms(9)),
            FinishResult::Start(vec!['b', 'c'])
        );
        assert_eq!(queues.finish_batch(&Some(key(1)), false, ms(9)), FinishResult::Idle);
        assert_eq!(queues.finish_batch(&Some(key(1)), false, ms(9)), FinishResult::Idle, "twice");
        assert_eq!(queues.enqueue(&Some(key(1)), 'e', ms(9)), EnqueueResult::Start(vec!['e']));
    }

    #[test]
    fn debits_wait_during_the_batch_of_those_that_waited() {
        for id in [None, Some(key(1))] {
            let mut queues = DebitQueues::default();
            queues.enqueue(&id, 'a', ms(0));
            queues.enqueue(&id, 'b', ms(0));
            assert_eq!(queues.finish_batch(&id, false, ms(9)), FinishResult::Start(vec!['b']));

            assert_eq!(queues.enqueue(&id, 'c', ms(9)), EnqueueResult::Waiting);

            assert_eq!(queues.finish_batch(&id, false, ms(9)), FinishResult::Start(vec!['c']));
        }
    }

    #[test]
    fn debits_are_rejected_for_a_moment_when_their_account_is_locked() {
        let mut queues = DebitQueues::default();
        queues.enqueue(&Some(key(1)), 'a', ms(0));
        queues.enqueue(&Some(key(1)), 'b', ms(0));

        assert_eq!(
            queues.finish_batch(&Some(key(1)), true, ms(50)),
            FinishResult::Locked(vec!['b'])
        );
        assert_eq!(queues.enqueue(&Some(key(1)), 'c', ms(299)), EnqueueResult::Locked('c'));
        assert_eq!(queues.enqueue(&Some(key(1)), 'd', ms(300)), EnqueueResult::Start(vec!['d']));
    }

    #[test]
    fn shared_queue_continues_when_an_account_is_locked() {
        let mut queues = DebitQueues::default();
        queues.enqueue(&None, 'a', ms(0));
        queues.enqueue(&None, 'b', ms(0));

        assert_eq!(queues.finish_batch(&None, true, ms(50)), FinishResult::Start(vec!['b']));
    }

    #[test]
    fn debit_is_rejected_when_the_queue_is_full() {
        let mut queues = DebitQueues::default();
        queues.enqueue(&None, 0, ms(0));
        for n in 0..DEBIT_QUEUE_MAX {
            assert_eq!(queues.enqueue(&None, n, ms(0)), EnqueueResult::Waiting);
        }

        assert_eq!(queues.enqueue(&None, 7, ms(0)), EnqueueResult::Full(7));
    }

    #[test]
    fn queues_that_have_paused_long_enough_are_removed_when_there_are_many() {
        let mut queues = DebitQueues::default();
        for n in 0..QUEUES_SWEEP_MIN {
            queues.enqueue(&Some(key(n)), 'a', ms(0));
            queues.finish_batch(&Some(key(n)), true, ms(0));
        }
        assert_eq!(queues.0.len(), QUEUES_SWEEP_MIN);

        queues.enqueue(&Some(key(9_999)), 'a', ms(250));
        queues.finish_batch(&Some(key(9_999)), true, ms(250));

        assert_eq!(queues.0.len(), 1);
    }
}
