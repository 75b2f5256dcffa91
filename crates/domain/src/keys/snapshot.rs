//! The state of a key in audit entries: the fields that can be changed, and how to restore them.

use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::model::{Key, Meta, Ratelimit, Refill, RefillInterval};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::metering::{IdleRefill, Metering};
use super::{CreditsChange, KeyChange, NewRatelimit, Patch, RatelimitsChange};
use crate::audit::{SnapshotFields, parse_field};

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeySnapshot {
    name: Option<String>,
    external_id: Option<String>,
    meta: Option<Meta>,
    expires: Option<Timestamp>,
    enabled: bool,
    ratelimits: Vec<NewRatelimit>,
    #[serde(flatten)]
    credits: Option<CreditsSnapshot>,
    #[serde(flatten)]
    assignments: Option<AssignmentsSnapshot>,
}

/// The names of the roles and direct permissions of a key. Omitted where each of them has an entry of its own.
#[derive(Debug, Clone, Serialize)]
pub struct AssignmentsSnapshot {
    pub roles: Vec<String>,
    pub permissions: Vec<String>,
}

/// Credits and their refill. Omitted if a change does not affect them, because they change with every use.
#[derive(Debug, Clone, Serialize)]
pub struct CreditsSnapshot {
    /// Absent: unlimited.
    credits: Option<i64>,
    refill: Option<RefillSnapshot>,
}

/// The refill, in the form of the API.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct RefillSnapshot {
    interval: RefillSnapshotInterval,
    amount: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    day: Option<u8>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RefillSnapshotInterval {
    Daily,
    Monthly,
}

impl From<Refill> for RefillSnapshot {
    fn from(refill: Refill) -> Self {
        let (interval, day) = match refill.interval {
            RefillInterval::Daily => (RefillSnapshotInterval::Daily, None),
            RefillInterval::Monthly { day } => (RefillSnapshotInterval::Monthly, Some(day)),
        };
        Self { interval, amount: refill.amount, day }
    }
}

impl From<RefillSnapshot> for Refill {
    fn from(state: RefillSnapshot) -> Self {
        let interval = match state.interval {
            RefillSnapshotInterval::Daily => RefillInterval::Daily,
            RefillSnapshotInterval::Monthly => {
                RefillInterval::Monthly { day: state.day.unwrap_or(1) }
            }
        };
        Self { interval, amount: state.amount }
    }
}

impl From<Metering> for CreditsSnapshot {
    fn from(metering: Metering) -> Self {
        let credits = metering.credits().map(|credits| credits.balance);
        Self { credits, refill: metering.refill().map(Into::into) }
    }
}

impl KeySnapshot {
    /// Creates a snapshot without credits and assignments.
    pub fn from_key(key: &Key, limits: &[Ratelimit]) -> Self {
        Self {
            name: key.name.clone(),
            external_id: key.owner_id.clone(),
            meta: key.meta.clone(),
            expires: key.expires_at,
            enabled: key.is_enabled,
            ratelimits: limits_snapshot(limits),
            credits: None,
            assignments: None,
        }
    }

    pub fn with_credits(self, metering: Metering) -> Self {
        Self { credits: Some(metering.into()), ..self }
    }

    pub fn with_assignments(self, assignments: AssignmentsSnapshot) -> Self {
        Self { assignments: Some(assignments), ..self }
    }
}

/// Returns limits in the form of the audit log, sorted by name.
pub fn limits_snapshot(limits: &[Ratelimit]) -> Vec<NewRatelimit> {
    let limit = |limit: &Ratelimit| NewRatelimit {
        name: limit.name.clone(),
        limit: limit.limit,
        duration_ms: limit.duration_ms,
        auto_apply: limit.auto_apply,
        is_async: limit.is_approximate,
    };
    let mut limits: Vec<_> = limits.iter().map(limit).collect();
    limits.sort_by(|a, b| a.name.cmp(&b.name));
    limits
}

/// Returns the change that restores these fields. Fields that cannot be changed are ignored.
pub fn change_from_snapshot(fields: &SnapshotFields) -> Result<KeyChange> {
    let mut change = KeyChange::default();
    let unchanged = || CreditsChange { idle_refill: IdleRefill::Keep, ..CreditsChange::default() };
    let mut credits = unchanged();
    for (name, value) in fields {
        match name.as_str() {
            "name" => change.name = parse_patch(value)?,
            "externalId" => change.external_id = parse_patch(value)?,
            "meta" => change.meta = parse_patch::<Box<RawValue>>(value)?.map(Meta),
            "expires" => change.expires_at = parse_patch(value)?.map(Timestamp),
            "enabled" => change.enabled = Some(parse_field(value)?),
            "ratelimits" => change.ratelimits = RatelimitsChange::All(parse_field(value)?),
            "credits" => credits.remaining = parse_patch(value)?,
            "refill" => credits.refill = parse_patch::<RefillSnapshot>(value)?.map(Into::into),
            _ => {}
        }
    }
    if credits != unchanged() {
        change.credits = Patch::Set(credits);
    }
    Ok(change)
}

fn parse_patch<T: serde::de::DeserializeOwned>(value: &RawValue) -> Result<Patch<T>> {
    Ok(parse_field::<Option<T>>(value)?.map_or(Patch::Clear, Patch::Set))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::parse_fields;

    #[test]
    fn change_from_snapshot_restores_every_recorded_field() {
        let recorded = r#"{"name":null,"meta":{"n":1.50},"expires":5,"enabled":false,
            "ratelimits":[{"name":"a","limit":1,"duration":2,"autoApply":true,"async":false}],
            "credits":null,"refill":{"interval":"monthly","amount":9,"day":31}}"#;

        let change =
            change_from_snapshot(&parse_fields(recorded).expect("an object")).expect("a change");

        assert_eq!(change.name, Patch::Clear);
        assert_eq!(change.external_id, Patch::Keep);
        assert!(matches!(change.meta, Patch::Set(meta) if meta.as_str() == r#"{"n":1.50}"#));
        assert_eq!((change.expires_at, change.enabled), (Patch::Set(Timestamp(5)), Some(false)));
        let refill = Refill { interval: RefillInterval::Monthly { day: 31 }, amount: 9 };
        let credits = CreditsChange {
            remaining: Patch::Clear,
            refill: Patch::Set(refill),
            idle_refill: IdleRefill::Keep,
        };
        assert_eq!(change.credits, Patch::Set(credits));
        let RatelimitsChange::All(limits) = change.ratelimits else { panic!("all limits") };
        assert_eq!((limits[0].limit, limits[0].duration_ms, limits[0].auto_apply), (1, 2, true));
    }

    #[test]
    fn change_from_snapshot_keeps_credits_when_none_were_recorded() {
        let change = change_from_snapshot(&parse_fields(r#"{"enabled":true}"#).expect("an object"))
            .expect("a change");

        assert_eq!((change.enabled, change.credits), (Some(true), Patch::Keep));
    }
}
