use domain::bounds::KEY_ROLES_MAX;
use domain::keys::AssignmentChange;
use domain::rbac::{MissingPolicy, Selector};
use foundation::model::Role;

use crate::prelude::*;
use crate::schemas::into_strings;
use crate::v2::schemas::{RoleName, RoleReply, change_assignments};

/// Remove roles from a key.
///
/// Each role must exist; roles that the key does not have are ignored. The reply contains all roles of the key after
/// the change.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RemoveRoles {
    pub key_id: Id,
    /// Role names.
    pub roles: List<RoleName, 1, KEY_ROLES_MAX>,
}

impl Operation for RemoveRoles {
    const NAME: &'static str = "keys.removeRoles";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::UpdateKey]);
    const WRITES: bool = true;
    type Reply = Vec<RoleReply>;

    fn example() -> Value {
        json!({ "keyId": example::KEY_ID, "roles": [example::ROLE] })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Vec<RoleReply>> {
        let selectors = Selector::from_names(into_strings(self.roles), MissingPolicy::Reject);
        change_assignments::<Role, _>(app, caller, self.key_id, AssignmentChange::Remove, selectors)
            .await
    }
}
