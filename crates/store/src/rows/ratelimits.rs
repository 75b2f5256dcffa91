//! Defines rows of limits, rate-limit namespaces and overrides.

use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::id::{NamespaceId, OverrideId, RatelimitId, WorkspaceId};
use foundation::model::{Namespace, Override, Overrides, Ratelimit};
use serde::{Deserialize, Deserializer};
use sqlx_macros::FromRow;

use super::super::StoredNamespace;
use super::{parse_home, parse_json};

#[derive(Deserialize)]
struct RatelimitRow {
    id: String,
    name: String,
    limit: i64,
    duration_ms: i64,
    #[serde(deserialize_with = "deserialize_bool")]
    auto_apply: bool,
    #[serde(deserialize_with = "deserialize_bool")]
    is_async: bool,
}

/// Deserializes a boolean from a word or a number, because SQLite has no booleans, not even in JSON.
fn deserialize_bool<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<bool, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Flag {
        Word(bool),
        Number(i64),
    }

    Flag::deserialize(deserializer).map(|flag| match flag {
        Flag::Word(word) => word,
        Flag::Number(number) => number != 0,
    })
}

/// Parses a list of limits and sorts it by name.
pub fn parse_ratelimits(list: &str) -> Result<Vec<Ratelimit>> {
    let mut limits: Vec<_> = parse_json::<Vec<RatelimitRow>>(list)?
        .into_iter()
        .map(|row| Ratelimit {
            id: RatelimitId::from(row.id),
            name: row.name,
            limit: row.limit,
            duration_ms: row.duration_ms,
            auto_apply: row.auto_apply,
            is_approximate: row.is_async,
        })
        .collect();
    limits.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(limits)
}

#[derive(FromRow)]
pub struct NamespaceRow {
    id: NamespaceId,
    workspace_id: WorkspaceId,
    name: String,
    on_outage: String,
    home: Option<String>,
    created_at: Timestamp,
    deleted_at: Option<Timestamp>,
}

impl TryFrom<NamespaceRow> for Namespace {
    type Error = Error;

    fn try_from(row: NamespaceRow) -> Result<Self> {
        let on_outage = row.on_outage.parse();
        Ok(Self {
            outage_policy: on_outage
                .map_err(|e| Error::Internal(format!("stored on_outage {e}")))?,
            id: row.id,
            workspace_id: row.workspace_id,
            name: row.name,
            home: parse_home(row.home.as_deref())?,
            created_at: row.created_at,
            deleted_at: row.deleted_at,
        })
    }
}

#[derive(FromRow)]
pub struct StoredNamespaceRow {
    #[sqlx(flatten)]
    namespace: NamespaceRow,
    overrides: String,
}

impl TryFrom<StoredNamespaceRow> for StoredNamespace {
    type Error = Error;

    fn try_from(row: StoredNamespaceRow) -> Result<Self> {
        let overrides = parse_json::<Vec<OverrideRow>>(&row.overrides)?;
        let overrides = overrides.into_iter().map(Override::from).collect();
        Ok(Self { namespace: row.namespace.try_into()?, overrides: Overrides::new(overrides) })
    }
}

#[derive(FromRow, Deserialize)]
pub struct OverrideRow {
    id: String,
    identifier: String,
    limit: i64,
    duration_ms: i64,
    expires_at: Option<i64>,
    #[serde(deserialize_with = "deserialize_bool")]
    is_async: bool,
    created_at: i64,
    updated_at: Option<i64>,
}

impl From<OverrideRow> for Override {
    fn from(row: OverrideRow) -> Self {
        Self {
            id: OverrideId::from(row.id),
            identifier: row.identifier,
            limit: row.limit,
            duration_ms: row.duration_ms,
            expires_at: row.expires_at.map(Timestamp),
            is_approximate: row.is_async,
            created_at: Timestamp(row.created_at),
            updated_at: row.updated_at.map(Timestamp),
        }
    }
}
