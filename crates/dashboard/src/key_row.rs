//! Keys in the lists of other sections.

use domain::context::Context;
use domain::keys::details::{KeyStatus, list_statuses};
use foundation::error::Result;
use foundation::id::KeyId;
use foundation::model::KeySummary;

use super::format::format_start;
use super::keys::key_title;
use super::status_badge::StatusBadge;

/// A key in one table row.
pub struct KeySummaryRow {
    pub id: KeyId,
    pub name: String,
    pub start: String,
    pub status: StatusBadge,
}

impl KeySummaryRow {
    /// Returns the rows of keys, in their order.
    pub async fn list(context: &Context, keys: Vec<KeySummary>) -> Result<Vec<Self>> {
        let statuses = list_statuses(context, keys.iter()).await?;
        Ok(keys.into_iter().zip(statuses).map(|(key, status)| Self::new(key, status)).collect())
    }

    fn new(key: KeySummary, status: KeyStatus) -> Self {
        Self {
            name: key_title(key.name),
            start: format_start(&key.start, &key.id),
            id: key.id,
            status: status.into(),
        }
    }
}
