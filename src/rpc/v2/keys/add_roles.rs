use domain::keys::{AssignmentAccess, roles};
use domain::rbac::{MissingPolicy, Selector};
use foundation::id::KeyId;

use crate::rpc::prelude::*;
use crate::rpc::schemas::into_strings;
use crate::rpc::v2::schemas::{RoleName, RoleReply};

/// Add roles to a key.
///
/// Each role must exist. The reply contains all roles of the key after the change.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddRoles {
    pub key_id: Id,
    /// Role names.
    pub roles: List<RoleName, 1, 100>,
}

impl Operation for AddRoles {
    const NAME: &'static str = "keys.addRoles";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::UpdateKey, Action::AddRoleToKey]);
    const WRITES: bool = true;
    type Reply = Vec<RoleReply>;

    fn example() -> Value {
        json!({ "keyId": example::KEY_ID, "roles": [example::SPARE_ROLE] })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Vec<RoleReply>> {
        let id = KeyId::from(self.key_id.into_string());
        let selectors = Selector::from_names(into_strings(self.roles), MissingPolicy::Reject);
        let changed =
            roles::add(&app.context, caller, &id, selectors, AssignmentAccess::KeyAndAssignments)
                .await?;
        Ok(changed.after.into_iter().map(RoleReply::from).collect())
    }
}
