//! Decides which tests run at the same time: those that mostly wait share the machine, and one that loads it, or
//! measures less than a second, has it alone. Tests get their turn in the order in which they ask.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The number of tests that share the machine: each has several servers, which use the processor when they start.
const SHARES: usize = 4;

static QUEUE: Mutex<Queue> = Mutex::new(Queue { free: SHARES, next_ticket: 0, served_ticket: 0 });
static IS_CHANGED: Condvar = Condvar::new();

struct Queue {
    free: usize,
    next_ticket: u64,
    /// The ticket of the test that is next.
    served_ticket: u64,
}

/// The right to run, until it is dropped.
pub struct Turn(usize);

/// Waits until this test can run alone: it loads the machine, or measures less than a second.
pub fn acquire_turn() -> Turn {
    Turn::of(SHARES)
}

/// Waits until this test can run beside others that mostly wait.
pub fn share_turn() -> Turn {
    Turn::of(1)
}

impl Turn {
    fn of(shares: usize) -> Self {
        let mut queue = lock();
        let ticket = queue.next_ticket;
        queue.next_ticket += 1;
        while queue.served_ticket != ticket || queue.free < shares {
            queue = IS_CHANGED.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.served_ticket += 1;
        queue.free -= shares;
        IS_CHANGED.notify_all();
        Self(shares)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        lock().free += self.0;
        IS_CHANGED.notify_all();
    }
}

fn lock() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}
