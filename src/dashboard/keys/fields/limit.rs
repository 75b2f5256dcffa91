//! The rows of the form that are rate limits.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::number;
use crate::model::Ratelimit;

const SECOND_MS: i64 = 1_000;
const MINUTE_MS: i64 = 60 * SECOND_MS;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;

/// In what windows are told.
pub const UNITS: [(&str, i64, &str); 5] = [
    ("ms", 1, "milliseconds"),
    ("s", SECOND_MS, "seconds"),
    ("min", MINUTE_MS, "minutes"),
    ("h", HOUR_MS, "hours"),
    ("d", DAY_MS, "days"),
];
/// How many limits the form has room for.
pub const LIMITS_MAX: usize = 50;

/// A rate limit, as it is filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitRow {
    pub name: String,
    pub limit: String,
    pub window: String,
    pub unit: String,
    pub is_auto: bool,
}

impl Default for LimitRow {
    fn default() -> Self {
        let (name, limit) = (String::new(), String::new());
        Self { name, limit, window: "1".into(), unit: "min".into(), is_auto: true }
    }
}

impl LimitRow {
    pub fn of(limit: &Ratelimit) -> Self {
        let whole = UNITS.iter().rev().find(|(_, ms, _)| limit.duration_ms % ms == 0);
        let (unit, ms, _) = whole.unwrap_or(&UNITS[0]);
        Self {
            name: limit.name.clone(),
            limit: limit.limit.to_string(),
            window: (limit.duration_ms / ms).to_string(),
            unit: (*unit).to_owned(),
            is_auto: limit.auto_apply,
        }
    }

    /// Whether it has been left as it was, and asks for nothing.
    pub fn is_empty(&self) -> bool {
        self.name.is_empty() && self.limit.is_empty()
    }

    pub fn asked(&self) -> Value {
        let unit_ms = UNITS.iter().find(|(unit, ..)| *unit == self.unit).map_or(1, |unit| unit.1);
        let duration = match self.window.parse::<i64>() {
            Ok(window) => json!(window.saturating_mul(unit_ms)),
            Err(_) => json!(self.window),
        };
        json!({
            "name": self.name, "limit": number(&self.limit), "duration": duration,
            "autoApply": self.is_auto,
        })
    }
}
