//! The rows in the sections of a key's page.

use foundation::clock::Timestamp;
use foundation::model;
use serde_json::Value;

use super::super::super::duration_field;
use super::super::super::format::{TimeLabel, count, latency};
use crate::domain::analytics::recent::Verification;
use crate::domain::keys::details::{self, KeyActivity, KeyDetails};

/// A rate limit and its usage.
pub struct Gauge {
    pub name: String,
    pub told: String,
    pub limit: i64,
    /// The used amount, at most the limit.
    pub used: i64,
    /// The usage from which the meter shows a warning: 80 % of the limit.
    pub high: i64,
    pub is_known: bool,
    pub is_full: bool,
    pub whose: &'static str,
    pub when: &'static str,
    pub resets: Option<TimeLabel>,
}

impl Gauge {
    pub fn new(gauge: &details::LimitUsage, now: Timestamp) -> Self {
        let number = |number: i64| count(number, i64::MAX);
        let (limit, window) = (number(gauge.limit), duration_field::words(gauge.duration_ms));
        let used = gauge.seen.map_or(0, |seen| seen.used);
        let usage = match gauge.seen {
            Some(_) => format!("{} of {limit} used in a window of {window}", number(used)),
            None => format!("{limit} in a window of {window}; usage unavailable"),
        };
        Self {
            name: gauge.name.clone(),
            told: usage,
            limit: gauge.limit,
            used: used.min(gauge.limit),
            high: gauge.limit.saturating_sub(gauge.limit / 5),
            is_known: gauge.seen.is_some(),
            is_full: used >= gauge.limit,
            whose: if gauge.is_shared {
                "Shared by all keys of the identity"
            } else {
                "This key only"
            },
            when: match gauge.auto_apply {
                true => "applied automatically",
                false => "applied on request",
            },
            resets: gauge.seen.map(|seen| TimeLabel::new(seen.reset, now)),
        }
    }
}

/// An activity of the key.
pub struct Done {
    pub at: TimeLabel,
    pub what: String,
    pub who: String,
}

impl Done {
    pub fn new(deed: &KeyActivity, now: Timestamp) -> Self {
        let what = match deed.event.as_str() {
            "key.create" => "Created",
            "key.update" => "Updated",
            "key.delete" => "Deleted",
            "key.reroll" => "Rotated",
            "key.decrypt" => "Decrypted",
            "authorization.connect_role_and_key" => "Role assigned",
            "authorization.disconnect_role_and_key" => "Role removed",
            "authorization.connect_permission_and_key" => "Permission assigned",
            "authorization.disconnect_permission_and_key" => "Permission removed",
            other => other,
        };
        let credits = deed.credits.as_ref().map(credits_words);
        let what = match credits {
            Some(credits) => format!("{what}: {credits}"),
            None => what.to_owned(),
        };
        Self { at: TimeLabel::new(deed.at, now), what, who: deed.who.clone() }
    }
}

/// Formats the change of credits in an audit entry.
fn credits_words(change: &Value) -> String {
    let number = |name: &str| change[name].as_i64().map(|number| count(number, i64::MAX));
    let words = [
        number("set").map(|number| format!("credits set to {number}")),
        number("increment").map(|number| format!("{number} credits added")),
        number("decrement").map(|number| format!("{number} credits removed")),
        (change["unlimited"] == true).then(|| "set to unlimited".to_owned()),
        match &change["refill"] {
            Value::Null if change.get("refill").is_some() => Some("refill removed".to_owned()),
            Value::Null => None,
            refill => refill["amount"]
                .as_i64()
                .map(|amount| format!("refill set to {}", count(amount, i64::MAX))),
        },
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// A role and the number of its permissions.
pub struct Role {
    pub name: String,
    pub permissions: usize,
}

impl Role {
    pub fn new(role: &model::Role) -> Self {
        Self { name: role.name.clone(), permissions: role.permissions.len() }
    }
}

/// A permission and its source.
pub struct Permission {
    pub slug: String,
    pub from: String,
}

impl Permission {
    /// Returns all permissions of the key.
    pub fn all(looked: &KeyDetails) -> Vec<Self> {
        let own = &looked.found.view.stored().permissions;
        let permission = |slug: &String| {
            let is_own = own.iter().any(|permission| permission.slug == *slug);
            let through = looked
                .roles
                .iter()
                .filter(|role| role.permissions.iter().any(|permission| permission.slug == *slug));
            let own = is_own.then(|| "Direct".to_owned());
            let through = through.map(|role| format!("Role {}", role.name));
            let from = own.into_iter().chain(through).collect::<Vec<_>>().join(", ");
            Self { slug: slug.clone(), from }
        };
        looked.found.view.permissions.iter().map(permission).collect()
    }
}

/// A recent verification of the key.
pub struct Event {
    pub at: TimeLabel,
    pub outcome: String,
    pub is_good: bool,
    pub reason: String,
    pub latency: String,
    pub tags: String,
    pub request: String,
}

impl Event {
    pub fn new(event: Verification, now: Timestamp) -> Self {
        Self {
            at: TimeLabel::new(event.at, now),
            is_good: event.outcome == "VALID",
            outcome: event.outcome,
            reason: event.reason.unwrap_or_default(),
            latency: latency(event.latency_us),
            tags: event.tags.join(", "),
            request: event.request,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn credits_words_describes_each_change() {
        assert_eq!(credits_words(&json!({ "set": 1_000 })), "credits set to 1,000");
        assert_eq!(credits_words(&json!({ "increment": 5 })), "5 credits added");
        assert_eq!(credits_words(&json!({ "unlimited": true })), "set to unlimited");
        let both = json!({ "set": 1, "refill": { "interval": "Daily", "amount": 9 } });
        assert_eq!(credits_words(&both), "credits set to 1, refill set to 9");
        let none = json!({ "refill": null });
        assert_eq!(credits_words(&none), "refill removed");
    }
}
