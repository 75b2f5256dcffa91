use foundation::id::KeyId;

use crate::domain::keys::{AssignmentAccess, roles};
use crate::domain::rbac::MissingPolicy;
use crate::rpc::prelude::*;
use crate::rpc::v1::schemas::{Connected, Item, Name, picks};

/// Set the roles of a key.
///
/// Replaces the roles of the key. Removing any of them also requires `rbac.*.remove_role_from_key`. A missing role is
/// created if its item has `create` and the root key has `rbac.*.create_role`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SetRoles {
    pub key_id: Name,
    pub roles: List<Object<Item>, 1, 100>,
}

impl Operation for SetRoles {
    const NAME: &'static str = "keys.setRoles";
    const NEEDS: AccessRule = AccessRule::Permission(&[Action::AddRoleToKey]);
    const WRITES: bool = true;
    type Reply = Vec<Connected>;

    fn example() -> Value {
        json!({ "keyId": example::KEY_ID, "roles": [{ "name": example::SPARE_ROLE }] })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Vec<Connected>> {
        let id = KeyId::from(self.key_id.into_string());
        let selectors = picks("roles", self.roles, MissingPolicy::Refused)?;
        let changed = roles::set(app, caller, &id, selectors, AssignmentAccess::LinksOnly).await?;
        Ok(changed.picked.into_iter().map(Connected::from).collect())
    }
}
