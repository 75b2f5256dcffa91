use domain::keys::{AssignmentAccess, permissions};
use domain::rbac::MissingPolicy;
use foundation::id::KeyId;

use crate::rpc::prelude::*;
use crate::rpc::v1::schemas::{AssignmentItem, AssignmentReply, IdOrName, to_selectors};

/// Set the permissions of a key.
///
/// Replaces the direct permissions of the key. Removing any of them also requires `rbac.*.remove_permission_from_key`.
/// A missing permission is created if its item has `create` and the root key has `rbac.*.create_permission`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SetPermissions {
    pub key_id: IdOrName,
    pub permissions: List<Object<AssignmentItem>, 1, 1000>,
}

impl Operation for SetPermissions {
    const NAME: &'static str = "keys.setPermissions";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::AddPermissionToKey]);
    const WRITES: bool = true;
    type Reply = Vec<AssignmentReply>;

    fn example() -> Value {
        json!({ "keyId": example::KEY_ID, "permissions": [{ "name": "documents.write", "create": true }] })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Vec<AssignmentReply>> {
        let id = KeyId::from(self.key_id.into_string());
        let selectors = to_selectors("permissions", self.permissions, MissingPolicy::Reject)?;
        let changed = permissions::set(
            &app.context,
            caller,
            &id,
            selectors,
            AssignmentAccess::AssignmentsOnly,
        )
        .await?;
        Ok(changed.selected.into_iter().map(AssignmentReply::from).collect())
    }
}
