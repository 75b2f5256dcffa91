//! Schema types that several operations of version 1 share.

use domain::keys::{
    self, Assignment, AssignmentAccess, AssignmentChange, FoundKey, NewCredits, NewRatelimit,
};
use domain::page::Paging;
use domain::rbac::{MissingPolicy, Selector, SelectorValue};
use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::id::{ApiId, IdentityId, KeyId, WorkspaceId};
use foundation::model::{self, RefillInterval};
use foundation::secret::Plaintext;

use crate::prelude::*;
use crate::schemas::{Interval, PositiveInt, RefillDay, non_empty_meta};

/// The name of the rate limit that the field `ratelimit` refers to.
pub const DEFAULT_LIMIT_NAME: &str = "default";
/// An id or a name by which a request refers to a resource.
pub type IdOrName = Text<1, 512>;
/// The caller's own id for a user.
pub type OwnerId = Text<1, 256>;
/// The caller's own id for the user of a key. Empty: none.
pub type KeyOwnerId = Text<0, 256>;
pub type PageLimit = Int<1, 100>;
pub type AnyInt = Int<{ i64::MIN }, { i64::MAX }>;

/// Converts a limit and a cursor to paging. The cursor is the last id of the previous page.
pub fn to_paging(limit: Optional<PageLimit>, cursor: Optional<Text<0, 1024>>) -> Paging {
    let limit = limit.0.and_then(|limit| usize::try_from(limit.0).ok()).unwrap_or(100);
    let last = cursor.0.map_or_else(String::new, Text::into_string);
    Paging::after_id(&last, limit)
}

/// Returns the external id of the user. `external_id` takes precedence over the deprecated `owner_id`.
pub fn resolve_external_id(
    external_id: Optional<KeyOwnerId>,
    owner_id: Optional<KeyOwnerId>,
) -> Option<String> {
    non_empty(Optional(external_id.0.or(owner_id.0)))
}

/// Returns a text, or `None` if it is empty.
pub fn non_empty<const MAX: usize>(text: Optional<Text<0, MAX>>) -> Option<String> {
    text.0.map(Text::into_string).filter(|text| !text.is_empty())
}

/// The schedule on which credits are refilled.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Refill {
    pub interval: OneOf<Interval>,
    /// The number of credits after each refill.
    pub amount: PositiveInt,
    /// The day of the month for `monthly`. Default: 1.
    #[serde(default)]
    pub refill_day: Optional<RefillDay>,
}

impl Refill {
    pub fn validate(self) -> Result<model::Refill> {
        let interval = match (self.interval.0, self.refill_day.0) {
            (Interval::Daily, None) => RefillInterval::Daily,
            (Interval::Monthly, day) => RefillInterval::Monthly {
                day: day.and_then(|day| u8::try_from(day.0).ok()).unwrap_or(1),
            },
            (Interval::Daily, Some(_)) => {
                let message = "refill: refillDay is allowed only with the interval monthly";
                return Err(Error::invalid("refill", message));
            }
        };
        Ok(model::Refill { interval, amount: self.amount.0 })
    }
}

/// Validates the credits of a new key. `None` means unlimited.
pub fn validate_credits(
    remaining: Option<i64>,
    refill: Optional<Object<Refill>>,
) -> Result<Option<NewCredits>> {
    let refill = refill.0.map(|Object(refill)| refill.validate()).transpose()?;
    match (remaining, refill) {
        (Some(balance), refill) => Ok(Some(NewCredits { balance, refill })),
        (None, None) => Ok(None),
        (None, Some(_)) => {
            Err(Error::invalid("refill", "refill: requires remaining; the key is unlimited"))
        }
    }
}

/// The legacy form of `async`: `fast` means true. It is stored and returned; verification is exact in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum RatelimitType {
    Fast,
    Consistent,
}

/// The rate limit of a key.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ratelimit<const SHORTEST_MS: i64> {
    #[serde(default)]
    pub r#async: Optional<bool>,
    /// The older form of `async`.
    #[serde(default)]
    pub r#type: Optional<OneOf<RatelimitType>>,
    /// The maximum total cost per window.
    pub limit: PositiveInt,
    /// The window length in milliseconds.
    #[serde(default)]
    pub duration: Optional<Int<SHORTEST_MS, { i64::MAX }>>,
    /// The older form of `limit`, which takes precedence.
    #[serde(default)]
    pub refill_rate: Optional<PositiveInt>,
    /// The older form of `duration`.
    #[serde(default)]
    pub refill_interval: Optional<PositiveInt>,
}

impl<const SHORTEST_MS: i64> Ratelimit<SHORTEST_MS> {
    pub fn validate(self) -> Result<NewRatelimit> {
        let duration = self.duration.0.map(|duration| duration.0);
        let duration = duration.or(self.refill_interval.0.map(|interval| interval.0));
        let missing = || Error::invalid("ratelimit.duration", "ratelimit.duration: Required");
        let is_fast = self.r#type.0.is_some_and(|kind| kind.0 == RatelimitType::Fast);
        Ok(NewRatelimit {
            name: DEFAULT_LIMIT_NAME.to_owned(),
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
    /// The first characters of the key.
    start: String,
    workspace_id: WorkspaceId,
    api_id: ApiId,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Deprecated: use `identity.externalId`.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<Meta>,
    /// The creation time in Unix milliseconds.
    created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    updated_at: Option<Timestamp>,
    /// The expiry time in Unix milliseconds; omitted if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<Timestamp>,
    /// The remaining credits; omitted if unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<i64>,
    /// The refill schedule. An unlimited key keeps its schedule, without effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    refill: Option<RefillReply>,
    /// The rate limit named `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratelimit: Option<RatelimitReply>,
    /// Role names.
    roles: Vec<String>,
    /// Slugs of the key's direct permissions and of the permissions of its roles.
    permissions: Vec<String>,
    enabled: bool,
    /// The key itself, if it is recoverable and the request asked for it.
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
    /// The day of the month for `monthly`; null for `daily`.
    refill_day: Option<u8>,
    /// The time of the last refill in Unix milliseconds; for a new key, its creation time. Omitted from an update of
    /// the key until the next refill.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_refill_at: Option<Timestamp>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct RatelimitReply {
    r#async: bool,
    r#type: RatelimitType,
    limit: i64,
    /// The window length in milliseconds.
    duration: i64,
    refill_rate: i64,
    refill_interval: i64,
}

/// The identity that owns a key.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyIdentity {
    id: IdentityId,
    external_id: String,
    meta: Option<Meta>,
}

impl From<&model::Identity> for KeyIdentity {
    fn from(identity: &model::Identity) -> Self {
        let model::Identity { id, external_id, meta, ratelimits: _, home: _ } = identity;
        Self {
            id: id.clone(),
            external_id: external_id.clone(),
            meta: meta_or_empty(meta.as_ref()),
        }
    }
}

/// Returns the meta object, or an empty object if there is none: a client rejects null.
pub fn meta_or_empty(meta: Option<&Meta>) -> Option<Meta> {
    meta.cloned().or_else(|| Meta::from_stored("{}".to_owned()))
}

impl From<FoundKey> for KeyReply {
    fn from(found: FoundKey) -> Self {
        let stored = found.stored;
        let key = stored.key;
        let refill = stored.refill.map(|refill| {
            let (interval, refill_day) = match refill.interval {
                RefillInterval::Daily => (Interval::Daily, None),
                RefillInterval::Monthly { day } => (Interval::Monthly, Some(day)),
            };
            let (amount, last_refill_at) = (refill.amount, found.refilled_at);
            RefillReply { interval, amount, refill_day, last_refill_at }
        });
        let limit = stored.ratelimits.iter().find(|limit| limit.name == DEFAULT_LIMIT_NAME);
        let ratelimit = limit.map(|limit| RatelimitReply {
            r#async: limit.is_approximate,
            r#type: if limit.is_approximate {
                RatelimitType::Fast
            } else {
                RatelimitType::Consistent
            },
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
            roles: found.resolved.roles().to_vec(),
            permissions: found.resolved.permissions().to_vec(),
            enabled: key.is_enabled,
            identity: found.resolved.identity().map(KeyIdentity::from),
            plaintext: found.plaintext,
            environment: key.environment,
        }
    }
}

/// A reference to a permission or a role.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AssignmentItem {
    /// The id. It takes precedence over a name.
    #[serde(default)]
    pub id: Optional<Text<3, 256>>,
    #[serde(default)]
    pub name: Optional<IdOrName>,
    /// The same as `name`, for permissions.
    #[serde(default)]
    pub slug: Optional<IdOrName>,
    /// Whether to create it if it does not exist and the root key has the permission to create it.
    #[serde(default)]
    pub create: Optional<bool>,
}

/// Converts the items of the field `list` to selectors. `missing` applies to items that do not exist and are not to be
/// created. If missing items are ignored, none is ever created.
pub fn to_selectors<const MIN: usize, const MAX: usize>(
    list: &str,
    items: List<Object<AssignmentItem>, MIN, MAX>,
    missing: MissingPolicy,
) -> Result<Vec<Selector>> {
    let to_selector = |(at, Object(item)): (usize, Object<AssignmentItem>)| {
        let name = item.name.0.or(item.slug.0);
        let by = match (item.id.0, name) {
            (Some(id), _) => SelectorValue::Id(id.into_string()),
            (None, Some(name)) => SelectorValue::Name(name.into_string()),
            (None, None) => {
                let field = format!("{list}.{at}");
                let message = format!("{field}: requires an id or a name");
                return Err(Error::invalid(field, message));
            }
        };
        let missing = match missing {
            MissingPolicy::Reject if item.create.unwrap_or(false) => MissingPolicy::Create,
            missing => missing,
        };
        Ok(Selector { value: by, missing_policy: missing })
    };
    items.0.into_iter().enumerate().map(to_selector).collect()
}

/// Changes the direct permissions or the roles of a key. Returns the selected ones.
pub async fn change_assignments<T: Assignment>(
    app: &App,
    caller: &Caller,
    key_id: IdOrName,
    change: AssignmentChange,
    selectors: Vec<Selector>,
) -> Result<Vec<AssignmentReply>>
where
    AssignmentReply: From<T>,
{
    let id = KeyId::from(key_id.into_string());
    let access = AssignmentAccess::AssignmentsOnly;
    let changed =
        keys::change_assignments::<T>(&app.context, caller, &id, change, selectors, access).await?;
    Ok(changed.selected.into_iter().map(AssignmentReply::from).collect())
}

/// A permission or role that the key has.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct AssignmentReply {
    id: String,
    name: String,
}

impl From<model::Permission> for AssignmentReply {
    fn from(permission: model::Permission) -> Self {
        Self { id: permission.id.to_string(), name: permission.slug }
    }
}

impl From<model::Role> for AssignmentReply {
    fn from(role: model::Role) -> Self {
        Self { id: role.id.to_string(), name: role.name }
    }
}
