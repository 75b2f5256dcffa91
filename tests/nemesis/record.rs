//! What was asked and what was answered: all that the checks go by.

use std::time::Duration;

use serde_json::Value;

use crate::schedule::Fault;

/// A moment: how long after the load began.
pub type At = Duration;
/// A key's place in [`Run::keys`].
pub type KeyNo = usize;

#[derive(Debug, Clone, PartialEq)]
pub struct Act {
    pub replica: usize,
    pub asked: Asked,
    pub sent: At,
    pub received: At,
    /// Absent: the connection broke, or nothing came in 20 seconds.
    pub answer: Option<Answer>,
}

impl Act {
    pub fn took(&self) -> Duration {
        self.received.saturating_sub(self.sent)
    }

    pub fn is_valid(&self) -> bool {
        self.answer.as_ref().is_some_and(Answer::is_valid)
    }

    /// It was answered with this status.
    pub fn has(&self, status: u16) -> bool {
        self.answer.as_ref().is_some_and(|told| told.status == status)
    }

    /// It may have been done although nobody heard so.
    pub fn is_unsure(&self) -> bool {
        self.answer.as_ref().is_none_or(|told| told.status >= 500)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Asked {
    /// `/livez`: how busy the machine is.
    Control,
    Verify {
        key: KeyNo,
        cost: i64,
    },
    /// `ratelimit.limit`, of a counter named so.
    Limit {
        counter: String,
        limit: i64,
        duration_ms: i64,
        cost: i64,
    },
    Credits {
        key: KeyNo,
        change: Change,
    },
    /// The key where it was acknowledged.
    Create {
        key: Option<KeyNo>,
    },
    Rename {
        key: KeyNo,
        name: String,
    },
    Disable {
        key: KeyNo,
    },
    Delete {
        key: KeyNo,
    },
    /// Takes from a key what it verified by.
    Withdraw {
        key: KeyNo,
        what: Withdrawal,
    },
    /// Issues a key that takes the place of one with credits: the new one where it was acknowledged. The old one ends after
    /// a grace period; at once with 0.
    Reroll {
        key: KeyNo,
        grace_ms: i64,
        new: Option<KeyNo>,
    },
    /// An override by which nothing passes at a counter.
    Override {
        counter: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withdrawal {
    /// The permission that it is verified with.
    Permission,
    /// The role that brings that permission is deleted.
    Role,
    /// The identity's limit becomes [`Withdrawal::LIMIT_AFTER`].
    IdentityLimit,
    /// The key is re-rolled, without a grace period.
    Reroll,
}

impl Withdrawal {
    /// The limit of an identity, before and after.
    pub const LIMIT: i64 = 1_000_000;
    pub const LIMIT_AFTER: i64 = 900_000;
}

impl Asked {
    /// The key that somebody may be refused by from now on.
    pub fn ended(&self) -> Option<KeyNo> {
        match self {
            Self::Disable { key }
            | Self::Delete { key }
            | Self::Withdraw { key, .. }
            | Self::Reroll { key, grace_ms: 0, .. } => Some(*key),
            _ => None,
        }
    }

    /// The key whose account is locked to change it.
    pub fn changes_account_of(&self) -> Option<KeyNo> {
        match self {
            Self::Credits { key, .. } | Self::Reroll { key, .. } | Self::Delete { key } => {
                Some(*key)
            }
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Set(i64),
    /// As many as anybody likes.
    Unlimit,
    Increment(i64),
    Decrement(i64),
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Answer {
    pub status: u16,
    pub request_id: String,
    /// Decided without Redis.
    pub degraded: bool,
    /// A verification's code; `VALID` or `RATE_LIMITED` for `ratelimit.limit`.
    pub code: String,
    /// The credits that a verification or a change of them told.
    pub credits: Option<i64>,
    pub limits: Vec<ToldLimit>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ToldLimit {
    pub name: String,
    pub limit: i64,
    pub duration_ms: i64,
    pub remaining: i64,
    pub reset_ms: i64,
    /// Whether it refused.
    pub exceeded: bool,
}

impl Answer {
    pub fn is_valid(&self) -> bool {
        self.status == 200 && self.code == "VALID"
    }

    /// As it stood on the wire.
    pub fn read(status: u16, body: &str, asked: &Asked) -> Self {
        let body: Value = serde_json::from_str(body).unwrap_or(Value::Null);
        let data = &body["data"];
        let number = |value: &Value| value.as_i64().unwrap_or(-1);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let limits = match asked {
            Asked::Limit { counter, duration_ms, .. } if status == 200 => vec![ToldLimit {
                name: counter.clone(),
                limit: number(&data["limit"]),
                duration_ms: *duration_ms,
                remaining: number(&data["remaining"]),
                reset_ms: number(&data["reset"]),
                exceeded: data["success"] == false,
            }],
            _ => data["ratelimits"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|told| ToldLimit {
                    name: text(&told["name"]),
                    limit: number(&told["limit"]),
                    duration_ms: number(&told["duration"]),
                    remaining: number(&told["remaining"]),
                    reset_ms: number(&told["reset"]),
                    exceeded: told["exceeded"] == true,
                })
                .collect(),
        };
        let code = match (asked, &data["success"]) {
            (Asked::Limit { .. }, Value::Bool(true)) => "VALID".to_owned(),
            (Asked::Limit { .. }, Value::Bool(false)) => "RATE_LIMITED".to_owned(),
            _ => text(&data["code"]),
        };
        let credits = match asked {
            Asked::Credits { .. } => &data["remaining"],
            _ => &data["credits"],
        };
        Self {
            status,
            request_id: text(&body["meta"]["requestId"]),
            degraded: body["meta"]["degraded"] == true,
            code,
            credits: credits.as_i64(),
            limits,
        }
    }
}

/// A key of the run.
#[derive(Debug, Clone, Default)]
pub struct KeyFacts {
    pub id: String,
    pub key: String,
    /// What it was given when it was made, or the key was that it takes the place of; absent: unlimited.
    pub credits: Option<i64>,
    /// What each day brings.
    pub refill: Option<i64>,
    /// Name, limit and duration in milliseconds of its limits.
    pub limits: Vec<(String, i64, i64)>,
    /// The permission that verifications ask for, and the role that brings it.
    pub permission: Option<String>,
    pub role: Option<String>,
    /// The identity that it belongs to, which has limits.
    pub identity: Option<String>,
}

impl KeyFacts {
    /// Whether nothing of it is counted.
    pub fn is_plain(&self) -> bool {
        self.credits.is_none() && self.limits.is_empty() && self.identity.is_none()
    }
}

/// A fault as it came about.
#[derive(Debug, Clone, Copy)]
pub struct Done {
    pub fault: Fault,
    pub began: At,
    pub ended: At,
}

/// The time for which a transaction beside the replicas locked a key's account.
#[derive(Debug, Clone, Copy)]
pub struct AccountLock {
    pub key: KeyNo,
    pub began: At,
    pub ended: At,
}

/// What there is of a key when all is over and quiet.
#[derive(Debug, Clone, Default)]
pub struct Ending {
    pub key: KeyNo,
    /// The status of `keys.getKey`, and what it told.
    pub status: u16,
    pub name: Option<String>,
    pub enabled: bool,
    pub credits: Option<i64>,
    /// What the ledger held back.
    pub withheld: i64,
    /// The sum of its entries that are less than nothing.
    pub below_zero: i64,
    /// The credits after `keyward credits release --all`: what `keys.getKey` told, and what a spend did.
    pub told: Option<i64>,
    pub released: Option<i64>,
    /// What could still be spent then, of keys that were emptied.
    pub drained: Option<i64>,
    /// The events in the audit log of which it is the target, oldest first.
    pub audit: Vec<String>,
}

/// A whole run.
#[derive(Debug, Clone, Default)]
pub struct Run {
    /// The machine's clock when the load began, in unix milliseconds.
    pub began_unix_ms: i64,
    /// How many days the database was made to believe have passed meanwhile.
    pub days: i64,
    /// The replica whose clock is wrong.
    pub skewed: Option<usize>,
    /// How long cached keys verify without Postgres; absent: for the whole run.
    pub database_grace: Option<Duration>,
    pub acts: Vec<Act>,
    pub faults: Vec<Done>,
    pub locks: Vec<AccountLock>,
    pub keys: Vec<KeyFacts>,
    pub endings: Vec<Ending>,
}

impl Run {
    pub fn unix_ms(&self, at: At) -> i64 {
        self.began_unix_ms + i64::try_from(at.as_millis()).unwrap_or(i64::MAX)
    }

    /// The acts in the order in which they were sent.
    pub fn sort(&mut self) {
        self.acts.sort_by_key(|act| act.sent);
    }

    /// Whether a fault of this sort stood, or had ended no longer than `after` ago, at some moment of this time.
    pub fn is_troubled(
        &self,
        from: At,
        to: At,
        after: Duration,
        sort: impl Fn(&Done) -> bool,
    ) -> bool {
        self.faults.iter().any(|done| sort(done) && done.began <= to && from <= done.ended + after)
    }
}
