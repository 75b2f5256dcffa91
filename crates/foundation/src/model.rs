//! Defines the records that the domain and the store share. They have no behavior except invariants.

mod bound_query;
mod delivery_snapshot;
mod events;
mod gateway_policy;
mod meta;
mod names;
mod networks;
mod overrides;
mod patch;
mod summaries;
mod users;
mod verification_code;

pub use bound_query::{BoundQuery, SqlDialect};
pub use delivery_snapshot::DeliverySnapshot;
pub use events::{EventKind, Retention, RetentionSettings, RollupUnit};
pub use gateway_policy::{
    DefaultLimit, EnforcementMode, FailureFormat, GatewayLimit, GatewayNamespace, GatewayPolicy,
    GatewayPolicyConfig, GatewayRule, IdentityHeaders, KeySource, is_header_name_part, is_token,
};
pub use meta::{BoundedMeta, Meta};
pub use names::{AllowedChars, escape_hidden, is_hidden};
pub use networks::Networks;
pub use overrides::{Overrides, WILDCARDS_MAX};
pub use patch::Patch;
pub use summaries::{IdentitySummary, KeySummary, RoleWithPermissionCount};
pub use users::{Invitation, InvitationKind, Member, MemberRole, Membership, Session, User};
pub use verification_code::VerificationCode;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::home::Home;
use crate::id::{
    ApiId, IdentityId, KeyId, MigrationId, NamespaceId, OverrideId, PermissionId, RatelimitId,
    RoleId, WorkspaceId,
};

/// An API: the set of keys that a backend accepts.
#[derive(Debug, Clone)]
pub struct Api {
    pub id: ApiId,
    pub workspace_id: WorkspaceId,
    pub name: String,
    pub settings: ApiSettings,
    /// The region that counts the limits of its keys. Absent: the first region.
    pub home: Option<Home>,
    pub created_at: Timestamp,
    pub deleted_at: Option<Timestamp>,
}

/// The settings of an API.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApiSettings {
    /// The default prefix of its keys.
    pub default_prefix: Option<String>,
    /// The default number of random bytes in its keys.
    pub default_byte_length: Option<u8>,
    /// Whether sealed copies of its keys may be stored.
    pub allows_recoverable_keys: bool,
    /// Whether it cannot be deleted.
    pub is_delete_protected: bool,
    /// The networks from which its keys may be used. Absent: any.
    pub allowed_networks: Option<Networks>,
}

/// A key without its secret.
#[derive(Debug, Clone)]
pub struct Key {
    pub id: KeyId,
    pub workspace_id: WorkspaceId,
    pub api_id: ApiId,
    /// Base64 of SHA-256 of the whole key.
    pub hash: String,
    /// The leading characters that may be shown.
    pub start: String,
    pub prefix: Option<String>,
    pub byte_length: u8,
    pub name: Option<String>,
    pub meta: Option<Meta>,
    pub identity_id: Option<IdentityId>,
    /// The customer's name for the end user who owns the key: that of the identity, while the key has one.
    pub owner_id: Option<String>,
    /// The customer's own label.
    pub environment: Option<String>,
    pub is_enabled: bool,
    pub expires_at: Option<Timestamp>,
    /// The credits of the key. Absent: unlimited use.
    pub credits: Option<Credits>,
    pub created_at: Timestamp,
    pub updated_at: Option<Timestamp>,
}

/// The credits of a metered key in its account. Credits in leases are not included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credits {
    pub balance: i64,
    /// The number of the latest lease. It increases whenever the balance is set or a lease is created; leases with
    /// other numbers may be void.
    pub last_lease_number: i64,
    pub refill: Option<Refill>,
    /// The refill period for which the balance has been refilled; see `domain::refill`.
    pub refilled_period: i64,
}

/// A lease in the database: the credits debited for it, and the Redis that holds it.
#[derive(Debug, Clone, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct Lease {
    /// The lease number, unique per key.
    #[sqlx(rename = "epoch")]
    pub lease_number: i64,
    /// The generation of the Redis that holds it.
    #[sqlx(rename = "life")]
    pub redis_generation: i64,
    /// The total number of credits debited for it.
    pub granted: i64,
    /// The credits that were certainly spent from it, as last reported.
    pub spent: i64,
    pub opened_at: Timestamp,
    #[sqlx(rename = "asked_at")]
    pub topped_up_at: Timestamp,
    /// The replica that topped it up.
    #[sqlx(rename = "asked_by")]
    pub topped_up_by: String,
    /// When its credits were withheld: they can neither be spent nor accounted for.
    pub withheld_at: Option<Timestamp>,
    /// Whether it is certain that no replica can spend from it any longer. This is not certain of a withheld lease of
    /// another Redis generation: a replica may still reach the Redis that holds it.
    pub closed: bool,
    /// The region whose Redis holds it. Empty: the first region.
    pub region: String,
}

impl Lease {
    /// Returns the credits that it may still hold, as last reported.
    pub fn unspent_units(&self) -> i64 {
        (self.granted - self.spent).max(0)
    }

    /// Returns whether replicas are no longer given this lease.
    pub fn is_ended(&self) -> bool {
        self.closed || self.withheld_at.is_some()
    }
}

/// The credit account of a metered key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreditAccount {
    pub credits: Credits,
    /// The leases, oldest first.
    pub leases: Vec<Lease>,
    /// The database's own time.
    pub database_time: Timestamp,
}

impl CreditAccount {
    /// Returns the leased credits as far as known: debited for leases and not known to be spent. Withheld credits are
    /// included.
    pub fn leased_units(&self) -> i64 {
        self.leases.iter().map(Lease::unspent_units).fold(0, i64::saturating_add)
    }
}

/// Credits that a key cannot spend, because the Redis that held them lost them.
#[derive(Debug, Clone, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct WithheldCredits {
    pub key_id: KeyId,
    pub workspace_id: WorkspaceId,
    #[sqlx(rename = "epoch")]
    pub lease_number: i64,
    /// The maximum number of withheld credits.
    pub units: i64,
    pub since: Timestamp,
}

/// When the credits of a key are refilled, and to which amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refill {
    pub interval: RefillInterval,
    /// The amount that the balance is set to.
    pub amount: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefillInterval {
    /// At 00:00 UTC.
    Daily,
    /// At 00:00 UTC on this day of the month, or on the month's last day if it has fewer.
    Monthly { day: u8 },
}

/// A named rate limit, of a key or shared by the keys of an identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ratelimit {
    pub id: RatelimitId,
    pub name: String,
    /// The maximum amount consumed in one window.
    pub limit: i64,
    /// The window's length in milliseconds.
    pub duration_ms: i64,
    /// Whether it is checked on every verification with cost 1, even if the request does not name it.
    pub auto_apply: bool,
    /// Whether it is marked approximate. The mark is only reported; the limit is always exact.
    pub is_approximate: bool,
}

/// An end user of the customer.
#[derive(Debug, Clone)]
pub struct Identity {
    pub id: IdentityId,
    pub external_id: String,
    pub meta: Option<Meta>,
    pub ratelimits: Vec<Ratelimit>,
    /// The region that counts its limits. Absent: the first region.
    pub home: Option<Home>,
}

/// A permission that a key may have, in the customer's own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permission {
    pub id: PermissionId,
    pub slug: String,
    pub name: String,
    pub description: Option<String>,
}

/// A named set of permissions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    pub id: RoleId,
    pub name: String,
    pub description: Option<String>,
    pub permissions: Vec<Permission>,
}

/// A [`Role`] without its permissions.
#[derive(Debug, Clone, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct RoleSummary {
    pub id: RoleId,
    pub name: String,
    pub description: Option<String>,
}

/// A way in which keys have a permission: directly or through a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionAssignment {
    /// The role through which they have it. Absent: they have it directly.
    pub role: Option<(RoleId, String)>,
    pub key_ids: Vec<KeyId>,
}

/// A migration: a set of keys that were issued elsewhere, of which only the hash is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    pub id: MigrationId,
    pub workspace_id: WorkspaceId,
    pub name: Option<String>,
    pub algorithm: Algorithm,
    pub created_at: Timestamp,
}

/// How the hashes of a migration were computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// SHA-256 of the whole key, as for Keyward's own keys.
    Sha256,
    /// SHA-256 of the last part of `prefix_short_long`, as in `prefixed-api-key` by Seam.
    PrefixedApiKey,
}

impl Algorithm {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::PrefixedApiKey => "prefixed-api-key",
        }
    }
}

impl std::str::FromStr for Algorithm {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut algorithms = [Self::Sha256, Self::PrefixedApiKey].into_iter();
        algorithms
            .find(|algorithm| algorithm.as_str() == text)
            .ok_or("must be sha256 or prefixed-api-key")
    }
}

/// A root key, with which an operator's programs call Keyward.
#[derive(Debug, Clone)]
pub struct RootKey {
    pub id: KeyId,
    pub workspace_id: WorkspaceId,
    pub is_workspace_enabled: bool,
    pub start: String,
    pub name: Option<String>,
    /// Permission tuples as they are written: `api.*.create_key`.
    pub permissions: Vec<String>,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
}

/// A namespace of the standalone limiter. Its counters are separate from those of other namespaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    pub id: NamespaceId,
    pub workspace_id: WorkspaceId,
    /// The name, unique in its workspace. It is not reused after deletion.
    pub name: String,
    pub outage_policy: OutagePolicy,
    /// The region that counts its limits. Absent: the first region.
    pub home: Option<Home>,
    pub created_at: Timestamp,
    pub deleted_at: Option<Timestamp>,
}

/// How limits are enforced while Redis is unreachable, ordered by strictness.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum OutagePolicy {
    /// All requests are admitted.
    Open,
    /// Each replica enforces its share of the limit.
    #[default]
    Local,
    /// All requests are rejected.
    Closed,
}

impl OutagePolicy {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }
}

impl std::str::FromStr for OutagePolicy {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut policies = [Self::Local, Self::Open, Self::Closed].into_iter();
        policies.find(|policy| policy.as_str() == text).ok_or("must be local, open or closed")
    }
}

/// An override: the limit for some identifiers of a namespace, in place of the one in the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    pub id: OverrideId,
    /// An identifier, or a pattern in which `*` matches any run of characters.
    pub identifier: String,
    /// The maximum amount consumed in one window; 0: nothing.
    pub limit: i64,
    /// The window's length in milliseconds.
    pub duration_ms: i64,
    /// The last moment at which it applies. Absent: it does not expire.
    pub expires_at: Option<Timestamp>,
    /// Whether it was created as approximate; each check chooses its own mode.
    pub is_approximate: bool,
    pub created_at: Timestamp,
    pub updated_at: Option<Timestamp>,
}

impl Override {
    pub fn is_active(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|expires| now <= expires)
    }
}
