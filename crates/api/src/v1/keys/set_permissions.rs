use domain::bounds::PERMISSIONS_MAX;
use domain::keys::AssignmentChange;
use domain::rbac::MissingPolicy;
use foundation::model::Permission;

use crate::prelude::*;
use crate::v1::schemas::{
    AssignmentItem, AssignmentReply, IdOrName, change_assignments, to_selectors,
};

/// Set the permissions of a key.
///
/// Replaces the direct permissions of the key. Removing any of them also requires `rbac.*.remove_permission_from_key`.
/// A missing permission is created if its item has `create` and the root key has `rbac.*.create_permission`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SetPermissions {
    pub key_id: IdOrName,
    pub permissions: List<Object<AssignmentItem>, 1, PERMISSIONS_MAX>,
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
        let selectors = to_selectors("permissions", self.permissions, MissingPolicy::Reject)?;
        change_assignments::<Permission>(app, caller, self.key_id, AssignmentChange::Set, selectors)
            .await
    }
}
