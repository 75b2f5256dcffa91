//! Defines reads and writes of withheld leases and of the reports of replicas about them.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::KeyId;
use foundation::model::WithheldCredits;

/// A withheld lease that a replica has to report.
#[derive(Debug, Clone, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct UnreportedLease {
    pub since: Timestamp,
    pub key_id: KeyId,
    #[sqlx(rename = "epoch")]
    pub lease_number: i64,
}

#[async_trait]
pub trait WithheldReads: Send {
    /// Returns up to `max` withheld leases that this replica has not reported, oldest first, starting after the given
    /// one. An empty replica id returns all withheld leases.
    async fn list_unreported_leases(
        &mut self,
        replica: &str,
        after: Option<&UnreportedLease>,
        max: i64,
    ) -> Result<Vec<UnreportedLease>>;
    /// Returns the withheld credits of these keys. With `only_proven`, only leases that every replica that may know
    /// of them has reported.
    async fn list_withheld_of_keys(
        &mut self,
        keys: &[KeyId],
        only_proven: bool,
    ) -> Result<Vec<WithheldCredits>>;
    /// Returns all withheld credits, oldest first, of one key if it is given.
    async fn list_withheld(&mut self, key: Option<&KeyId>) -> Result<Vec<WithheldCredits>>;
    /// Returns the number of withheld credits of all keys.
    async fn sum_withheld(&mut self) -> Result<i64>;
}

#[async_trait]
pub trait WithheldWrites: WithheldReads {
    /// Raises the recorded spend of each of these leases to at least the given amount, which a replica has observed.
    async fn report_spends(&mut self, spent: &[(KeyId, i64, i64)]) -> Result<()>;
    /// Records the spend that a replica has observed as its final report about these leases.
    async fn report_final_spends(
        &mut self,
        replica: &str,
        spent: &[(KeyId, i64, i64)],
    ) -> Result<()>;
    /// Locks the accounts of these keys, always in the same order.
    async fn lock_accounts(&mut self, keys: &[KeyId]) -> Result<()>;
    /// Locks the accounts of those of these keys that no other transaction has locked. Returns these keys.
    async fn claim_accounts(&mut self, keys: &[KeyId]) -> Result<Vec<KeyId>>;
    /// Adds credits to the balances of these keys, and increments their lease numbers past those of any lease. Deleted
    /// keys, which may be restored, are among them. Keys that are not metered receive nothing. Returns the keys with a
    /// lease in use.
    async fn return_credits(&mut self, units: &[(KeyId, i64)]) -> Result<Vec<KeyId>>;
    /// Deletes leases by key and number.
    async fn delete_withheld(&mut self, leases: &[(KeyId, i64)]) -> Result<()>;
}
