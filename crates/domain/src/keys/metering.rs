//! Whether a key is metered after a change, and what happens to its refill if it is not.

use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::KeyId;
use foundation::model::{Credits, Refill};
use store::Tx;

use super::NewCredits;
use crate::refill;

/// What happens to the refill of an unlimited key.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum IdleRefill {
    #[default]
    Drop,
    /// It is stored, and applies again when the key is metered again.
    Keep,
}

/// The credits of a key and its refill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metering {
    Metered(Credits),
    /// With the stored refill.
    Unlimited(Option<Refill>),
}

impl Metering {
    /// Returns the state at `now`: refilled if a period has started since.
    pub fn from_account(
        account: Option<Credits>,
        idle_refill: Option<Refill>,
        now: Timestamp,
    ) -> Self {
        match account {
            Some(credits) => Self::Metered(refill::apply_refill(credits, now)),
            None => Self::Unlimited(idle_refill),
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

    /// Returns the state with unlimited credits.
    pub fn to_unlimited(self, idle: IdleRefill) -> Self {
        match idle {
            IdleRefill::Drop => Self::Unlimited(None),
            IdleRefill::Keep => Self::Unlimited(self.refill()),
        }
    }

    /// Returns the state with this balance and the same refill.
    pub fn with_balance(self, balance: i64, now: Timestamp) -> Self {
        Self::Metered(match self {
            Self::Metered(credits) => Credits { balance, ..credits },
            Self::Unlimited(refill) => NewCredits { balance, refill }.to_credits(now),
        })
    }

    pub async fn write(self, tx: &mut Tx, key: &KeyId) -> Result<()> {
        tx.set_credits(key, self.credits().as_ref()).await?;
        match self {
            Self::Unlimited(Some(refill)) => tx.set_refill(key, &refill).await,
            Self::Unlimited(None) | Self::Metered(_) => Ok(()),
        }
    }
}
