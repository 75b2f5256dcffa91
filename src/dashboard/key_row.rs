//! A key, as lists of other sections show it.

use foundation::clock::Timestamp;
use foundation::id::KeyId;
use foundation::model::Key;

/// A key in one line.
pub struct KeyRow {
    pub id: KeyId,
    pub name: String,
    pub start: String,
    pub state: &'static str,
    /// Whether verification would not refuse it by its state alone.
    pub is_good: bool,
}

impl KeyRow {
    pub fn new(key: Key, now: Timestamp) -> Self {
        let is_expired = key.expires_at.is_some_and(|expires| expires < now);
        let state = match (key.enabled, is_expired) {
            (false, _) => "disabled",
            (true, true) => "expired",
            (true, false) => "enabled",
        };
        Self {
            id: key.id,
            name: key.name.unwrap_or_else(|| "without a name".into()),
            start: key.start,
            state,
            is_good: key.enabled && !is_expired,
        }
    }
}
