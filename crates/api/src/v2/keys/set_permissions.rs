use domain::keys::AssignmentChange;
use domain::rbac::{MissingPolicy, Selector};
use foundation::model::Permission;

use crate::prelude::*;
use crate::schemas::{PermissionReply, into_strings};
use crate::v2::schemas::{Slugs, change_assignments};

/// Set the permissions of a key.
///
/// Replaces the direct permissions of the key. A missing permission is created if the root key has
/// `rbac.*.create_permission`; otherwise, nothing is changed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetPermissions {
    pub key_id: Id,
    /// Permission slugs, or ids of existing permissions.
    pub permissions: Slugs,
}

impl Operation for SetPermissions {
    const NAME: &'static str = "keys.setPermissions";
    const ACCESS: AccessRule = AccessRule::Permission(&[
        Action::UpdateKey,
        Action::AddPermissionToKey,
        Action::RemovePermissionFromKey,
    ]);
    const WRITES: bool = true;
    type Reply = Vec<PermissionReply>;

    fn example() -> Value {
        json!({ "keyId": example::KEY_ID, "permissions": ["documents.write"] })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Vec<PermissionReply>> {
        let selectors =
            Selector::from_ids_or_slugs(into_strings(self.permissions), MissingPolicy::Create);
        change_assignments::<Permission, _>(
            app,
            caller,
            self.key_id,
            AssignmentChange::Set,
            selectors,
        )
        .await
    }
}
