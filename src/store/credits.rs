//! What is kept of credits: accounts, purses, and the replicas that may have spent from them.

use async_trait::async_trait;

use crate::error::Result;
use crate::id::KeyId;
use crate::model::{Account, Credits, Purse, Refill, Withheld};

#[async_trait]
pub trait CreditReads: Send {
    /// Purses in use that nobody has asked the bank about for `idle_ms`, the longest first, by key and number;
    /// a replica's own without regard to that, where it is named.
    async fn purses_to_settle(
        &mut self,
        idle_ms: i64,
        replica: Option<&str>,
    ) -> Result<Vec<(KeyId, i64)>>;
    /// Of these keys, the purses that the bank knows.
    async fn purses_of(&mut self, keys: &[KeyId]) -> Result<Vec<(KeyId, i64)>>;
    /// Withheld purses of which this replica has not said what it knows.
    async fn purses_to_account(&mut self, replica: &str, max: i64) -> Result<Vec<(KeyId, i64)>>;
    /// Withheld purses of which every replica has that may have spent from them: all but those that fell
    /// silent `silent_ms` before the purse was made.
    async fn purses_proven(&mut self, silent_ms: i64) -> Result<Vec<Withheld>>;
    /// The ledger of what is withheld, oldest first; of one key, where it is named.
    async fn withheld(&mut self, key: Option<&KeyId>) -> Result<Vec<Withheld>>;
    /// How many credits are withheld, over all keys.
    async fn units_withheld(&mut self) -> Result<i64>;
    /// Of these keys, the accounts of those that are metered, with the purses in use.
    async fn accounts(&mut self, keys: &[KeyId]) -> Result<Vec<(KeyId, Account)>>;
    /// The bank's account of a key, whosever it is. `None`: no such key, or it is not metered.
    async fn account(&mut self, key: &KeyId) -> Result<Option<Account>>;
    /// The replicas that have said that they are there, with how many milliseconds ago, the last one first; up to `max`.
    async fn replicas(&mut self, max: i64) -> Result<Vec<(String, i64)>>;
}

#[async_trait]
pub trait CreditWrites: CreditReads {
    /// The bank's account of a key, held until the transaction ends. `None`: no such key, or it is
    /// not metered.
    async fn lock_account(&mut self, key: &KeyId) -> Result<Option<Account>>;
    /// Sets balance and refill, under a version that no purse has had.
    async fn set_credits(&mut self, key: &KeyId, credits: Option<&Credits>) -> Result<()>;
    /// Keeps a refill for a key that has no credits to refill.
    async fn keep_refill(&mut self, key: &KeyId, refill: &Refill) -> Result<()>;
    /// Writes balance, version and period, and leaves the refill alone.
    async fn move_credits(&mut self, key: &KeyId, credits: &Credits) -> Result<()>;
    /// Writes the purse, new or known.
    async fn put_purse(&mut self, key: &KeyId, purse: &Purse) -> Result<()>;
    /// Forgets a purse: it has been settled.
    async fn drop_purse(&mut self, key: &KeyId, epoch: i64) -> Result<()>;
    /// Forgets all purses of a key: whatever is in them has become void.
    async fn drop_purses(&mut self, key: &KeyId) -> Result<()>;
    /// Adds what a replica knows of a purse: so much was spent from it, at least.
    async fn tell_of_purse(&mut self, key: &KeyId, epoch: i64, spent: i64) -> Result<()>;
    /// Says of purses in use what was spent from them, and that they were asked about now.
    async fn look_after_purses(&mut self, spent: &[(KeyId, i64, i64)]) -> Result<()>;
    /// As [`CreditWrites::tell_of_purse`], for the last time.
    async fn account_for_purse(
        &mut self,
        key: &KeyId,
        epoch: i64,
        replica: &str,
        spent: i64,
    ) -> Result<()>;
    /// Says that a replica is there. How many have said so within the last `within_ms`, this one included.
    async fn register_replica(&mut self, id: &str, within_ms: i64) -> Result<i64>;
    /// Forgets replicas that have been silent for a day, unless somebody may wait for their word.
    async fn prune_replicas(&mut self) -> Result<()>;
    async fn drop_replica(&mut self, id: &str) -> Result<()>;
}
