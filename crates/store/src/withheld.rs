//! What is kept of withheld leases, and of who has reported them.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::KeyId;
use foundation::model::WithheldCredits;

/// A withheld lease that a replica has to report.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Unreported {
    pub since: Timestamp,
    pub key_id: KeyId,
    pub epoch: i64,
}

#[async_trait]
pub trait WithheldReads: Send {
    /// Withheld leases that this replica has not reported, oldest first, behind the one given; up to `max`. All of them
    /// for a replica without a name.
    async fn list_unreported_leases(
        &mut self,
        replica: &str,
        after: Option<&Unreported>,
        max: i64,
    ) -> Result<Vec<Unreported>>;
    /// What is withheld of these keys; `only_proven`: that every replica has reported which may know of it.
    async fn withheld_of(
        &mut self,
        keys: &[KeyId],
        only_proven: bool,
    ) -> Result<Vec<WithheldCredits>>;
    /// The ledger of what is withheld, oldest first; of one key, where it is named.
    async fn withheld(&mut self, key: Option<&KeyId>) -> Result<Vec<WithheldCredits>>;
    /// How many credits are withheld, over all keys.
    async fn units_withheld(&mut self) -> Result<i64>;
}

#[async_trait]
pub trait WithheldWrites: WithheldReads {
    /// Adds what a replica knows of leases: so much was spent from each, at least.
    async fn report_spends(&mut self, spent: &[(KeyId, i64, i64)]) -> Result<()>;
    /// As [`WithheldWrites::tell_of_purses`], for the last time.
    async fn report_final_spends(
        &mut self,
        replica: &str,
        spent: &[(KeyId, i64, i64)],
    ) -> Result<()>;
    /// Holds the accounts of these keys, in one order for everybody.
    async fn lock_accounts(&mut self, keys: &[KeyId]) -> Result<()>;
    /// As [`WithheldWrites::lock_accounts`], of those that no other transaction holds, which are returned.
    async fn claim_accounts(&mut self, keys: &[KeyId]) -> Result<Vec<KeyId>>;
    /// Adds units to the balances of these keys, under versions that no lease has had. Keys that are not metered, or
    /// deleted, get nothing. Returns those with a lease that is in use.
    async fn return_units(&mut self, units: &[(KeyId, i64)]) -> Result<Vec<KeyId>>;
    /// Forgets leases by key and number.
    async fn drop_withheld(&mut self, leases: &[(KeyId, i64)]) -> Result<()>;
}
