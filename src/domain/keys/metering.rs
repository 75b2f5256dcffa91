//! Whether a key is metered after a change, and what becomes of its refill where it is not.

use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::KeyId;
use foundation::model::{Credits, Refill};
use store::Tx;

use super::super::refill;
use super::NewCredits;

/// What becomes of the refill of a key that is unlimited.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum IdleRefill {
    #[default]
    Dropped,
    /// It is kept, and comes back when the key is metered again.
    Kept,
}

/// A key's uses and its refill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metering {
    Metered(Credits),
    /// With the refill that it would have.
    Unlimited(Option<Refill>),
}

impl Metering {
    /// As it stands at `now`: refilled where a period has begun since.
    pub fn at(account: Option<Credits>, idle: Option<Refill>, now: Timestamp) -> Self {
        match account {
            Some(credits) => Self::Metered(refill::apply_refill(credits, now)),
            None => Self::Unlimited(idle),
        }
    }

    pub fn credits(self) -> Option<Credits> {
        match self {
            Self::Metered(credits) => Some(credits),
            Self::Unlimited(_) => None,
        }
    }

    pub fn refill(self) -> Option<Refill> {
        match self {
            Self::Metered(credits) => credits.refill,
            Self::Unlimited(refill) => refill,
        }
    }

    /// Without an end to its uses.
    pub fn lifted(self, idle: IdleRefill) -> Self {
        match idle {
            IdleRefill::Dropped => Self::Unlimited(None),
            IdleRefill::Kept => Self::Unlimited(self.refill()),
        }
    }

    /// With so many uses left, and its refill.
    pub fn set(self, balance: i64, now: Timestamp) -> Self {
        Self::Metered(match self {
            Self::Metered(credits) => Credits { balance, ..credits },
            Self::Unlimited(refill) => NewCredits { balance, refill }.open(now),
        })
    }

    pub async fn write(self, tx: &mut Tx, key: &KeyId) -> Result<()> {
        tx.set_credits(key, self.credits().as_ref()).await?;
        match self {
            Self::Unlimited(Some(refill)) => tx.keep_refill(key, &refill).await,
            Self::Unlimited(None) | Self::Metered(_) => Ok(()),
        }
    }
}
