//! Version 1 of the API, for existing clients: all modules and the operation table.
//!
//! This module only translates the wire format. The behavior of an operation is in the domain, which version 2 calls
//! too.

mod liveness;
mod schemas;
mod wire;

mod analytics {
    pub mod get_verifications;
}
mod apis {
    pub mod create_api;
    pub mod delete_api;
    pub mod delete_keys;
    pub mod get_api;
    pub mod list_keys;
}
mod identities {
    pub mod create_identity;
    pub mod delete_identity;
    pub mod get_identity;
    pub mod list_identities;
    mod schemas;
    pub mod update_identity;
}
mod keys {
    pub mod add_permissions;
    pub mod add_roles;
    pub mod create_key;
    pub mod delete_key;
    pub mod get_key;
    pub mod get_verifications;
    pub mod remove_permissions;
    pub mod remove_roles;
    pub mod set_permissions;
    pub mod set_roles;
    pub mod update_key;
    pub mod update_remaining;
    pub mod verify_key;
    pub mod whoami;
}
mod migrations {
    pub mod create_keys;
    pub mod enqueue_keys;
    mod schemas;
}
mod permissions {
    pub mod create_permission;
    pub mod create_role;
    pub mod delete_permission;
    pub mod delete_role;
    pub mod get_permission;
    pub mod get_role;
    pub mod list_permissions;
    pub mod list_roles;
    mod schemas;
}
mod ratelimits {
    pub mod delete_override;
    pub mod get_override;
    pub mod limit;
    pub mod list_overrides;
    mod schemas;
    pub mod set_override;
}

use super::{OperationTable, TableBuilder};
pub use wire::{V1, preflight};

pub fn table() -> OperationTable {
    TableBuilder::<V1>::new()
        .with::<analytics::get_verifications::GetVerifications>()
        .with::<apis::create_api::CreateApi>()
        .with::<apis::delete_api::DeleteApi>()
        .with::<apis::delete_keys::DeleteKeys>()
        .with::<apis::get_api::GetApi>()
        .with::<apis::list_keys::ListKeys>()
        .with::<identities::create_identity::CreateIdentity>()
        .with::<identities::delete_identity::DeleteIdentity>()
        .with::<identities::get_identity::GetIdentity>()
        .with::<identities::list_identities::ListIdentities>()
        .with::<identities::update_identity::UpdateIdentity>()
        .with::<keys::add_permissions::AddPermissions>()
        .with::<keys::add_roles::AddRoles>()
        .with::<keys::create_key::CreateKey>()
        .with::<keys::delete_key::DeleteKey>()
        .with::<keys::get_key::GetKey>()
        .with::<keys::get_verifications::GetVerifications>()
        .with::<keys::remove_permissions::RemovePermissions>()
        .with::<keys::remove_roles::RemoveRoles>()
        .with::<keys::set_permissions::SetPermissions>()
        .with::<keys::set_roles::SetRoles>()
        .with::<keys::update_key::UpdateKey>()
        .with::<keys::update_remaining::UpdateRemaining>()
        .with::<keys::verify_key::VerifyKey>()
        .with::<keys::whoami::Whoami>()
        .with::<migrations::create_keys::CreateKeys>()
        .with::<migrations::enqueue_keys::EnqueueKeys>()
        .with::<permissions::create_permission::CreatePermission>()
        .with::<permissions::create_role::CreateRole>()
        .with::<permissions::delete_permission::DeletePermission>()
        .with::<permissions::delete_role::DeleteRole>()
        .with::<permissions::get_permission::GetPermission>()
        .with::<permissions::get_role::GetRole>()
        .with::<permissions::list_permissions::ListPermissions>()
        .with::<permissions::list_roles::ListRoles>()
        .with::<ratelimits::delete_override::DeleteOverride>()
        .with::<ratelimits::get_override::GetOverride>()
        .with::<ratelimits::limit::Limit>()
        .with::<ratelimits::list_overrides::ListOverrides>()
        .with::<ratelimits::set_override::SetOverride>()
        .with::<liveness::Liveness>()
        .table()
}
