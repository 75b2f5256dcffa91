//! Version 2 of the API: all modules and the operation table.

pub mod schemas;
mod wire;

pub mod analytics {
    pub mod get_ratelimits;
    pub mod get_verifications;
}
pub mod apis {
    pub mod create_api;
    pub mod delete_api;
    pub mod get_api;
    pub mod list_keys;
}
pub mod identities {
    pub mod create_identity;
    pub mod delete_identity;
    pub mod get_identity;
    pub mod list_identities;
    pub mod update_identity;
}
pub mod keys {
    pub mod add_permissions;
    pub mod add_roles;
    pub mod create_key;
    pub mod delete_key;
    pub mod get_key;
    pub mod migrate_keys;
    pub mod remove_permissions;
    pub mod remove_roles;
    pub mod reroll_key;
    pub mod set_permissions;
    pub mod set_roles;
    pub mod update_credits;
    pub mod update_key;
    pub mod verify_key;
    pub mod whoami;
}
pub mod permissions {
    pub mod create_permission;
    pub mod create_role;
    pub mod delete_permission;
    pub mod delete_role;
    pub mod get_permission;
    pub mod get_role;
    pub mod list_permissions;
    pub mod list_roles;
    pub mod set_role_permissions;
}
pub mod ratelimit {
    pub mod delete_override;
    pub mod get_override;
    pub mod limit;
    pub mod list_overrides;
    pub mod multi_limit;
    pub mod set_override;
}

use foundation::error::{Error, Result};
use futures_util::FutureExt as _;
use serde::Serialize;

use super::{Operation, OperationTable, TableBuilder, decode};
use crate::app::App;
use crate::domain::caller::Caller;
pub use wire::V2;

/// Runs an operation for an already authenticated caller, with the same bounds and field errors as over HTTP.
pub async fn call<O: Operation>(
    app: &App,
    caller: &Caller,
    request: &(impl Serialize + Sync),
) -> Result<O::Reply> {
    // Boxed, which also erases the type, because the futures of its callers are large already.
    read::<O>(request)?.run(app, caller).boxed().await
}

/// Parses and validates the request of an operation without running it.
pub fn read<O: Operation>(request: &impl Serialize) -> Result<O> {
    let bytes = serde_json::to_vec(request).map_err(|e| Error::Internal(e.to_string()))?;
    decode::<V2, O>(&bytes)
}

pub fn table() -> OperationTable {
    TableBuilder::<V2>::new()
        .with::<apis::create_api::CreateApi>()
        .with::<apis::get_api::GetApi>()
        .with::<apis::delete_api::DeleteApi>()
        .with::<apis::list_keys::ListKeys>()
        .with::<keys::create_key::CreateKey>()
        .with::<keys::verify_key::VerifyKey>()
        .with::<keys::get_key::GetKey>()
        .with::<keys::update_key::UpdateKey>()
        .with::<keys::update_credits::UpdateCredits>()
        .with::<keys::reroll_key::RerollKey>()
        .with::<keys::migrate_keys::MigrateKeys>()
        .with::<keys::delete_key::DeleteKey>()
        .with::<keys::whoami::Whoami>()
        .with::<keys::add_permissions::AddPermissions>()
        .with::<keys::remove_permissions::RemovePermissions>()
        .with::<keys::set_permissions::SetPermissions>()
        .with::<keys::add_roles::AddRoles>()
        .with::<keys::remove_roles::RemoveRoles>()
        .with::<keys::set_roles::SetRoles>()
        .with::<identities::create_identity::CreateIdentity>()
        .with::<identities::get_identity::GetIdentity>()
        .with::<identities::list_identities::ListIdentities>()
        .with::<identities::update_identity::UpdateIdentity>()
        .with::<identities::delete_identity::DeleteIdentity>()
        .with::<permissions::create_permission::CreatePermission>()
        .with::<permissions::get_permission::GetPermission>()
        .with::<permissions::list_permissions::ListPermissions>()
        .with::<permissions::delete_permission::DeletePermission>()
        .with::<permissions::create_role::CreateRole>()
        .with::<permissions::get_role::GetRole>()
        .with::<permissions::list_roles::ListRoles>()
        .with::<permissions::delete_role::DeleteRole>()
        .with::<permissions::set_role_permissions::SetRolePermissions>()
        .with::<ratelimit::limit::Limit>()
        .with::<ratelimit::multi_limit::MultiLimit>()
        .with::<ratelimit::set_override::SetOverride>()
        .with::<ratelimit::get_override::GetOverride>()
        .with::<ratelimit::list_overrides::ListOverrides>()
        .with::<ratelimit::delete_override::DeleteOverride>()
        .with::<analytics::get_verifications::GetVerifications>()
        .with::<analytics::get_ratelimits::GetRatelimits>()
        .table()
}
