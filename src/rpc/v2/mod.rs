//! Version 2: every module, every row.

mod shapes;

mod apis {
    pub mod create_api;
    pub mod delete_api;
    pub mod get_api;
}
mod keys {
    pub mod create_key;
    pub mod delete_key;
    pub mod get_key;
    pub mod update_credits;
    pub mod update_key;
    pub mod verify_key;
    pub mod whoami;
}
mod permissions {
    pub mod create_permission;
    pub mod create_role;
}
mod ratelimit {
    pub mod delete_override;
    pub mod get_override;
    pub mod limit;
    pub mod list_overrides;
    pub mod multi_limit;
    pub mod set_override;
}

use super::Table;

pub fn table() -> Table {
    Table::new("/v2/")
        .with::<apis::create_api::CreateApi>()
        .with::<apis::get_api::GetApi>()
        .with::<apis::delete_api::DeleteApi>()
        .with::<keys::create_key::CreateKey>()
        .with::<keys::verify_key::VerifyKey>()
        .with::<keys::get_key::GetKey>()
        .with::<keys::update_key::UpdateKey>()
        .with::<keys::update_credits::UpdateCredits>()
        .with::<keys::delete_key::DeleteKey>()
        .with::<keys::whoami::Whoami>()
        .with::<permissions::create_permission::CreatePermission>()
        .with::<permissions::create_role::CreateRole>()
        .with::<ratelimit::limit::Limit>()
        .with::<ratelimit::multi_limit::MultiLimit>()
        .with::<ratelimit::set_override::SetOverride>()
        .with::<ratelimit::get_override::GetOverride>()
        .with::<ratelimit::list_overrides::ListOverrides>()
        .with::<ratelimit::delete_override::DeleteOverride>()
}
