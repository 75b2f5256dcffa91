//! Schema types that several operations of version 2 share.

use domain::bounds::{
    EXPIRES_MAX_MS, IDENTIFIER_MAX, KEY_NAME_MAX, KEY_ROLES_MAX, PERMISSIONS_MAX,
    RATELIMIT_NAME_MAX, RATELIMIT_NAME_MIN, RATELIMITS_MAX, ROLE_NAME_MAX,
};
use domain::keys::{
    self, Assignment, AssignmentAccess, AssignmentChange, FoundKey, NewCredits, NewRatelimit,
};
use domain::page::Paging;
use domain::rbac::Selector;
use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::id::{IdentityId, KeyId, OverrideId, RatelimitId, RoleId};
use foundation::model::{self, RefillInterval};
use foundation::secret::Plaintext;
use serde_json::value::RawValue;

use crate::prelude::*;
use crate::schemas::{
    Interval, PermissionReply, PositiveInt, RefillDay, UnsignedInt, WindowLength, non_empty_meta,
};

/// An expiry time in Unix milliseconds, at most the start of the year 2100.
pub type Expires = Int<0, EXPIRES_MAX_MS>;
/// A namespace id or name, or an identifier in a namespace.
pub type NamespaceOrIdentifier = Text<1, IDENTIFIER_MAX>;
/// The start of a page: the `pagination.cursor` of the previous page.
pub type Cursor = Text<0, 1024>;
/// The text that a list is searched for.
pub type Search = Text<0, 256>;
pub type KeyName = Text<1, KEY_NAME_MAX, Printable>;
pub type RoleName = Text<1, ROLE_NAME_MAX>;
pub type RoleNames = List<RoleName, 0, KEY_ROLES_MAX>;
pub type Slugs = List<Slug, 0, PERMISSIONS_MAX>;
pub type Ratelimits = List<Object<Ratelimit>, 0, RATELIMITS_MAX>;
/// An identity id or an external id.
pub type IdentityIdOrExternalId = Text<1, 255>;
/// The maximum number of items per page.
pub type PageLimit = Int<1, 100>;
/// The maximum size of a request with identity meta, excluding the meta, in bytes.
pub const NON_META_MAX_BYTES: usize = 64 * 1024;

/// Converts a limit and a cursor to paging.
pub fn to_paging(limit: Optional<PageLimit>, default: usize, cursor: Optional<Cursor>) -> Paging {
    let from = cursor.0.map_or_else(String::new, Text::into_string);
    let limit = limit.0.and_then(|limit| usize::try_from(limit.0).ok());
    Paging { start: from, limit: limit.unwrap_or(default), ..Paging::default() }
}

/// Converts a limit, a cursor and a search text to paging. The default limit is 100.
pub fn to_search_paging(
    limit: Optional<PageLimit>,
    cursor: Optional<Cursor>,
    search: Optional<Search>,
) -> Paging {
    let search = search.0.map_or_else(String::new, Text::into_string);
    Paging { search, ..to_paging(limit, 100, cursor) }
}

/// A named rate limit.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ratelimit {
    /// The name by which a verification refers to the limit.
    pub name: Text<RATELIMIT_NAME_MIN, RATELIMIT_NAME_MAX, Printable>,
    /// The maximum total cost per window.
    pub limit: PositiveInt,
    /// The window length in milliseconds.
    pub duration: WindowLength,
    /// Whether every verification checks the limit, even if it does not name it. Default: false.
    #[serde(default)]
    pub auto_apply: Optional<bool>,
}

impl From<Ratelimit> for NewRatelimit {
    fn from(limit: Ratelimit) -> Self {
        Self {
            name: limit.name.into_string(),
            limit: limit.limit.0,
            duration_ms: limit.duration.0,
            auto_apply: limit.auto_apply.unwrap_or(false),
            is_async: false,
        }
    }
}

/// Credits and their refill schedule.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Credits {
    /// The remaining credits. Null: unlimited.
    pub remaining: Nullable<UnsignedInt>,
    #[serde(default)]
    pub refill: Optional<Object<Refill>>,
}

impl Credits {
    /// Validates the credits. Returns `None` if they are unlimited.
    pub fn validate(self) -> Result<Option<NewCredits>> {
        let refill = self.refill.0.map(|Object(refill)| refill.validate()).transpose()?;
        match (self.remaining.0, refill) {
            (Some(balance), refill) => Ok(Some(NewCredits { balance: balance.0, refill })),
            (None, None) => Ok(None),
            (None, Some(_)) => Err(Error::invalid(
                "/properties/credits/properties/refill",
                "credits.refill requires a number in credits.remaining; null means unlimited",
            )),
        }
    }
}

/// The schedule on which credits are refilled.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Refill {
    pub interval: OneOf<Interval>,
    /// The number of credits after each refill.
    pub amount: PositiveInt,
    /// The day of the month for `monthly`; the last day if the month is shorter.
    #[serde(default)]
    pub refill_day: Optional<RefillDay>,
}

impl Refill {
    pub fn validate(self) -> Result<model::Refill> {
        let at = "/properties/credits/properties/refill/properties/refillDay";
        let interval = match (self.interval.0, self.refill_day.0) {
            (Interval::Daily, None) => RefillInterval::Daily,
            (Interval::Monthly, Some(day)) => {
                RefillInterval::Monthly { day: u8::try_from(day.0).unwrap_or(31) }
            }
            (Interval::Daily, Some(_)) => {
                let message = "credits.refill.refillDay is allowed only with the interval monthly";
                return Err(Error::invalid(at, message));
            }
            (Interval::Monthly, None) => {
                let message =
                    "credits.refill.refillDay is missing: monthly requires a day, 1 to 31";
                return Err(Error::invalid(at, message));
            }
        };
        Ok(model::Refill { interval, amount: self.amount.0 })
    }
}

/// A named rate limit.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct RatelimitReply {
    id: RatelimitId,
    name: String,
    limit: i64,
    /// The window length in milliseconds.
    duration: i64,
    auto_apply: bool,
}

impl From<&model::Ratelimit> for RatelimitReply {
    fn from(limit: &model::Ratelimit) -> Self {
        Self {
            id: limit.id.clone(),
            name: limit.name.clone(),
            limit: limit.limit,
            duration: limit.duration_ms,
            auto_apply: limit.auto_apply,
        }
    }
}

/// The remaining credits and their refill schedule.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreditsReply {
    remaining: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    refill: Option<RefillReply>,
}

/// The credits of a key.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyCredits {
    /// The remaining credits; null if unlimited.
    remaining: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refill: Option<RefillReply>,
}

impl From<Option<(i64, Option<model::Refill>)>> for KeyCredits {
    fn from(credits: Option<(i64, Option<model::Refill>)>) -> Self {
        let refill = credits.and_then(|(_, refill)| refill).map(RefillReply::from);
        Self { remaining: credits.map(|(remaining, _)| remaining), refill }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefillReply {
    interval: Interval,
    amount: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    refill_day: Option<u8>,
}

impl From<model::Refill> for RefillReply {
    fn from(refill: model::Refill) -> Self {
        let (interval, refill_day) = match refill.interval {
            RefillInterval::Daily => (Interval::Daily, None),
            RefillInterval::Monthly { day } => (Interval::Monthly, Some(day)),
        };
        Self { interval, amount: refill.amount, refill_day }
    }
}

/// An identity, which represents one of your users.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IdentityReply {
    id: IdentityId,
    external_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<Meta>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ratelimits: Vec<RatelimitReply>,
}

impl IdentityReply {
    pub fn new<'a>(
        identity: &model::Identity,
        limits: impl Iterator<Item = &'a model::Ratelimit>,
    ) -> Self {
        Self {
            id: identity.id.clone(),
            external_id: identity.external_id.clone(),
            meta: non_empty_meta(identity.meta.as_ref()),
            ratelimits: limits.map(RatelimitReply::from).collect(),
        }
    }
}

impl From<model::Identity> for IdentityReply {
    fn from(identity: model::Identity) -> Self {
        Self::new(&identity, identity.ratelimits.iter())
    }
}

/// A key without its secret.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyReply {
    key_id: KeyId,
    /// The first characters of the key.
    start: String,
    enabled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<Meta>,
    /// The creation time in Unix milliseconds.
    created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    updated_at: Option<Timestamp>,
    /// The time of the last successful verification in Unix milliseconds; updated with a delay of up to a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_used_at: Option<Timestamp>,
    /// The expiry time in Unix milliseconds; omitted if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<Timestamp>,
    /// Slugs of the key's direct permissions and of the permissions of its roles.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    permissions: Vec<String>,
    /// Role names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    roles: Vec<String>,
    /// The credits; omitted if unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    credits: Option<CreditsReply>,
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<IdentityReply>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ratelimits: Vec<RatelimitReply>,
    /// The key itself, if it is recoverable and the request asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    plaintext: Option<Plaintext>,
}

impl From<FoundKey> for KeyReply {
    fn from(found: FoundKey) -> Self {
        let stored = found.stored;
        let key = stored.key;
        let identity = found.resolved.identity();
        Self {
            key_id: key.id,
            start: key.start,
            enabled: key.is_enabled,
            name: key.name,
            meta: non_empty_meta(key.meta.as_ref()),
            created_at: key.created_at,
            updated_at: key.updated_at,
            last_used_at: stored.last_used_at,
            expires: key.expires_at.filter(|at| at.0 != 0),
            permissions: found.resolved.permissions().to_vec(),
            roles: found.resolved.roles().to_vec(),
            credits: found.credits.map(|(remaining, refill)| CreditsReply {
                remaining,
                refill: refill.map(RefillReply::from),
            }),
            identity: identity.map(|id| IdentityReply::new(id, id.ratelimits.iter())),
            ratelimits: stored.ratelimits.iter().map(RatelimitReply::from).collect(),
            plaintext: found.plaintext,
        }
    }
}

/// A named set of permissions.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct RoleReply {
    id: RoleId,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    permissions: Vec<PermissionReply>,
}

impl From<model::Role> for RoleReply {
    fn from(role: model::Role) -> Self {
        let permissions = role.permissions.into_iter().map(PermissionReply::from).collect();
        Self { id: role.id, name: role.name, description: role.description, permissions }
    }
}

/// Changes the direct permissions or the roles of a key. Returns all of them after the change.
pub async fn change_assignments<T: Assignment, R: From<T>>(
    app: &App,
    caller: &Caller,
    key_id: Id,
    change: AssignmentChange,
    selectors: Vec<Selector>,
) -> Result<Vec<R>> {
    let id = KeyId::from(key_id.into_string());
    let access = AssignmentAccess::KeyAndAssignments;
    let changed =
        keys::change_assignments::<T>(&app.context, caller, &id, change, selectors, access).await?;
    Ok(changed.after.into_iter().map(R::from).collect())
}

/// An override, which replaces the limit and duration of matching checks.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct OverrideReply {
    override_id: OverrideId,
    /// An identifier, or a pattern in which `*` matches any sequence of characters.
    identifier: String,
    limit: i64,
    /// The window length in milliseconds.
    duration: i64,
    /// The expiry time in Unix milliseconds; omitted if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<Timestamp>,
}

impl From<model::Override> for OverrideReply {
    fn from(stored: model::Override) -> Self {
        Self {
            override_id: stored.id,
            identifier: stored.identifier,
            limit: stored.limit,
            duration: stored.duration_ms,
            expires: stored.expires_at,
        }
    }
}

/// The error statuses that are specific to analytics queries.
pub const ANALYTICS_QUERY_ERRORS: [(u16, &str); 2] = [
    (422, "The query exceeded the time or memory limit, or its result is too large."),
    (429, "The workspace exceeded its hourly query quota."),
];

/// A row of an analytics result: the columns that the query selects, by name.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct EventRow(
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")] pub Box<RawValue>,
);
