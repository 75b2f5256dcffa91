//! Names what a change invalidates.

use foundation::id::{
    ApiId, GatewayPolicyId, IdentityId, KeyId, NamespaceId, PermissionId, RoleId,
};

/// Names an entity whose change invalidates cached values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CacheTag {
    Key(KeyId),
    /// A key that was just created, by the fingerprint of its hash: a replica that cached the absence of the key
    /// knows nothing else of it.
    NewKey(u64),
    Api(ApiId),
    Identity(IdentityId),
    Role(RoleId),
    Permission(PermissionId),
    RootKey(KeyId),
    /// A namespace or one of its overrides.
    Namespace(NamespaceId),
    /// A namespace that was just created, by the fingerprint of its workspace and name.
    NewNamespace(u64),
    GatewayPolicy(GatewayPolicyId),
    /// The gateway policy that a gateway without a secret names, by the fingerprint of its name or id.
    GatewayPolicyName(u64),
    /// The keys that sign assertions.
    SigningKeys,
    /// Many keys that were created at once; one row of the change log stands for all of them.
    NewKeys,
    /// Every cached value. Used when the names whose absence may be cached cannot be determined, as when an API is
    /// restored.
    All,
}

/// The text form of [`CacheTag::All`].
pub const ALL_TAG: &str = "all";

impl std::fmt::Display for CacheTag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Key(id) => write!(f, "key:{id}"),
            Self::NewKey(fingerprint) => write!(f, "new:{fingerprint:016x}"),
            Self::Api(id) => write!(f, "api:{id}"),
            Self::Identity(id) => write!(f, "identity:{id}"),
            Self::Role(id) => write!(f, "role:{id}"),
            Self::Permission(id) => write!(f, "permission:{id}"),
            Self::RootKey(id) => write!(f, "root_key:{id}"),
            Self::Namespace(id) => write!(f, "namespace:{id}"),
            Self::NewNamespace(fingerprint) => write!(f, "new_namespace:{fingerprint:016x}"),
            Self::GatewayPolicy(id) => write!(f, "gateway_policy:{id}"),
            Self::GatewayPolicyName(fingerprint) => {
                write!(f, "gateway_policy_name:{fingerprint:016x}")
            }
            Self::SigningKeys => f.write_str("signing_keys"),
            Self::NewKeys => f.write_str("new_keys"),
            Self::All => f.write_str(ALL_TAG),
        }
    }
}
