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
pub mod gateways {
    pub mod create_policy;
    pub mod delete_policy;
    pub mod get_policy;
    pub mod list_policies;
    mod policy;
    pub mod rotate_secret;
    pub mod update_policy;
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

use super::{OperationTable, TableBuilder};
pub use wire::{V2, field_error_from_schema};

pub fn operation_table() -> OperationTable {
    TableBuilder::<V2>::new()
        .with_operation::<apis::create_api::CreateApi>()
        .with_operation::<apis::get_api::GetApi>()
        .with_operation::<apis::delete_api::DeleteApi>()
        .with_operation::<apis::list_keys::ListKeys>()
        .with_operation::<keys::create_key::CreateKey>()
        .with_operation::<keys::verify_key::VerifyKey>()
        .with_operation::<keys::get_key::GetKey>()
        .with_operation::<keys::update_key::UpdateKey>()
        .with_operation::<keys::update_credits::UpdateCredits>()
        .with_operation::<keys::reroll_key::RerollKey>()
        .with_operation::<keys::migrate_keys::MigrateKeys>()
        .with_operation::<keys::delete_key::DeleteKey>()
        .with_operation::<keys::whoami::Whoami>()
        .with_operation::<keys::add_permissions::AddPermissions>()
        .with_operation::<keys::remove_permissions::RemovePermissions>()
        .with_operation::<keys::set_permissions::SetPermissions>()
        .with_operation::<keys::add_roles::AddRoles>()
        .with_operation::<keys::remove_roles::RemoveRoles>()
        .with_operation::<keys::set_roles::SetRoles>()
        .with_operation::<identities::create_identity::CreateIdentity>()
        .with_operation::<identities::get_identity::GetIdentity>()
        .with_operation::<identities::list_identities::ListIdentities>()
        .with_operation::<identities::update_identity::UpdateIdentity>()
        .with_operation::<identities::delete_identity::DeleteIdentity>()
        .with_operation::<permissions::create_permission::CreatePermission>()
        .with_operation::<permissions::get_permission::GetPermission>()
        .with_operation::<permissions::list_permissions::ListPermissions>()
        .with_operation::<permissions::delete_permission::DeletePermission>()
        .with_operation::<permissions::create_role::CreateRole>()
        .with_operation::<permissions::get_role::GetRole>()
        .with_operation::<permissions::list_roles::ListRoles>()
        .with_operation::<permissions::delete_role::DeleteRole>()
        .with_operation::<permissions::set_role_permissions::SetRolePermissions>()
        .with_operation::<ratelimit::limit::Limit>()
        .with_operation::<ratelimit::multi_limit::MultiLimit>()
        .with_operation::<ratelimit::set_override::SetOverride>()
        .with_operation::<ratelimit::get_override::GetOverride>()
        .with_operation::<ratelimit::list_overrides::ListOverrides>()
        .with_operation::<ratelimit::delete_override::DeleteOverride>()
        .with_operation::<gateways::create_policy::CreatePolicy>()
        .with_operation::<gateways::get_policy::GetPolicy>()
        .with_operation::<gateways::list_policies::ListPolicies>()
        .with_operation::<gateways::update_policy::UpdatePolicy>()
        .with_operation::<gateways::rotate_secret::RotateSecret>()
        .with_operation::<gateways::delete_policy::DeletePolicy>()
        .with_operation::<analytics::get_verifications::GetVerifications>()
        .with_operation::<analytics::get_ratelimits::GetRatelimits>()
        .build()
}
