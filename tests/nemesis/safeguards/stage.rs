//! What a case acts on: replicas with faults, and a caller that records every reply.

use std::time::Duration;

use crate::caller::{Caller, Shared};
use crate::fleet::Fleet;
use crate::lock::Lock;
use crate::record::{AccountLock, Action, InjectedFault, KeyFinalState, KeyIndex, KeyInfo};
use crate::schedule::{Fault, FaultKind};

/// The servers and the caller of a case, and what it records.
pub struct Stage<'a> {
    pub shared: &'a Shared,
    pub fleet: &'a mut Fleet,
    pub caller: Caller<'a>,
    pub faults: Vec<InjectedFault>,
    pub locks: Vec<AccountLock>,
    /// How many days the database was made to believe have passed.
    pub days: i64,
    /// The final state of keys, if the case reads it.
    pub final_states: Vec<KeyFinalState>,
}

/// The account of a key, locked since then.
pub struct LockedAccount {
    key: KeyIndex,
    began: Duration,
    lock: Lock,
}

impl Stage<'_> {
    pub fn key(&mut self, info: KeyInfo) -> KeyIndex {
        self.caller.create(0, info).expect("a key")
    }

    pub fn metered(&mut self, credits: i64) -> KeyIndex {
        self.key(KeyInfo { credits: Some(credits), ..KeyInfo::default() })
    }

    pub fn limited(&mut self, limit: i64) -> KeyIndex {
        let limits = vec![("requests".to_owned(), limit, 60_000)];
        self.key(KeyInfo { limits, ..KeyInfo::default() })
    }

    pub fn verify(&mut self, replica: usize, key: KeyIndex, cost: i64) -> bool {
        self.caller.send(replica, Action::Verify { key, cost }).is_valid()
    }

    /// Spends at a replica until nothing is left, or too much has been spent.
    pub fn drain(&mut self, replica: usize, key: KeyIndex, cost: i64, times_max: usize) {
        (0..times_max).any(|_| !self.verify(replica, key, cost));
    }

    /// Spends for this long, so that the top-ups of the lease follow the demand.
    pub fn spend_for(&mut self, ms: u64, replica: usize, key: KeyIndex, cost: i64) {
        let until = self.shared.began.elapsed() + Duration::from_millis(ms);
        while self.shared.began.elapsed() < until {
            self.verify(replica, key, cost);
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    /// Verifies at a replica for this long.
    pub fn watch(&mut self, replica: usize, key: KeyIndex, ms: u64) {
        let until = self.shared.began.elapsed() + Duration::from_millis(ms);
        while self.shared.began.elapsed() < until {
            self.verify(replica, key, 0);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Spends at replica 0 until nothing has been left for two seconds, in which withheld credits are returned.
    pub fn spend_all(&mut self, key: KeyIndex, cost: i64) {
        let mut spent = self.shared.began.elapsed();
        while self.shared.began.elapsed() < spent + Duration::from_secs(2) {
            match self.verify(0, key, cost) {
                true => spent = self.shared.began.elapsed(),
                false => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    pub fn restart(&mut self, replica: usize) {
        let replica = &mut self.fleet.replicas[replica];
        replica.kill();
        replica.start();
        replica.await_ready();
    }

    /// Replaces a replica that deregisters: no other replica waits for it.
    pub fn replace(&mut self, replica: usize) {
        let replica = &mut self.fleet.replicas[replica];
        replica.stop();
        replica.start();
        replica.await_ready();
    }

    /// Locks the account of a key during this function.
    pub fn with_locked_account(&mut self, key: KeyIndex, run: impl FnOnce(&mut Self)) {
        let locked = self.lock_account(key);
        run(self);
        self.unlock_account(locked);
    }

    pub fn lock_account(&self, key: KeyIndex) -> LockedAccount {
        let id = self.shared.keys()[key].id.clone();
        let lock = Lock::of_account(self.fleet.postgres.url(), &id);
        LockedAccount { key, began: self.shared.began.elapsed(), lock }
    }

    pub fn unlock_account(&mut self, LockedAccount { key, began, lock }: LockedAccount) {
        self.locks.push(AccountLock { key, began, ended: self.shared.began.elapsed() });
        drop(lock);
    }

    pub fn with_fault<R>(&mut self, kind: FaultKind, run: impl FnOnce(&mut Self) -> R) -> R {
        let at = self.shared.began.elapsed();
        let fault = Fault { at, duration: Duration::ZERO, kind };
        self.fleet.begin(&fault);
        // Recorded before it ends, for calls during the fault.
        self.faults.push(InjectedFault { fault, began: at, ended: at });
        let index = self.faults.len() - 1;
        let result = run(self);
        self.fleet.end(&fault);
        self.faults[index].ended = self.shared.began.elapsed();
        result
    }
}
