//! The record of requests and replies: the only input of the checks.

use std::time::Duration;

use serde_json::Value;

use crate::schedule::Fault;

/// A moment: the time since the load started.
pub type LoadTime = Duration;
/// An index of [`Run::keys`].
pub type KeyIndex = usize;

#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    pub replica: usize,
    pub action: Action,
    pub sent: LoadTime,
    pub received: LoadTime,
    /// `None` if the connection broke or no reply came within 20 seconds.
    pub answer: Option<Answer>,
}

impl Call {
    pub fn took(&self) -> Duration {
        self.received.saturating_sub(self.sent)
    }

    pub fn is_valid(&self) -> bool {
        self.answer.as_ref().is_some_and(Answer::is_valid)
    }

    /// Whether the reply has this status.
    pub fn has_status(&self, status: u16) -> bool {
        self.answer.as_ref().is_some_and(|answer| answer.status == status)
    }

    /// Whether it may have been executed although no reply confirmed it.
    pub fn is_uncertain(&self) -> bool {
        self.answer.as_ref().is_none_or(|answer| answer.status >= 500)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// `/livez`: shows how busy the machine is.
    Control,
    Verify {
        key: KeyIndex,
        cost: i64,
    },
    /// `ratelimit.limit` for this counter.
    Limit {
        counter: String,
        limit: i64,
        duration_ms: i64,
        cost: i64,
    },
    Credits {
        key: KeyIndex,
        change: Change,
    },
    /// The key if it was acknowledged.
    Create {
        key: Option<KeyIndex>,
    },
    Rename {
        key: KeyIndex,
        name: String,
    },
    /// Changes the first limit of a key.
    SetLimit {
        key: KeyIndex,
        limit: i64,
    },
    Disable {
        key: KeyIndex,
    },
    Delete {
        key: KeyIndex,
    },
    /// Withdraws from a key what it needs to verify.
    Withdraw {
        key: KeyIndex,
        what: Withdrawal,
    },
    /// Issues a key that replaces one with credits: `new` if it was acknowledged. The old one expires after a grace
    /// period; at once with 0.
    Reroll {
        key: KeyIndex,
        grace_ms: i64,
        new: Option<KeyIndex>,
    },
    /// Sets an override that blocks a counter.
    Override {
        counter: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withdrawal {
    /// The permission that the key is verified with.
    Permission,
    /// The role with that permission is deleted.
    Role,
    /// The identity's limit becomes [`Withdrawal::LIMIT_AFTER`].
    IdentityLimit,
    /// The key is re-rolled without a grace period.
    Reroll,
}

impl Withdrawal {
    /// The limit of an identity, before and after.
    pub const LIMIT: i64 = 1_000_000;
    pub const LIMIT_AFTER: i64 = 900_000;
}

impl Action {
    /// Returns the key that may be rejected from now on.
    pub fn revoked_key(&self) -> Option<KeyIndex> {
        match self {
            Self::Disable { key }
            | Self::Delete { key }
            | Self::Withdraw { key, .. }
            | Self::Reroll { key, grace_ms: 0, .. } => Some(*key),
            _ => None,
        }
    }

    /// Returns the key whose account is locked for the change.
    pub fn changes_account_of(&self) -> Option<KeyIndex> {
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
    /// Unlimited.
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
    /// The credits in the reply to a verification or a change of credits.
    pub credits: Option<i64>,
    pub limits: Vec<LimitStatus>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct LimitStatus {
    pub name: String,
    pub limit: i64,
    pub duration_ms: i64,
    pub remaining: i64,
    pub reset_ms: i64,
    /// Whether this limit rejected the request.
    pub exceeded: bool,
}

impl Answer {
    pub fn is_valid(&self) -> bool {
        self.status == 200 && self.code == "VALID"
    }

    /// Parses a reply.
    pub fn parse(status: u16, body: &str, action: &Action) -> Self {
        let body: Value = serde_json::from_str(body).unwrap_or(Value::Null);
        let data = &body["data"];
        let number = |value: &Value| value.as_i64().unwrap_or(-1);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let limits = match action {
            Action::Limit { counter, duration_ms, .. } if status == 200 => vec![LimitStatus {
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
                .map(|answer| LimitStatus {
                    name: text(&answer["name"]),
                    limit: number(&answer["limit"]),
                    duration_ms: number(&answer["duration"]),
                    remaining: number(&answer["remaining"]),
                    reset_ms: number(&answer["reset"]),
                    exceeded: answer["exceeded"] == true,
                })
                .collect(),
        };
        let code = match (action, &data["success"]) {
            (Action::Limit { .. }, Value::Bool(true)) => "VALID".to_owned(),
            (Action::Limit { .. }, Value::Bool(false)) => "RATE_LIMITED".to_owned(),
            _ => text(&data["code"]),
        };
        let credits = match action {
            Action::Credits { .. } => &data["remaining"],
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
pub struct KeyInfo {
    pub id: String,
    pub key: String,
    /// The credits with which the key was created, or the key that it replaces. `None` if unlimited.
    pub credits: Option<i64>,
    /// The daily refill.
    pub refill: Option<i64>,
    /// Name, limit and duration in milliseconds of its limits.
    pub limits: Vec<(String, i64, i64)>,
    /// The permission that verifications require, and the role that grants it.
    pub permission: Option<String>,
    pub role: Option<String>,
    /// The identity that it belongs to, which has limits.
    pub identity: Option<String>,
}

impl KeyInfo {
    /// Whether the key has no counters.
    pub fn is_plain(&self) -> bool {
        self.credits.is_none() && self.limits.is_empty() && self.identity.is_none()
    }
}

/// A fault as it was injected.
#[derive(Debug, Clone, Copy)]
pub struct InjectedFault {
    pub fault: Fault,
    pub began: LoadTime,
    pub ended: LoadTime,
}

/// The time for which a transaction of the test locked a key's account.
#[derive(Debug, Clone, Copy)]
pub struct AccountLock {
    pub key: KeyIndex,
    pub began: LoadTime,
    pub ended: LoadTime,
}

/// The state of a key when the run is over and no calls are in flight.
#[derive(Debug, Clone, Default)]
pub struct KeyFinalState {
    pub key: KeyIndex,
    /// The status of `keys.getKey`, and its fields.
    pub status: u16,
    pub name: Option<String>,
    pub enabled: bool,
    pub credits: Option<i64>,
    /// The withheld credits.
    pub withheld: i64,
    /// The sum of negative withheld credits.
    pub below_zero: i64,
    /// The credits after `keyward credits release --all`: from `keys.getKey`, and from a spend.
    pub credits_reported: Option<i64>,
    pub credits_released: Option<i64>,
    /// The number of credits that could be spent then, for keys that were spent completely.
    pub drained: Option<i64>,
    /// The events in the audit log whose target is the key, oldest first.
    pub audit: Vec<String>,
}

/// The time for which Redis did not reply to a replica within its usual time.
#[derive(Debug, Clone, Copy)]
pub struct Stall {
    pub replica: usize,
    pub began: LoadTime,
    pub ended: LoadTime,
}

/// A whole run.
#[derive(Debug, Clone, Default)]
pub struct Run {
    /// The machine's clock when the load started, in unix milliseconds.
    pub began_unix_ms: i64,
    /// The region of each replica; empty if there is one region.
    pub region_of: Vec<usize>,
    /// How many days the database was made to believe have passed during the run.
    pub days: i64,
    /// The replica whose clock is wrong.
    pub skewed: Option<usize>,
    /// How long cached keys verify without Postgres. `None` means for the whole run.
    pub database_grace: Option<Duration>,
    pub calls: Vec<Call>,
    pub faults: Vec<InjectedFault>,
    /// The stalls of Redis, including those that faults cause.
    pub stalls: Vec<Stall>,
    pub locks: Vec<AccountLock>,
    pub keys: Vec<KeyInfo>,
    pub final_states: Vec<KeyFinalState>,
}

impl Run {
    pub fn unix_ms(&self, at: LoadTime) -> i64 {
        self.began_unix_ms + i64::try_from(at.as_millis()).unwrap_or(i64::MAX)
    }

    /// Returns the number of regions.
    pub fn regions(&self) -> usize {
        self.region_of.iter().max().map_or(1, |last| last + 1)
    }

    /// Sorts the calls by the time at which they were sent.
    pub fn sort(&mut self) {
        self.calls.sort_by_key(|call| call.sent);
    }

    /// Whether a fault that matches was active, or had ended at most `after` ago, at some moment of this time.
    pub fn has_fault(
        &self,
        from: LoadTime,
        to: LoadTime,
        after: Duration,
        sort: impl Fn(&InjectedFault) -> bool,
    ) -> bool {
        self.faults.iter().any(|injected| {
            sort(injected) && injected.began <= to && from <= injected.ended + after
        })
    }
}
