//! Schema types of operations on identities.

use domain::bounds::RATELIMITS_MAX;
use domain::identities::IdentityRef;
use domain::keys::NewRatelimit;
use foundation::error::{Error, Result};
use foundation::id::IdentityId;
use foundation::model;

use crate::prelude::*;
use crate::schemas::{PositiveInt, WindowLength};
use crate::v1::schemas::{IdOrName, meta_or_empty};

/// A rate limit that all keys of an identity share.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SharedRatelimit {
    pub name: Text<0, 128, Printable>,
    pub limit: PositiveInt,
    /// The window length in milliseconds.
    pub duration: WindowLength,
}

pub type SharedRatelimits = List<Object<SharedRatelimit>, 0, RATELIMITS_MAX>;

/// Converts requested limits to new limits. A verification checks them when its request names them.
pub fn to_new_limits(limits: SharedRatelimits) -> Result<Vec<NewRatelimit>> {
    let mut new_limits: Vec<NewRatelimit> = Vec::with_capacity(limits.0.len());
    for Object(limit) in limits.0 {
        let name = limit.name.into_string();
        if new_limits.iter().any(|limit| limit.name == name) {
            return Err(Error::DuplicateRatelimit(name));
        }
        new_limits.push(NewRatelimit {
            name,
            limit: limit.limit.0,
            duration_ms: limit.duration.0,
            auto_apply: false,
            is_async: false,
        });
    }
    Ok(new_limits)
}

/// The maximum length of an identity's meta in characters of its JSON text.
const IDENTITY_META_CHARS_MAX: usize = 64_000;

/// Validates the length of an identity's meta.
pub fn validate_identity_meta(meta: Optional<Meta>) -> Result<Option<Meta>> {
    let length = meta.0.as_ref().map_or(0, |meta| meta.as_str().chars().count());
    match length <= IDENTITY_META_CHARS_MAX {
        true => Ok(meta.0),
        false => {
            let message =
                format!("meta: has {length} characters; the maximum is {IDENTITY_META_CHARS_MAX}");
            Err(Error::invalid("meta", message))
        }
    }
}

/// Converts an id or an external id to an identity reference. The id takes precedence.
pub fn to_identity_ref(
    id: Optional<IdOrName>,
    external_id: Optional<IdOrName>,
) -> Result<IdentityRef> {
    match (id.0, external_id.0) {
        (Some(id), _) => Ok(IdentityRef::Id(id.into_string())),
        (None, Some(id)) => Ok(IdentityRef::ExternalId(id.into_string())),
        (None, None) => {
            Err(Error::invalid("identityId", "Provide either identityId or externalId"))
        }
    }
}

/// An identity, which represents one of your users.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IdentityReply {
    id: IdentityId,
    external_id: String,
    meta: Option<Meta>,
    ratelimits: Vec<SharedRatelimitReply>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct SharedRatelimitReply {
    name: String,
    limit: i64,
    /// The window length in milliseconds.
    duration: i64,
}

pub fn to_limit_replies(limits: Vec<model::Ratelimit>) -> Vec<SharedRatelimitReply> {
    let reply = |limit: model::Ratelimit| SharedRatelimitReply {
        name: limit.name,
        limit: limit.limit,
        duration: limit.duration_ms,
    };
    limits.into_iter().map(reply).collect()
}

impl From<model::Identity> for IdentityReply {
    fn from(identity: model::Identity) -> Self {
        Self {
            meta: meta_or_empty(identity.meta.as_ref()),
            id: identity.id,
            external_id: identity.external_id,
            ratelimits: to_limit_replies(identity.ratelimits),
        }
    }
}
