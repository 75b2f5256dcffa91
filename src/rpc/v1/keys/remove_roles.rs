use crate::domain::keys::{Rights, roles};
use crate::domain::rbac::Missing;
use crate::id::KeyId;
use crate::rpc::prelude::*;
use crate::rpc::reply::Nothing;
use crate::rpc::v1::shapes::{Item, Name, picks};

/// Remove roles from a key.
///
/// One that the key does not have, or that does not exist, is passed over.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemoveRoles {
    pub key_id: Name,
    pub roles: List<Object<Item>, 1, 100>,
}

impl Operation for RemoveRoles {
    const NAME: &'static str = "keys.removeRoles";
    const NEEDS: Needs = Needs::Permission(&[Action::RemoveRoleFromKey]);
    const WRITES: bool = true;
    type Reply = Nothing;

    fn example() -> Value {
        json!({ "keyId": example::KEY_ID, "roles": [{ "name": example::ROLE }] })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Nothing> {
        let id = KeyId::from(self.key_id.into_string());
        let picks = picks("roles", self.roles, Missing::Ignored)?;
        roles::remove(app, caller, &id, picks, Rights::LinksOnly).await?;
        Ok(Nothing)
    }
}
