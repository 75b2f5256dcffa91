use crate::domain::keys::{Rights, permissions};
use crate::domain::rbac::Missing;
use crate::id::KeyId;
use crate::rpc::prelude::*;
use crate::rpc::reply::Nothing;
use crate::rpc::v1::shapes::{Item, Name, picks};

/// Remove permissions from a key.
///
/// One that the key does not have, or that does not exist, is passed over.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemovePermissions {
    pub key_id: Name,
    pub permissions: List<Object<Item>, 1, 1000>,
}

impl Operation for RemovePermissions {
    const NAME: &'static str = "keys.removePermissions";
    const NEEDS: Needs = Needs::Permission(&[Action::RemovePermissionFromKey]);
    const WRITES: bool = true;
    type Reply = Nothing;

    fn example() -> Value {
        json!({ "keyId": example::KEY_ID, "permissions": [{ "name": "documents.read" }] })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Nothing> {
        let id = KeyId::from(self.key_id.into_string());
        let picks = picks("permissions", self.permissions, Missing::Ignored)?;
        permissions::remove(app, caller, &id, picks, Rights::LinksOnly).await?;
        Ok(Nothing)
    }
}
