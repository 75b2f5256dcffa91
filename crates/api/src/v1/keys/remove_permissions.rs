use domain::bounds::PERMISSIONS_MAX;
use domain::keys::AssignmentChange;
use domain::rbac::MissingPolicy;
use foundation::model::Permission;

use crate::prelude::*;
use crate::reply::EmptyReply;
use crate::v1::schemas::{AssignmentItem, IdOrName, change_assignments, to_selectors};

/// Remove permissions from a key.
///
/// Permissions that the key does not have, or that do not exist, are ignored.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemovePermissions {
    pub key_id: IdOrName,
    pub permissions: List<Object<AssignmentItem>, 1, PERMISSIONS_MAX>,
}

impl Operation for RemovePermissions {
    const NAME: &'static str = "keys.removePermissions";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::RemovePermissionFromKey]);
    const WRITES: bool = true;
    type Reply = EmptyReply;

    fn example() -> Value {
        json!({ "keyId": example::KEY_ID, "permissions": [{ "name": "documents.read" }] })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<EmptyReply> {
        let selectors = to_selectors("permissions", self.permissions, MissingPolicy::Ignore)?;
        change_assignments::<Permission>(
            app,
            caller,
            self.key_id,
            AssignmentChange::Remove,
            selectors,
        )
        .await?;
        Ok(EmptyReply)
    }
}
