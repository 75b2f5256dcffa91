use domain::bounds::KEY_ROLES_MAX;
use domain::keys::AssignmentChange;
use domain::rbac::MissingPolicy;
use foundation::model::Role;

use crate::prelude::*;
use crate::v1::schemas::{
    AssignmentItem, AssignmentReply, IdOrName, change_assignments, to_selectors,
};

/// Add roles to a key.
///
/// The reply contains the requested roles. A missing role is created if its item has `create` and the root key has
/// `rbac.*.create_role`; otherwise, nothing is changed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddRoles {
    pub key_id: IdOrName,
    pub roles: List<Object<AssignmentItem>, 1, KEY_ROLES_MAX>,
}

impl Operation for AddRoles {
    const NAME: &'static str = "keys.addRoles";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::AddRoleToKey]);
    const WRITES: bool = true;
    type Reply = Vec<AssignmentReply>;

    fn example() -> Value {
        json!({ "keyId": example::KEY_ID, "roles": [{ "name": example::SPARE_ROLE }] })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Vec<AssignmentReply>> {
        let selectors = to_selectors("roles", self.roles, MissingPolicy::Reject)?;
        change_assignments::<Role>(app, caller, self.key_id, AssignmentChange::Add, selectors).await
    }
}
