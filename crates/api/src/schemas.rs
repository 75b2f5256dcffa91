//! Schema types that operations of both versions share.

use domain::bounds::{DURATION_MIN_MS, KEY_BYTES_MAX, KEY_BYTES_MIN, REFILL_DAY_MAX};
use domain::keys::IssuedKey;
use foundation::id::{KeyId, PermissionId};
use foundation::model;
use foundation::secret::Plaintext;

use crate::bounds::Int;
use crate::prelude::*;

pub type PositiveInt = Int<1, { i64::MAX }>;
pub type UnsignedInt = Int<0, { i64::MAX }>;
/// The number of random bytes in a key.
pub type ByteLength = Int<KEY_BYTES_MIN, KEY_BYTES_MAX>;
/// The day of the month of a refill.
pub type RefillDay = Int<1, REFILL_DAY_MAX>;
/// A rate limit window in milliseconds.
pub type WindowLength = Int<DURATION_MIN_MS, { i64::MAX }>;

/// Converts a list of bounded texts to strings.
pub fn into_strings<
    const MIN: usize,
    const MAX: usize,
    A,
    const LEAST: usize,
    const MOST: usize,
>(
    list: List<Text<MIN, MAX, A>, LEAST, MOST>,
) -> Vec<String> {
    list.0.into_iter().map(Text::into_string).collect()
}

/// The refill interval: at 00:00 UTC, every day or once a month.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Interval {
    Daily,
    Monthly,
}

/// The new key.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IssuedReply {
    key_id: KeyId,
    /// The key itself. It is returned only once.
    key: Plaintext,
}

impl From<IssuedKey> for IssuedReply {
    fn from(issued: IssuedKey) -> Self {
        Self { key_id: issued.id, key: issued.plaintext }
    }
}

/// An empty object.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Empty {}

/// Returns the meta object, or `None` if it is empty: empty objects are omitted from replies.
pub fn non_empty_meta(meta: Option<&Meta>) -> Option<Meta> {
    meta.filter(|meta| !meta.is_empty()).cloned()
}

/// A permission that keys and roles can have.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct PermissionReply {
    id: PermissionId,
    name: String,
    slug: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
}

impl From<model::Permission> for PermissionReply {
    fn from(permission: model::Permission) -> Self {
        let model::Permission { id, slug, name, description } = permission;
        Self { id, name, slug, description }
    }
}
