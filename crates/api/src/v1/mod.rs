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
pub use wire::{V1, preflight_response};

pub fn operation_table() -> OperationTable {
    TableBuilder::<V1>::new()
        .with_operation::<analytics::get_verifications::GetVerifications>()
        .with_operation::<apis::create_api::CreateApi>()
        .with_operation::<apis::delete_api::DeleteApi>()
        .with_operation::<apis::delete_keys::DeleteKeys>()
        .with_operation::<apis::get_api::GetApi>()
        .with_operation::<apis::list_keys::ListKeys>()
        .with_operation::<identities::create_identity::CreateIdentity>()
        .with_operation::<identities::delete_identity::DeleteIdentity>()
        .with_operation::<identities::get_identity::GetIdentity>()
        .with_operation::<identities::list_identities::ListIdentities>()
        .with_operation::<identities::update_identity::UpdateIdentity>()
        .with_operation::<keys::add_permissions::AddPermissions>()
        .with_operation::<keys::add_roles::AddRoles>()
        .with_operation::<keys::create_key::CreateKey>()
        .with_operation::<keys::delete_key::DeleteKey>()
        .with_operation::<keys::get_key::GetKey>()
        .with_operation::<keys::get_verifications::GetVerifications>()
        .with_operation::<keys::remove_permissions::RemovePermissions>()
        .with_operation::<keys::remove_roles::RemoveRoles>()
        .with_operation::<keys::set_permissions::SetPermissions>()
        .with_operation::<keys::set_roles::SetRoles>()
        .with_operation::<keys::update_key::UpdateKey>()
        .with_operation::<keys::update_remaining::UpdateRemaining>()
        .with_operation::<keys::verify_key::VerifyKey>()
        .with_operation::<keys::whoami::Whoami>()
        .with_operation::<migrations::create_keys::CreateKeys>()
        .with_operation::<migrations::enqueue_keys::EnqueueKeys>()
        .with_operation::<permissions::create_permission::CreatePermission>()
        .with_operation::<permissions::create_role::CreateRole>()
        .with_operation::<permissions::delete_permission::DeletePermission>()
        .with_operation::<permissions::delete_role::DeleteRole>()
        .with_operation::<permissions::get_permission::GetPermission>()
        .with_operation::<permissions::get_role::GetRole>()
        .with_operation::<permissions::list_permissions::ListPermissions>()
        .with_operation::<permissions::list_roles::ListRoles>()
        .with_operation::<ratelimits::delete_override::DeleteOverride>()
        .with_operation::<ratelimits::get_override::GetOverride>()
        .with_operation::<ratelimits::limit::Limit>()
        .with_operation::<ratelimits::list_overrides::ListOverrides>()
        .with_operation::<ratelimits::set_override::SetOverride>()
        .with_operation::<liveness::Liveness>()
        .build()
}
