//! Defines reads and writes of gateway policies.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{GatewayPolicyId, WorkspaceId};
use foundation::model::GatewayPolicy;

use crate::PageQuery;

/// A gateway policy with what a gateway must prove.
#[derive(Debug, Clone)]
pub struct StoredGatewayPolicy {
    pub policy: GatewayPolicy,
    pub is_workspace_enabled: bool,
    pub secrets: GatewaySecrets,
}

/// The hashes of the secrets of a gateway policy.
#[derive(Debug, Clone)]
pub struct GatewaySecrets {
    pub hash: String,
    /// The hash of the secret before the last rotation, and when it expires.
    pub previous: Option<(String, Timestamp)>,
}

/// Deleted policies are never returned.
#[async_trait]
pub trait GatewayPolicyReads: Send {
    /// Returns the policy that has, or until its last rotation had, a secret with this hash.
    async fn find_gateway_policy_by_secret(
        &mut self,
        hash: &str,
    ) -> Result<Option<StoredGatewayPolicy>>;
    /// Returns the policy of any workspace with this id or else the oldest with this name. A name that begins as ids do is
    /// ignored.
    async fn find_named_gateway_policy(
        &mut self,
        id_or_name: &str,
    ) -> Result<Option<StoredGatewayPolicy>>;
    /// Returns the policy of a workspace with this id or else with this name.
    async fn find_gateway_policy(
        &mut self,
        workspace: &WorkspaceId,
        id_or_name: &str,
    ) -> Result<Option<StoredGatewayPolicy>>;
    /// Returns a page of the policies of a workspace by id or by name.
    async fn list_gateway_policies(
        &mut self,
        workspace: &WorkspaceId,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<GatewayPolicy>>;
}

#[async_trait]
pub trait GatewayPolicyWrites: GatewayPolicyReads {
    /// Returns the number of policies of a workspace. No other transaction adds one until this one ends.
    async fn lock_gateway_policies(&mut self, workspace: &WorkspaceId) -> Result<i64>;
    async fn insert_gateway_policy(
        &mut self,
        policy: &GatewayPolicy,
        secret_hash: &str,
    ) -> Result<()>;
    /// Returns the policy with this id or else with this name, and locks it until the transaction ends.
    async fn lock_gateway_policy(
        &mut self,
        workspace: &WorkspaceId,
        id_or_name: &str,
    ) -> Result<Option<StoredGatewayPolicy>>;
    /// Writes the name and the settings.
    async fn update_gateway_policy(&mut self, policy: &GatewayPolicy) -> Result<()>;
    async fn set_gateway_secrets(
        &mut self,
        id: &GatewayPolicyId,
        secrets: &GatewaySecrets,
    ) -> Result<()>;
    async fn delete_gateway_policy(&mut self, id: &GatewayPolicyId, now: Timestamp) -> Result<()>;
    /// Returns the name of a deleted policy.
    async fn find_deleted_gateway_policy(
        &mut self,
        workspace: &WorkspaceId,
        id: &GatewayPolicyId,
    ) -> Result<Option<String>>;
    async fn restore_gateway_policy(&mut self, id: &GatewayPolicyId) -> Result<()>;
}
