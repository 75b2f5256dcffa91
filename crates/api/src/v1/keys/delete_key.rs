use domain::keys::{self, Deletion};
use foundation::id::KeyId;

use crate::prelude::*;
use crate::reply::EmptyReply;
use crate::v1::schemas::IdOrName;

/// Delete a key.
///
/// The key becomes invalid immediately.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeleteKey {
    pub key_id: IdOrName,
    /// Whether to erase the key completely. Otherwise, its hash stays reserved.
    #[serde(default)]
    pub permanent: Optional<bool>,
}

impl Operation for DeleteKey {
    const NAME: &'static str = "keys.deleteKey";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::DeleteKey]);
    const WRITES: bool = true;
    type Reply = EmptyReply;

    fn example() -> Value {
        json!({ "keyId": example::KEY_ID })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<EmptyReply> {
        let id = KeyId::from(self.key_id.into_string());
        let deletion = match self.permanent.unwrap_or(false) {
            true => Deletion::Permanent,
            false => Deletion::Soft,
        };
        keys::delete(&app.context, caller, &id, deletion).await?;
        Ok(EmptyReply)
    }
}
