use domain::bounds::PERMISSIONS_MAX;
use domain::keys::AssignmentChange;
use domain::rbac::{MissingPolicy, Selector};
use foundation::model::Permission;

use crate::prelude::*;
use crate::schemas::{PermissionReply, into_strings};
use crate::v2::schemas::change_assignments;

/// Remove permissions from a key.
///
/// Each permission must exist; permissions that the key does not have are ignored. The key keeps the permissions of its
/// roles. The reply contains all direct permissions of the key after the change.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RemovePermissions {
    pub key_id: Id,
    /// Permission slugs or ids.
    pub permissions: List<Slug, 1, PERMISSIONS_MAX>,
}

impl Operation for RemovePermissions {
    const NAME: &'static str = "keys.removePermissions";
    const ACCESS: AccessRule =
        AccessRule::Permission(&[Action::UpdateKey, Action::RemovePermissionFromKey]);
    const WRITES: bool = true;
    type Reply = Vec<PermissionReply>;

    fn example() -> Value {
        json!({ "keyId": example::KEY_ID, "permissions": [example::PERMISSION] })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Vec<PermissionReply>> {
        let selectors =
            Selector::from_ids_or_slugs(into_strings(self.permissions), MissingPolicy::Reject);
        change_assignments::<Permission, _>(
            app,
            caller,
            self.key_id,
            AssignmentChange::Remove,
            selectors,
        )
        .await
    }
}
