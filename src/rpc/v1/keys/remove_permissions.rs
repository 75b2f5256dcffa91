use domain::keys::{AssignmentAccess, permissions};
use domain::rbac::MissingPolicy;
use foundation::id::KeyId;

use crate::rpc::prelude::*;
use crate::rpc::reply::EmptyReply;
use crate::rpc::v1::schemas::{AssignmentItem, IdOrName, to_selectors};

/// Remove permissions from a key.
///
/// Permissions that the key does not have, or that do not exist, are ignored.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemovePermissions {
    pub key_id: IdOrName,
    pub permissions: List<Object<AssignmentItem>, 1, 1000>,
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
        let id = KeyId::from(self.key_id.into_string());
        let selectors = to_selectors("permissions", self.permissions, MissingPolicy::Ignore)?;
        permissions::remove(
            &app.context,
            caller,
            &id,
            selectors,
            AssignmentAccess::AssignmentsOnly,
        )
        .await?;
        Ok(EmptyReply)
    }
}
