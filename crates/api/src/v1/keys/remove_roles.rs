use domain::bounds::KEY_ROLES_MAX;
use domain::keys::AssignmentChange;
use domain::rbac::MissingPolicy;
use foundation::model::Role;

use crate::prelude::*;
use crate::reply::EmptyReply;
use crate::v1::schemas::{AssignmentItem, IdOrName, change_assignments, to_selectors};

/// Remove roles from a key.
///
/// Roles that the key does not have, or that do not exist, are ignored.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemoveRoles {
    pub key_id: IdOrName,
    pub roles: List<Object<AssignmentItem>, 1, KEY_ROLES_MAX>,
}

impl Operation for RemoveRoles {
    const NAME: &'static str = "keys.removeRoles";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::RemoveRoleFromKey]);
    const WRITES: bool = true;
    type Reply = EmptyReply;

    fn example() -> Value {
        json!({ "keyId": example::KEY_ID, "roles": [{ "name": example::ROLE }] })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<EmptyReply> {
        let selectors = to_selectors("roles", self.roles, MissingPolicy::Ignore)?;
        change_assignments::<Role>(app, caller, self.key_id, AssignmentChange::Remove, selectors)
            .await?;
        Ok(EmptyReply)
    }
}
