//! Defines rows of credit accounts and leases.

use std::collections::HashMap;

use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::KeyId;
use foundation::model::{CreditAccount, Credits, Lease, Refill, RefillInterval};
use serde::Deserialize;
use sqlx_macros::FromRow;

use super::parse_json;

#[derive(FromRow)]
pub struct CreditsRow {
    pub credits: Option<i64>,
    pub credits_version: i64,
    pub refill_amount: Option<i64>,
    pub refill_day: Option<i64>,
    pub refilled: i64,
}

impl CreditsRow {
    pub fn to_refill(&self) -> Option<Refill> {
        let interval = match self.refill_day.and_then(|day| u8::try_from(day).ok()) {
            Some(day) => RefillInterval::Monthly { day },
            None => RefillInterval::Daily,
        };
        self.refill_amount.map(|amount| Refill { interval, amount })
    }

    pub fn into_credits(self) -> Option<Credits> {
        Some(Credits {
            refill: self.to_refill(),
            balance: self.credits?,
            last_lease_number: self.credits_version,
            refilled_period: self.refilled,
        })
    }
}

#[derive(FromRow)]
pub struct AccountRow {
    #[sqlx(flatten)]
    credits: CreditsRow,
    now: Timestamp,
}

impl AccountRow {
    pub fn into_credits(self) -> Option<(Credits, Timestamp)> {
        Some((self.credits.into_credits()?, self.now))
    }
}

/// The credits of one of several keys.
#[derive(FromRow)]
pub struct KeyCreditsRow {
    id: KeyId,
    #[sqlx(flatten)]
    account: AccountRow,
}

impl KeyCreditsRow {
    pub fn into_credits(self) -> Option<(KeyId, Credits, Timestamp)> {
        let (credits, now) = self.account.into_credits()?;
        Some((self.id, credits, now))
    }
}

/// A lease of one of several keys.
#[derive(FromRow)]
pub struct KeyLeaseRow {
    key_id: KeyId,
    #[sqlx(flatten)]
    lease: Lease,
}

impl KeyLeaseRow {
    /// Returns the leases of each key, in the order of the rows.
    pub fn group_by_key(rows: Vec<Self>) -> HashMap<KeyId, Vec<Lease>> {
        let mut leases: HashMap<_, Vec<_>> = HashMap::new();
        for row in rows {
            leases.entry(row.key_id).or_default().push(row.lease);
        }
        leases
    }
}

/// The credit account of one of several keys.
#[derive(FromRow)]
pub struct KeyAccountRow {
    id: KeyId,
    #[sqlx(flatten)]
    account: AccountRow,
    purses: String,
}

#[derive(Deserialize)]
struct LeaseRow {
    #[serde(rename = "epoch")]
    lease_number: i64,
    #[serde(rename = "life")]
    redis_generation: i64,
    granted: i64,
    spent: i64,
    opened_at: i64,
    asked_at: i64,
    asked_by: String,
    withheld_at: Option<i64>,
    /// 1 if it is closed, else 0: the engines differ in how they encode a boolean.
    closed: i64,
    region: String,
}

impl KeyAccountRow {
    pub fn into_account(self) -> Result<Option<(KeyId, CreditAccount)>> {
        let Some((credits, now)) = self.account.into_credits() else { return Ok(None) };
        let leases = parse_json::<Vec<LeaseRow>>(&self.purses)?.into_iter().map(|row| Lease {
            lease_number: row.lease_number,
            redis_generation: row.redis_generation,
            granted: row.granted,
            spent: row.spent,
            opened_at: Timestamp(row.opened_at),
            topped_up_at: Timestamp(row.asked_at),
            topped_up_by: row.asked_by,
            withheld_at: row.withheld_at.map(Timestamp),
            closed: row.closed != 0,
            region: row.region,
        });
        Ok(Some((self.id, CreditAccount { credits, leases: leases.collect(), database_time: now })))
    }
}
