//! What is kept of credits: accounts, purses, and the replicas that may have spent from them.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::KeyId;
use foundation::model::{CreditAccount, Credits, Lease, Refill};

#[async_trait]
pub trait CreditReads: Send {
    /// Purses in use that nobody has asked the bank about for `idle_ms`, the longest first, by key and number;
    /// a replica's own without regard to that, where it is named.
    async fn list_idle_leases(
        &mut self,
        idle_ms: i64,
        replica: Option<&str>,
    ) -> Result<Vec<(KeyId, i64)>>;
    /// Of these keys, the purses that the bank knows.
    async fn purses_of(&mut self, keys: &[KeyId]) -> Result<Vec<(KeyId, i64)>>;
    /// Of these keys, the accounts of those that are metered, with the purses in use.
    async fn accounts(&mut self, keys: &[KeyId]) -> Result<Vec<(KeyId, CreditAccount)>>;
    /// The bank's account of a key, whosever it is. `None`: no such key, or it is not metered.
    async fn account(&mut self, key: &KeyId) -> Result<Option<CreditAccount>>;
    /// All leases of a key, whether or not it is metered.
    async fn leases(&mut self, key: &KeyId) -> Result<Vec<Lease>>;
    /// The replicas that have said that they are there, with how many milliseconds ago, the last one first; up to `max`.
    async fn replicas(&mut self, max: i64) -> Result<Vec<(String, i64)>>;
}

#[async_trait]
pub trait CreditWrites: CreditReads {
    /// The bank's account of a key, held until the transaction ends. `None`: no such key, or it is
    /// not metered.
    async fn lock_account(&mut self, key: &KeyId) -> Result<Option<CreditAccount>>;
    /// As [`CreditWrites::lock_account`], of a deleted key too, which may be restored.
    async fn lock_account_of_any(&mut self, key: &KeyId) -> Result<Option<CreditAccount>>;
    /// The credits of those of these keys that are metered, held until the transaction ends, with the database's own
    /// time. `keys` are in order.
    async fn lock_credits(&mut self, keys: &[KeyId]) -> Result<Vec<(KeyId, Credits, Timestamp)>>;
    /// Sets balance and refill, under a version that no purse has had.
    async fn set_credits(&mut self, key: &KeyId, credits: Option<&Credits>) -> Result<()>;
    /// Keeps a refill for a key that has no credits to refill.
    async fn keep_refill(&mut self, key: &KeyId, refill: &Refill) -> Result<()>;
    /// Writes balance, version and period, and leaves the refill alone.
    async fn update_balance(&mut self, key: &KeyId, credits: &Credits) -> Result<()>;
    /// As [`CreditWrites::move_credits`], for several keys.
    async fn write_credits(&mut self, credits: &[(KeyId, Credits)]) -> Result<()>;
    /// Writes the purse, new or known. What others have reported spent meanwhile, without holding the account, stays.
    async fn upsert_lease(&mut self, key: &KeyId, purse: &Lease) -> Result<()>;
    /// Forgets a purse: it has been settled.
    async fn delete_lease(&mut self, key: &KeyId, epoch: i64) -> Result<()>;
    /// Nothing of what is in the leases of a key comes back. Those that somebody may still spend from stay known,
    /// withheld.
    async fn forfeit_leases(&mut self, key: &KeyId) -> Result<()>;
    /// Says of purses in use what was spent from them, and that they were asked about now.
    async fn touch_leases(&mut self, spent: &[(KeyId, i64, i64)]) -> Result<()>;
    /// Says that a replica is there. Returns the ids of those that have said so within the last `within_ms`, in order.
    async fn register_replica(&mut self, id: &str, within_ms: i64) -> Result<Vec<String>>;
    /// Whether a replica is registered; nobody counts it out until the transaction ends.
    async fn hold_registration(&mut self, id: &str) -> Result<bool>;
    /// Ends the registration of replicas that have been silent for so long.
    async fn silence_replicas(&mut self, silent_ms: i64) -> Result<()>;
    /// Numbers those whose registration has ended: they know of no lease with a higher number. Not in the transaction
    /// that ended it.
    async fn count_out_replicas(&mut self) -> Result<()>;
    /// Forgets replicas that have been silent for a day, unless a lease is left that they may know of.
    async fn prune_replicas(&mut self) -> Result<()>;
    async fn drop_replica(&mut self, id: &str) -> Result<()>;
}
