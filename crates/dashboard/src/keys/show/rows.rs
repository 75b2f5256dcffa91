//! The rows in the sections of a key's page.

use domain::analytics_access::RecentVerification;
use domain::keys::VerificationCode;
use domain::keys::details::{self, KeyActivity, KeyDetails};
use foundation::clock::Timestamp;
use foundation::id::RoleId;
use foundation::model;
use serde_json::Value;

use super::super::super::audit::{actor_label, event_label};
use super::super::super::format::{
    TimeLabel, format_count, format_duration, format_latency, format_quantity, outcome_label,
};

/// A rate limit and its usage.
pub struct LimitGauge {
    pub name: String,
    pub usage: String,
    pub limit: i64,
    /// The used amount, at most the limit.
    pub used: i64,
    /// The usage from which the meter shows a warning: 80 % of the limit.
    pub warning_from: i64,
    pub has_usage: bool,
    pub is_full: bool,
    pub owner_label: &'static str,
    pub apply_label: &'static str,
    pub resets: Option<TimeLabel>,
}

impl LimitGauge {
    pub fn new(gauge: &details::LimitUsage, now: Timestamp) -> Self {
        let number = |number: i64| format_count(number, i64::MAX);
        let (limit, window) = (number(gauge.limit), format_duration(gauge.duration_ms));
        let used = gauge.usage.map_or(0, |seen| seen.used);
        let usage = match gauge.usage {
            Some(_) => format!("{} of {limit} used in a window of {window}", number(used)),
            None => format!("{limit} in a window of {window}; usage unavailable"),
        };
        Self {
            name: gauge.name.clone(),
            usage,
            limit: gauge.limit,
            used: used.min(gauge.limit),
            warning_from: gauge.limit.saturating_sub(gauge.limit / 5),
            has_usage: gauge.usage.is_some(),
            is_full: used >= gauge.limit,
            owner_label: if gauge.is_shared {
                "Shared by all keys of the identity"
            } else {
                "This key only"
            },
            apply_label: match gauge.auto_apply {
                true => "applied automatically",
                false => "applied on request",
            },
            resets: gauge.usage.map(|seen| TimeLabel::new(seen.reset_at, now)),
        }
    }
}

/// An activity of the key.
pub struct ActivityRow {
    /// The id of its audit entry.
    pub id: String,
    pub at: TimeLabel,
    pub description: String,
    pub actor: String,
}

impl ActivityRow {
    pub fn new(activity: &KeyActivity, now: Timestamp) -> Self {
        let entry = &activity.entry;
        let what = event_label(&entry.event);
        let credits = activity.credits.as_ref().map(format_credits_change);
        let what = match credits {
            Some(credits) => format!("{what}: {credits}"),
            None => what.to_owned(),
        };
        Self {
            id: entry.id.clone(),
            at: TimeLabel::new(entry.at, now),
            description: what,
            actor: actor_label(entry),
        }
    }
}

/// Formats the change of credits in an audit entry.
fn format_credits_change(change: &Value) -> String {
    let number = |name: &str| change[name].as_i64().map(|number| format_count(number, i64::MAX));
    let credits = |name: &str| {
        let number = change[name].as_i64();
        number.map(|number| format_quantity(number, i64::MAX, "credit"))
    };
    let words = [
        number("set").map(|number| format!("credits set to {number}")),
        credits("increment").map(|credits| format!("{credits} added")),
        credits("decrement").map(|credits| format!("{credits} removed")),
        (change["unlimited"] == true).then(|| "set to unlimited".to_owned()),
        match &change["refill"] {
            Value::Null if change.get("refill").is_some() => Some("refill removed".to_owned()),
            Value::Null => None,
            refill => refill["amount"]
                .as_i64()
                .map(|amount| format!("refill set to {}", format_count(amount, i64::MAX))),
        },
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// A role and the number of its permissions.
pub struct Role {
    pub id: RoleId,
    pub name: String,
    pub permissions: String,
}

impl Role {
    pub fn new(role: &model::Role) -> Self {
        let number = i64::try_from(role.permissions.len()).unwrap_or(i64::MAX);
        let permissions = format_quantity(number, i64::MAX, "permission");
        Self { id: role.id.clone(), name: role.name.clone(), permissions }
    }
}

/// A permission and its source.
pub struct PermissionSource {
    pub slug: String,
    pub source: String,
}

impl PermissionSource {
    /// Returns all permissions of the key.
    pub fn list_for_key(key_details: &KeyDetails) -> Vec<Self> {
        let own = &key_details.found_key.stored.permissions;
        let permission = |slug: &String| {
            let is_own = own.iter().any(|permission| permission.slug == *slug);
            let through = key_details
                .roles
                .iter()
                .filter(|role| role.permissions.iter().any(|permission| permission.slug == *slug));
            let own = is_own.then(|| "Direct".to_owned());
            let through = through.map(|role| format!("Role {}", role.name));
            let from = own.into_iter().chain(through).collect::<Vec<_>>().join(", ");
            Self { slug: slug.clone(), source: from }
        };
        key_details.found_key.resolved.permissions().iter().map(permission).collect()
    }
}

/// A recent verification of the key.
pub struct VerificationEventRow {
    pub at: TimeLabel,
    pub outcome: String,
    pub is_valid: bool,
    pub reason: String,
    pub latency: String,
    pub tags: String,
    pub request: String,
}

impl VerificationEventRow {
    pub fn new(event: RecentVerification, now: Timestamp) -> Self {
        Self {
            at: TimeLabel::new(event.occurred_at, now),
            is_valid: event.outcome == VerificationCode::Valid.as_str(),
            outcome: outcome_label(event.outcome),
            reason: event.reason.unwrap_or_default(),
            latency: format_latency(event.latency_us),
            tags: event.tags.join(", "),
            request: event.request_id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn format_credits_change_describes_each_change() {
        assert_eq!(format_credits_change(&json!({ "set": 1_000 })), "credits set to 1,000");
        assert_eq!(format_credits_change(&json!({ "increment": 5 })), "5 credits added");
        assert_eq!(format_credits_change(&json!({ "increment": 1 })), "1 credit added");
        assert_eq!(format_credits_change(&json!({ "decrement": 1 })), "1 credit removed");
        assert_eq!(format_credits_change(&json!({ "unlimited": true })), "set to unlimited");
        let both = json!({ "set": 1, "refill": { "interval": "Daily", "amount": 9 } });
        assert_eq!(format_credits_change(&both), "credits set to 1, refill set to 9");
        let none = json!({ "refill": null });
        assert_eq!(format_credits_change(&none), "refill removed");
    }
}
