//! Keys in the lists of other sections.

use foundation::clock::Timestamp;
use foundation::id::KeyId;
use foundation::model::Key;

use super::format::format_start;

/// A key in one table row.
pub struct KeySummaryRow {
    pub id: KeyId,
    pub name: String,
    pub start: String,
    pub state: &'static str,
    /// Whether the key is enabled and not expired.
    pub is_active: bool,
}

impl KeySummaryRow {
    pub fn new(key: Key, now: Timestamp) -> Self {
        let is_expired = key.expires_at.is_some_and(|expires| expires < now);
        let state = match (key.is_enabled, is_expired) {
            (false, _) => "Disabled",
            (true, true) => "Expired",
            (true, false) => "Active",
        };
        Self {
            name: key.name.unwrap_or_else(|| "Unnamed".into()),
            start: format_start(&key.start, &key.id),
            id: key.id,
            state,
            is_active: key.is_enabled && !is_expired,
        }
    }
}
