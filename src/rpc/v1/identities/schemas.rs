//! What operations on identities take or give back.

use foundation::error::{Error, Result};
use foundation::id::IdentityId;
use foundation::model;

use crate::domain::identities::IdentityRef;
use crate::domain::keys::NewRatelimit;
use crate::rpc::prelude::*;
use crate::rpc::schemas::{DURATION_MIN_MS, Positive};
use crate::rpc::v1::schemas::{Name, or_empty};

/// A limit that all keys of an identity share.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SharedRatelimit {
    pub name: Text<1, 128, Printable>,
    pub limit: Positive,
    /// Milliseconds.
    pub duration: Int<DURATION_MIN_MS, { i64::MAX }>,
}

pub type SharedRatelimits = List<Object<SharedRatelimit>, 0, 50>;

/// Limits as they are asked for; verification checks them when it is asked to.
pub fn shared(limits: SharedRatelimits) -> Result<Vec<NewRatelimit>> {
    let mut shared: Vec<NewRatelimit> = Vec::with_capacity(limits.0.len());
    for Object(limit) in limits.0 {
        let name = limit.name.into_string();
        if shared.iter().any(|known| known.name == name) {
            return Err(Error::Doubled(name));
        }
        shared.push(NewRatelimit {
            name,
            limit: limit.limit.0,
            duration_ms: limit.duration.0,
            auto_apply: false,
            is_async: false,
        });
    }
    Ok(shared)
}

/// What the meta of an identity may have, in characters as it is written.
const IDENTITY_META_MAX: usize = 64_000;

/// The meta of an identity.
pub fn identity_meta(meta: Optional<Meta>) -> Result<Option<Meta>> {
    let length = meta.0.as_ref().map_or(0, |meta| meta.as_str().chars().count());
    match length <= IDENTITY_META_MAX {
        true => Ok(meta.0),
        false => {
            let message =
                format!("meta: has {length} characters: it may have at most {IDENTITY_META_MAX}");
            Err(Error::invalid("meta", message))
        }
    }
}

/// How a request names an identity; the id counts.
pub fn called(id: Optional<Name>, external_id: Optional<Name>) -> Result<IdentityRef> {
    match (id.0, external_id.0) {
        (Some(id), _) => Ok(IdentityRef::Id(id.into_string())),
        (None, Some(id)) => Ok(IdentityRef::ExternalId(id.into_string())),
        (None, None) => {
            Err(Error::invalid("identityId", "Provide either identityId or externalId"))
        }
    }
}

/// One of your own users.
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
    /// Milliseconds.
    duration: i64,
}

pub fn shared_replies(limits: Vec<model::Ratelimit>) -> Vec<SharedRatelimitReply> {
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
            meta: or_empty(identity.meta.as_ref()),
            id: identity.id,
            external_id: identity.external_id,
            ratelimits: shared_replies(identity.ratelimits),
        }
    }
}
