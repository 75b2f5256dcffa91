use crate::domain::keys::roles;
use crate::id::KeyId;
use crate::rpc::prelude::*;
use crate::rpc::v2::shapes::{RoleName, RoleReply, texts};

/// Set the roles of a key.
///
/// They replace those that it has; each must exist.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetRoles {
    pub key_id: Id,
    /// Names.
    pub roles: List<RoleName, 0, 100>,
}

impl Operation for SetRoles {
    const NAME: &'static str = "keys.setRoles";
    const NEEDS: Needs = Needs::Permission(&[Action::UpdateKey]);
    const WRITES: bool = true;
    type Reply = Vec<RoleReply>;

    fn example() -> Value {
        json!({ "keyId": example::KEY_ID, "roles": [example::SPARE_ROLE] })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Vec<RoleReply>> {
        let id = KeyId::from(self.key_id.into_string());
        let has = roles::set(app, caller, &id, texts(self.roles)).await?;
        Ok(has.into_iter().map(RoleReply::from).collect())
    }
}
