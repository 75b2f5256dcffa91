//! What several operations of version 1 take or give back.

use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::id::{ApiId, IdentityId, KeyId, WorkspaceId};
use foundation::model::{self, RefillInterval};
use foundation::secret::Plaintext;

use crate::domain::keys::{FoundKey, NewCredits, NewRatelimit};
use crate::domain::page::Paging;
use crate::domain::rbac::{MissingPolicy, PickBy, Selector};
use crate::rpc::prelude::*;
use crate::rpc::schemas::{Interval, Positive, non_empty_meta};

/// The limit that `ratelimit` means.
pub const DEFAULT: &str = "default";
/// How a request names something: an id or a name.
pub type Name = Text<1, 512>;
/// The customer's own name for a user.
pub type OwnerId = Text<1, 256>;
pub type PageLimit = Int<1, 100>;
pub type Anything = Int<{ i64::MIN }, { i64::MAX }>;

/// The page that a request for a list asks for: its cursor is the last id that has been seen.
pub fn paging(limit: Optional<PageLimit>, cursor: Optional<Text<0, 1024>>) -> Paging {
    let limit = limit.0.and_then(|limit| usize::try_from(limit.0).ok()).unwrap_or(100);
    let last = cursor.0.map_or_else(String::new, Text::into_string);
    Paging::after(&last, limit)
}

/// The one user that two names mean; the first counts.
pub fn user(external_id: Optional<OwnerId>, owner_id: Optional<OwnerId>) -> Option<String> {
    external_id.0.or(owner_id.0).map(Text::into_string)
}

/// When uses come back.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Refill {
    pub interval: Interval,
    /// What the uses are set to.
    pub amount: Positive,
    /// The day of the month, for `monthly`; the first where nothing is said.
    #[serde(default)]
    pub refill_day: Optional<Int<1, 31>>,
}

impl Refill {
    pub fn check(self) -> Result<model::Refill> {
        let interval = match (self.interval, self.refill_day.0) {
            (Interval::Daily, None) => RefillInterval::Daily,
            (Interval::Monthly, day) => RefillInterval::Monthly {
                day: day.and_then(|day| u8::try_from(day.0).ok()).unwrap_or(1),
            },
            (Interval::Daily, Some(_)) => {
                let message = "refill: refillDay goes with the interval monthly only";
                return Err(Error::invalid("refill", message));
            }
        };
        Ok(model::Refill { interval, amount: self.amount.0 })
    }
}

/// The uses of a new key.
pub fn credits(
    remaining: Option<i64>,
    refill: Optional<Object<Refill>>,
) -> Result<Option<NewCredits>> {
    let refill = refill.0.map(|Object(refill)| refill.check()).transpose()?;
    match (remaining, refill) {
        (Some(balance), refill) => Ok(Some(NewCredits { balance, refill })),
        (None, None) => Ok(None),
        (None, Some(_)) => {
            Err(Error::invalid("refill", "refill: needs remaining: the key is unlimited"))
        }
    }
}

/// How answers are made, for programs that say so: they are exact in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Kind {
    Fast,
    Consistent,
}

/// The limit of a key.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ratelimit<const SHORTEST_MS: i64> {
    #[serde(default)]
    pub r#async: Optional<bool>,
    /// As `async`, in an older word.
    #[serde(default)]
    pub r#type: Optional<Kind>,
    /// What may be taken in one window.
    pub limit: Positive,
    /// The window's length in milliseconds.
    #[serde(default)]
    pub duration: Optional<Int<SHORTEST_MS, { i64::MAX }>>,
    /// Older than `limit`, which counts.
    #[serde(default)]
    pub refill_rate: Optional<Positive>,
    /// As `duration`, in an older word.
    #[serde(default)]
    pub refill_interval: Optional<Positive>,
}

impl<const SHORTEST_MS: i64> Ratelimit<SHORTEST_MS> {
    pub fn check(self) -> Result<NewRatelimit> {
        let duration = self.duration.0.map(|duration| duration.0);
        let duration = duration.or(self.refill_interval.0.map(|interval| interval.0));
        let missing = || Error::invalid("ratelimit.duration", "ratelimit.duration: Required");
        let is_fast = self.r#type.0.is_some_and(|kind| kind == Kind::Fast);
        Ok(NewRatelimit {
            name: DEFAULT.to_owned(),
            limit: self.limit.0,
            duration_ms: duration.ok_or_else(missing)?,
            auto_apply: true,
            is_async: self.r#async.unwrap_or(is_fast),
        })
    }
}

/// A key without its secret.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyReply {
    id: KeyId,
    /// The leading characters of the key.
    start: String,
    workspace_id: WorkspaceId,
    api_id: ApiId,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Deprecated for `identity.externalId`.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<Meta>,
    /// Unix milliseconds.
    created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    updated_at: Option<Timestamp>,
    /// Unix milliseconds; left out: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<Timestamp>,
    /// Uses left; left out: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<i64>,
    /// When uses come back; of an unlimited key, when they would.
    #[serde(skip_serializing_if = "Option::is_none")]
    refill: Option<RefillReply>,
    /// The limit named `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratelimit: Option<RatelimitReply>,
    /// Names.
    roles: Vec<String>,
    /// Slugs, the key's own and those of its roles.
    permissions: Vec<String>,
    enabled: bool,
    /// The key itself, where it is recoverable and was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    plaintext: Option<Plaintext>,
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<KeyIdentity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    environment: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct RefillReply {
    interval: Interval,
    amount: i64,
    /// Null: each day.
    refill_day: Option<u8>,
    /// Unix milliseconds; of a new key, when it was made. Left out from a change of the key until the next refill.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_refill_at: Option<Timestamp>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct RatelimitReply {
    r#async: bool,
    r#type: Kind,
    limit: i64,
    /// Milliseconds.
    duration: i64,
    refill_rate: i64,
    refill_interval: i64,
}

/// Whose key it is.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyIdentity {
    id: IdentityId,
    external_id: String,
    meta: Option<Meta>,
}

impl From<&model::Identity> for KeyIdentity {
    fn from(identity: &model::Identity) -> Self {
        let model::Identity { id, external_id, meta, ratelimits: _ } = identity;
        Self { id: id.clone(), external_id: external_id.clone(), meta: or_empty(meta.as_ref()) }
    }
}

/// An object, and an empty one where there is none: a client rejects null.
pub fn or_empty(meta: Option<&Meta>) -> Option<Meta> {
    meta.cloned().or_else(|| Meta::stored("{}".to_owned()))
}

impl From<FoundKey> for KeyReply {
    fn from(found: FoundKey) -> Self {
        let stored = found.view.stored();
        let key = stored.key.clone();
        let refill = stored.refill.map(|refill| {
            let (interval, refill_day) = match refill.interval {
                RefillInterval::Daily => (Interval::Daily, None),
                RefillInterval::Monthly { day } => (Interval::Monthly, Some(day)),
            };
            let (amount, last_refill_at) = (refill.amount, found.refilled_at);
            RefillReply { interval, amount, refill_day, last_refill_at }
        });
        let limit = stored.ratelimits.iter().find(|limit| limit.name == DEFAULT);
        let ratelimit = limit.map(|limit| RatelimitReply {
            r#async: limit.is_async,
            r#type: if limit.is_async { Kind::Fast } else { Kind::Consistent },
            limit: limit.limit,
            duration: limit.duration_ms,
            refill_rate: limit.limit,
            refill_interval: limit.duration_ms,
        });
        Self {
            id: key.id,
            start: key.start,
            workspace_id: key.workspace_id,
            api_id: key.api_id,
            name: key.name,
            owner_id: key.owner_id,
            meta: non_empty_meta(key.meta.as_ref()),
            created_at: key.created_at,
            updated_at: key.updated_at,
            expires: key.expires_at.filter(|at| at.0 != 0),
            remaining: found.credits.map(|(remaining, _)| remaining),
            refill,
            ratelimit,
            roles: found.view.roles.clone(),
            permissions: found.view.permissions.clone(),
            enabled: key.enabled,
            identity: found.view.identity().map(KeyIdentity::from),
            plaintext: found.plaintext,
            environment: key.environment,
        }
    }
}

/// A permission or a role as a request names it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Item {
    /// Counts where a name is given too.
    #[serde(default)]
    pub id: Optional<Text<3, 256>>,
    #[serde(default)]
    pub name: Optional<Name>,
    /// As `name`, of a permission.
    #[serde(default)]
    pub slug: Optional<Name>,
    /// Whether to make it where it is missing, when the root key may.
    #[serde(default)]
    pub create: Optional<bool>,
}

/// The items of the field `list`. `missing` is what is done about one that does not exist and is not to be made;
/// where such are ignored, none is ever made.
pub fn picks<const MIN: usize, const MAX: usize>(
    list: &str,
    items: List<Object<Item>, MIN, MAX>,
    missing: MissingPolicy,
) -> Result<Vec<Selector>> {
    let pick = |(at, Object(item)): (usize, Object<Item>)| {
        let name = item.name.0.or(item.slug.0);
        let by = match (item.id.0, name) {
            (Some(id), _) => PickBy::Id(id.into_string()),
            (None, Some(name)) => PickBy::Name(name.into_string()),
            (None, None) => {
                let field = format!("{list}.{at}");
                let message = format!("{field}: needs an id or a name");
                return Err(Error::invalid(field, message));
            }
        };
        let missing = match missing {
            MissingPolicy::Refused if item.create.unwrap_or(false) => MissingPolicy::Made,
            missing => missing,
        };
        Ok(Selector { by, missing })
    };
    items.0.into_iter().enumerate().map(pick).collect()
}

/// One that a key was given.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Connected {
    id: String,
    name: String,
}

impl From<model::Permission> for Connected {
    fn from(permission: model::Permission) -> Self {
        Self { id: permission.id.to_string(), name: permission.slug }
    }
}

impl From<model::Role> for Connected {
    fn from(role: model::Role) -> Self {
        Self { id: role.id.to_string(), name: role.name }
    }
}
