//! The nouns: plain records that the domain and the store share. No behaviour but invariants.

mod bound_query;
mod delivery_snapshot;
mod events;
mod meta;
mod names;
mod overrides;
mod users;

pub use bound_query::{BoundQuery, SqlDialect};
pub use delivery_snapshot::DeliverySnapshot;
pub use events::{EventKind, Retention, RetentionSettings, RollupUnit};
pub use meta::Meta;
pub use names::{is_hidden, shown};
pub use overrides::{Overrides, STARS_MAX};
pub use users::{Invitation, InvitationKind, Member, MemberRole, Membership, Session, User};

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
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
    pub created_at: Timestamp,
    pub deleted_at: Option<Timestamp>,
}

/// What an operator sets an API to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApiSettings {
    /// What its keys begin with, where nothing else is asked for.
    pub default_prefix: Option<String>,
    /// How many random bytes its keys have, where nothing else is asked for.
    pub default_byte_length: Option<u8>,
    /// Whether sealed copies of its keys may be kept.
    pub recoverable_keys: bool,
    /// Whether it cannot be deleted.
    pub delete_protection: bool,
    /// From where its keys may be used. Absent: from anywhere.
    pub allowed_networks: Option<Networks>,
}

/// Networks in CIDR notation, of either kind of address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Networks(Arc<[IpNet]>);

impl Networks {
    /// How many there may be.
    pub const MAX: usize = 100;

    /// `None`: there are none.
    pub fn new(networks: Vec<IpNet>) -> Option<Self> {
        if networks.is_empty() { None } else { Some(Self(networks.into())) }
    }

    /// From a list of networks and single addresses, separated by commas. The error tells the one that is none.
    pub fn parse(list: &str) -> Result<Vec<IpNet>, String> {
        let network = |text: &str| {
            let address = || text.parse::<IpAddr>().map(IpNet::from);
            let fault = format!("{text:?} is not a network such as 10.0.0.0/8, nor an address");
            text.parse::<IpNet>()
                .map(|network| network.trunc())
                .or_else(|_| address())
                .map_err(|_| fault)
        };
        list.split(',').map(str::trim).filter(|text| !text.is_empty()).map(network).collect()
    }

    /// Whether the address is in one of them. An IPv4 address in IPv6 form counts as what it is.
    pub fn contain(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    pub fn texts(&self) -> Vec<String> {
        self.0.iter().map(ToString::to_string).collect()
    }
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
    /// The customer's own name for the user whose key it is: that of the identity, while it has one.
    pub owner_id: Option<String>,
    /// The customer's own label.
    pub environment: Option<String>,
    pub enabled: bool,
    pub expires_at: Option<Timestamp>,
    /// Absent: the key may be used without end.
    pub credits: Option<Credits>,
    pub created_at: Timestamp,
    pub updated_at: Option<Timestamp>,
}

/// The uses of a metered key, as the bank has them. What replicas hold in the purse is not in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credits {
    pub balance: i64,
    /// The number of the latest purse. Rises whenever the balance is set or a purse is made; those with
    /// other numbers may be void.
    pub last_lease_number: i64,
    pub refill: Option<Refill>,
    /// The period (see [`Refill::period`]) for which the balance has been refilled.
    pub refilled_period: i64,
}

/// A purse as the bank knows it: what it has debited for it, and where it is.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Lease {
    /// Its number among those of its key.
    pub epoch: i64,
    /// The life of the Redis that holds it.
    pub life: i64,
    /// Debited for it, in all.
    pub granted: i64,
    /// Of it, what was spent for certain, as far as the bank has been told.
    pub spent: i64,
    pub opened_at: Timestamp,
    #[sqlx(rename = "asked_at")]
    pub topped_up_at: Timestamp,
    /// The replica that asked.
    #[sqlx(rename = "asked_by")]
    pub topped_up_by: String,
    /// Since when what it held can neither be spent nor be accounted for.
    pub withheld_at: Option<Timestamp>,
    /// Whether it is known that nobody can spend from it any more. A withheld lease of another Redis generation is not:
    /// somebody may still reach the Redis that holds it.
    pub closed: bool,
}

impl Lease {
    /// What it may still hold, as far as the bank has been told.
    pub fn unspent(&self) -> i64 {
        (self.granted - self.spent).max(0)
    }

    /// Whether no replica learns of it any more.
    pub fn is_ended(&self) -> bool {
        self.closed || self.withheld_at.is_some()
    }
}

/// A metered key's account with the bank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreditAccount {
    pub credits: Credits,
    /// The oldest first.
    pub purses: Vec<Lease>,
    /// The database's own time.
    pub database_time: Timestamp,
}

impl CreditAccount {
    /// What is leased, as far as is known: what was debited for leases and is not known to be spent. What is withheld is
    /// part of it.
    pub fn leased(&self) -> i64 {
        self.purses.iter().map(Lease::unspent).fold(0, i64::saturating_add)
    }
}

/// Credits that a key cannot spend, because what held them is gone.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct WithheldCredits {
    pub key_id: KeyId,
    pub workspace_id: WorkspaceId,
    pub epoch: i64,
    /// At most so many.
    pub units: i64,
    pub since: Timestamp,
}

/// When the credits of a key come back, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refill {
    pub interval: RefillInterval,
    /// What the balance is set to.
    pub amount: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefillInterval {
    /// At 00:00 UTC.
    Daily,
    /// At 00:00 UTC on this day of the month; on the month's last day where it has fewer.
    Monthly { day: u8 },
}

/// A named rate limit, of a key or shared by the keys of an identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ratelimit {
    pub id: RatelimitId,
    pub name: String,
    /// What may be taken in one window.
    pub limit: i64,
    /// The window's length in milliseconds.
    pub duration_ms: i64,
    /// Checked on every verification, with cost 1, whether asked for or not.
    pub auto_apply: bool,
    /// Whether its answers may be quick rather than exact. They are exact all the same: it is only told.
    pub is_async: bool,
}

/// One of the customer's own users.
#[derive(Debug, Clone)]
pub struct Identity {
    pub id: IdentityId,
    pub external_id: String,
    pub meta: Option<Meta>,
    pub ratelimits: Vec<Ratelimit>,
}

/// Something a key may be allowed to do, in the customer's own words.
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

/// One of the ways in which keys hold a permission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionAssignment {
    /// The role through which they do. Absent: they hold it of themselves.
    pub role: Option<(RoleId, String)>,
    pub key_ids: Vec<KeyId>,
}

/// A set of keys that were issued elsewhere, of which only the hash is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    pub id: MigrationId,
    pub workspace_id: WorkspaceId,
    pub name: Option<String>,
    pub algorithm: Algorithm,
    pub created_at: Timestamp,
}

/// How the hashes of a migration were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// SHA-256 of the whole key, as Keyward's own.
    Sha256,
    /// SHA-256 of the last part of `prefix_short_long`, as `prefixed-api-key` of Seam makes them.
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
        let mut known = [Self::Sha256, Self::PrefixedApiKey].into_iter();
        known.find(|known| known.as_str() == text).ok_or("must be sha256 or prefixed-api-key")
    }
}

/// A root key: what an operator's programs call Keyward with.
#[derive(Debug, Clone)]
pub struct RootKey {
    pub id: KeyId,
    pub workspace_id: WorkspaceId,
    pub workspace_enabled: bool,
    pub start: String,
    pub name: Option<String>,
    /// Tuples as they are written: `api.*.create_key`.
    pub permissions: Vec<String>,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
}

/// A namespace of the standalone limiter: what is counted in one has nothing to do with another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    pub id: NamespaceId,
    pub workspace_id: WorkspaceId,
    /// Unique in its workspace, and taken for good.
    pub name: String,
    pub on_outage: OutagePolicy,
    pub created_at: Timestamp,
    pub deleted_at: Option<Timestamp>,
}

/// What is said of limits while Redis is away; the stricter, the later.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum OutagePolicy {
    /// All pass.
    Open,
    /// Each replica enforces its share of the limit.
    #[default]
    Local,
    /// None passes.
    Closed,
}

impl OutagePolicy {
    pub fn as_str(self) -> &'static str {
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
        let mut known = [Self::Local, Self::Open, Self::Closed].into_iter();
        known.find(|known| known.as_str() == text).ok_or("must be local, open or closed")
    }
}

/// A limit that stands in, for some identifiers of a namespace, for the one given with a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    pub id: OverrideId,
    /// An identifier, or a pattern in which `*` stands for any run of characters.
    pub identifier: String,
    /// What may be taken in one window; 0: nothing.
    pub limit: i64,
    /// The window's length in milliseconds.
    pub duration_ms: i64,
    /// The last moment at which it applies. Absent: it does not end.
    pub expires_at: Option<Timestamp>,
    /// Whether it was asked for quick answers rather than exact ones; a check says so for itself.
    pub is_async: bool,
    pub created_at: Timestamp,
    pub updated_at: Option<Timestamp>,
}

impl Override {
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|expires| now <= expires)
    }
}
