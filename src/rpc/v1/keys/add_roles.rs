use foundation::id::KeyId;

use crate::domain::keys::{AssignmentAccess, roles};
use crate::domain::rbac::MissingPolicy;
use crate::rpc::prelude::*;
use crate::rpc::v1::schemas::{Connected, Item, Name, picks};

/// Add roles to a key.
///
/// The reply contains the requested roles. A missing role is created if its item has `create` and the root key has
/// `rbac.*.create_role`; otherwise, nothing is changed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddRoles {
    pub key_id: Name,
    pub roles: List<Object<Item>, 1, 100>,
}

impl Operation for AddRoles {
    const NAME: &'static str = "keys.addRoles";
    const NEEDS: AccessRule = AccessRule::Permission(&[Action::AddRoleToKey]);
    const WRITES: bool = true;
    type Reply = Vec<Connected>;

    fn example() -> Value {
        json!({ "keyId": example::KEY_ID, "roles": [{ "name": example::SPARE_ROLE }] })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Vec<Connected>> {
        let id = KeyId::from(self.key_id.into_string());
        let selectors = picks("roles", self.roles, MissingPolicy::Refused)?;
        let changed = roles::add(app, caller, &id, selectors, AssignmentAccess::LinksOnly).await?;
        Ok(changed.picked.into_iter().map(Connected::from).collect())
    }
}
