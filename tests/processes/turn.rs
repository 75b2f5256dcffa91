//! Decides which tests run at the same time: those that mostly wait share the machine, and one that loads it, or
//! measures less than a second, has it alone. Those that share go first, so that the machine is never idle between them.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The number of tests that share the machine: each has several servers, which use the processor when they start.
const SHARES: usize = 5;

/// How much longer than its bound something may take beside other tests.
pub const SLACK_SECONDS: f32 = 1.0;

static TESTS: Mutex<Tests> =
    Mutex::new(Tests { sharing: 0, waiting_to_share: 0, is_one_alone: false });
static IS_CHANGED: Condvar = Condvar::new();

struct Tests {
    sharing: usize,
    waiting_to_share: usize,
    is_one_alone: bool,
}

/// The right to run, until it is dropped.
pub struct Turn {
    is_alone: bool,
}

/// Waits until this test can run alone: it loads the machine, or measures less than a second.
pub fn acquire_turn() -> Turn {
    let mut tests = lock();
    while tests.is_one_alone || tests.sharing > 0 || tests.waiting_to_share > 0 {
        tests = wait(tests);
    }
    tests.is_one_alone = true;
    Turn { is_alone: true }
}

/// Waits until this test can run beside others that mostly wait.
pub fn share_turn() -> Turn {
    let mut tests = lock();
    tests.waiting_to_share += 1;
    while tests.is_one_alone || tests.sharing == SHARES {
        tests = wait(tests);
    }
    tests.waiting_to_share -= 1;
    tests.sharing += 1;
    Turn { is_alone: false }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut tests = lock();
        if self.is_alone {
            tests.is_one_alone = false;
        } else {
            tests.sharing -= 1;
        }
        drop(tests);
        IS_CHANGED.notify_all();
    }
}

fn wait(tests: MutexGuard<'static, Tests>) -> MutexGuard<'static, Tests> {
    IS_CHANGED.wait(tests).unwrap_or_else(PoisonError::into_inner)
}

fn lock() -> MutexGuard<'static, Tests> {
    TESTS.lock().unwrap_or_else(PoisonError::into_inner)
}
