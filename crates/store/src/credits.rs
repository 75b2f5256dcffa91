//! Defines reads and writes of credit accounts, of leases, and of the replicas that may have spent from leases.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::KeyId;
use foundation::model::{CreditAccount, Credits, Lease, Refill};

#[async_trait]
pub trait CreditReads: Send {
    /// Returns the keys and numbers of leases in use that were neither topped up nor touched for `idle_ms`, the
    /// longest idle first. If `replica` is given, also the leases that it topped up last, however recently. If
    /// `regions` are given, only those of these regions.
    async fn list_idle_leases(
        &mut self,
        idle_ms: i64,
        replica: Option<&str>,
        regions: Option<&[String]>,
    ) -> Result<Vec<(KeyId, i64)>>;
    /// Returns the recorded leases of these keys.
    async fn list_leases_of_keys(&mut self, keys: &[KeyId]) -> Result<Vec<(KeyId, i64)>>;
    /// Returns the accounts of those of these keys that are metered, with all their leases.
    async fn list_accounts(&mut self, keys: &[KeyId]) -> Result<Vec<(KeyId, CreditAccount)>>;
    /// Returns the credit account of a key of any workspace. `None` if the key does not exist or is not metered.
    async fn find_account(&mut self, key: &KeyId) -> Result<Option<CreditAccount>>;
    /// Returns all leases of a key, whether or not it is metered.
    async fn list_leases(&mut self, key: &KeyId) -> Result<Vec<Lease>>;
    /// Returns up to `max` registered replicas with the milliseconds since their last registration, the most recent
    /// first.
    async fn list_replicas(&mut self, max: i64) -> Result<Vec<(String, i64)>>;
}

#[async_trait]
pub trait CreditWrites: CreditReads {
    /// Returns the credit account of a key, and locks it until the transaction ends. `None` if the key does not exist
    /// or is not metered.
    async fn lock_account(&mut self, key: &KeyId) -> Result<Option<CreditAccount>>;
    /// Like [`CreditWrites::lock_account`], for several keys, without those whose accounts another transaction has locked.
    /// `keys` must be sorted.
    async fn lock_free_accounts(&mut self, keys: &[KeyId]) -> Result<Vec<(KeyId, CreditAccount)>>;
    /// Like [`CreditWrites::lock_account`], but also for a deleted key, which may be restored.
    async fn lock_account_with_deleted(&mut self, key: &KeyId) -> Result<Option<CreditAccount>>;
    /// Returns the credits of those of these keys that are metered, with the time of the database's clock, and locks
    /// the accounts until the transaction ends. `keys` must be sorted.
    async fn lock_credits(&mut self, keys: &[KeyId]) -> Result<Vec<(KeyId, Credits, Timestamp)>>;
    /// Sets balance and refill, and increments the lease number past that of any lease.
    async fn set_credits(&mut self, key: &KeyId, credits: Option<&Credits>) -> Result<()>;
    /// Stores the refill schedule of a key that has no credits to refill.
    async fn set_refill(&mut self, key: &KeyId, refill: &Refill) -> Result<()>;
    /// Updates balance, last lease number and refilled period. The refill schedule does not change.
    async fn update_balance(&mut self, key: &KeyId, credits: &Credits) -> Result<()>;
    /// Like [`CreditWrites::update_balance`], for several keys.
    async fn update_balances(&mut self, credits: &[(KeyId, Credits)]) -> Result<()>;
    /// Inserts or updates a lease. A larger spend that others have reported in the meantime, without locking the
    /// account, is kept.
    async fn upsert_lease(&mut self, key: &KeyId, lease: &Lease) -> Result<()> {
        self.upsert_leases(&[(key.clone(), lease.clone())]).await
    }
    /// Like [`CreditWrites::upsert_lease`], for different leases.
    async fn upsert_leases(&mut self, leases: &[(KeyId, Lease)]) -> Result<()>;
    /// Deletes a lease that has been closed.
    async fn delete_lease(&mut self, key: &KeyId, lease_number: i64) -> Result<()>;
    /// Forfeits the credits in the leases of a key: none of them return to the account. Leases that a replica may
    /// still spend from remain recorded, as withheld.
    async fn forfeit_leases(&mut self, key: &KeyId) -> Result<()>;
    /// Records the spend of leases in use, and the current time as that of their last top-up.
    async fn touch_leases(&mut self, spent: &[(KeyId, i64, i64)]) -> Result<()>;
    /// Registers a replica of a region with the number of this heartbeat. Returns the ids and regions of the replicas
    /// that have registered within the last `within_ms`, sorted by id.
    async fn register_replica(
        &mut self,
        id: &str,
        region: &str,
        heartbeat: i64,
        within_ms: i64,
    ) -> Result<Vec<(String, String)>>;
    /// Returns whether a replica is registered, and prevents that it is counted out until the transaction ends.
    async fn lock_registration(&mut self, id: &str) -> Result<bool>;
    /// Ends the registration of replicas that have not registered for `silent_ms`.
    async fn end_silent_registrations(&mut self, silent_ms: i64) -> Result<()>;
    /// Counts out the replicas whose registration has ended: each receives a number, and knows of no lease with a
    /// higher one. Must not run in the transaction that ended the registration.
    async fn count_out_replicas(&mut self) -> Result<()>;
    /// Deletes replicas that were counted out and have not registered for a day, unless a lease remains that they may
    /// know of.
    async fn prune_replicas(&mut self) -> Result<()>;
    async fn delete_replica(&mut self, id: &str) -> Result<()>;
}
