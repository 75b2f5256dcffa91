use domain::keys::AssignmentChange;
use domain::rbac::{MissingPolicy, Selector};
use foundation::model::Role;

use crate::prelude::*;
use crate::schemas::into_strings;
use crate::v2::schemas::{RoleNames, RoleReply, change_assignments};

/// Set the roles of a key.
///
/// Replaces the roles of the key. Each role must exist.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetRoles {
    pub key_id: Id,
    /// Role names.
    pub roles: RoleNames,
}

impl Operation for SetRoles {
    const NAME: &'static str = "keys.setRoles";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::UpdateKey]);
    const WRITES: bool = true;
    type Reply = Vec<RoleReply>;

    fn example() -> Value {
        json!({ "keyId": example::KEY_ID, "roles": [example::SPARE_ROLE] })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Vec<RoleReply>> {
        let selectors = Selector::from_names(into_strings(self.roles), MissingPolicy::Reject);
        change_assignments::<Role, _>(app, caller, self.key_id, AssignmentChange::Set, selectors)
            .await
    }
}
