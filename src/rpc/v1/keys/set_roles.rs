use domain::keys::{AssignmentAccess, roles};
use domain::rbac::MissingPolicy;
use foundation::id::KeyId;

use crate::rpc::prelude::*;
use crate::rpc::v1::schemas::{AssignmentItem, AssignmentReply, IdOrName, to_selectors};

/// Set the roles of a key.
///
/// Replaces the roles of the key. Removing any of them also requires `rbac.*.remove_role_from_key`. A missing role is
/// created if its item has `create` and the root key has `rbac.*.create_role`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SetRoles {
    pub key_id: IdOrName,
    pub roles: List<Object<AssignmentItem>, 1, 100>,
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
        let id = KeyId::from(self.key_id.into_string());
        let selectors = to_selectors("roles", self.roles, MissingPolicy::Reject)?;
        let changed =
            roles::set(&app.context, caller, &id, selectors, AssignmentAccess::AssignmentsOnly)
                .await?;
        Ok(changed.selected.into_iter().map(AssignmentReply::from).collect())
    }
}
