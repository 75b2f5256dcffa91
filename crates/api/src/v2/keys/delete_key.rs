use domain::keys::{self, Deletion};
use foundation::id::KeyId;

use crate::prelude::*;
use crate::schemas::Empty;

/// Delete a key.
///
/// The key becomes invalid immediately, and requests can no longer refer to it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeleteKey {
    pub key_id: Id,
    /// Whether to erase the key completely. Default: its record is kept and its hash stays reserved.
    #[serde(default)]
    pub permanent: Optional<bool>,
}

impl Operation for DeleteKey {
    const NAME: &'static str = "keys.deleteKey";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::DeleteKey]);
    const WRITES: bool = true;
    type Reply = Empty;

    fn example() -> Value {
        json!({ "keyId": example::KEY_ID })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Empty> {
        let id = KeyId::from(self.key_id.into_string());
        let deletion =
            if self.permanent.unwrap_or(false) { Deletion::Permanent } else { Deletion::Soft };
        keys::delete(&app.context, caller, &id, deletion).await?;
        Ok(Empty {})
    }
}
