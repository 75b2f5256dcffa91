use domain::keys::{AssignmentAccess, roles};
use domain::rbac::MissingPolicy;
use foundation::id::KeyId;

use crate::rpc::prelude::*;
use crate::rpc::reply::EmptyReply;
use crate::rpc::v1::schemas::{AssignmentItem, IdOrName, to_selectors};

/// Remove roles from a key.
///
/// Roles that the key does not have, or that do not exist, are ignored.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemoveRoles {
    pub key_id: IdOrName,
    pub roles: List<Object<AssignmentItem>, 1, 100>,
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
        let id = KeyId::from(self.key_id.into_string());
        let selectors = to_selectors("roles", self.roles, MissingPolicy::Ignore)?;
        roles::remove(&app.context, caller, &id, selectors, AssignmentAccess::AssignmentsOnly)
            .await?;
        Ok(EmptyReply)
    }
}
