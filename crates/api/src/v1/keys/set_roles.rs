use domain::bounds::KEY_ROLES_MAX;
use domain::keys::AssignmentChange;
use domain::rbac::MissingPolicy;
use foundation::model::Role;

use crate::prelude::*;
use crate::v1::schemas::{
    AssignmentItem, AssignmentReply, IdOrName, change_assignments, to_selectors,
};

/// Set the roles of a key.
///
/// Replaces the roles of the key. Removing any of them also requires `rbac.*.remove_role_from_key`. A missing role is
/// created if its item has `create` and the root key has `rbac.*.create_role`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SetRoles {
    pub key_id: IdOrName,
    pub roles: List<Object<AssignmentItem>, 1, KEY_ROLES_MAX>,
}

impl Operation for SetRoles {
    const NAME: &'static str = "keys.setRoles";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::AddRoleToKey]);
    const WRITES: bool = true;
    type Reply = Vec<AssignmentReply>;

    fn example() -> Value {
        json!({ "keyId": example::KEY_ID, "roles": [{ "name": example::SPARE_ROLE }] })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Vec<AssignmentReply>> {
        let selectors = to_selectors("roles", self.roles, MissingPolicy::Reject)?;
        change_assignments::<Role>(app, caller, self.key_id, AssignmentChange::Set, selectors).await
    }
}
