use crate::domain::keys::{Rights, roles};
use crate::domain::rbac::{Missing, Pick};
use crate::id::KeyId;
use crate::rpc::prelude::*;
use crate::rpc::shapes::texts;
use crate::rpc::v2::shapes::{RoleName, RoleReply};

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
        let picks = Pick::named(texts(self.roles), Missing::Refused);
        let changed = roles::set(app, caller, &id, picks, Rights::KeyToo).await?;
        Ok(changed.after.into_iter().map(RoleReply::from).collect())
    }
}
