use domain::apis;
use domain::keys::Deletion;
use foundation::id::ApiId;

use crate::prelude::*;
use crate::v1::schemas::IdOrName;

/// Delete all keys of an API.
///
/// The keys become invalid. A large number of keys is deleted in several steps: if the call is interrupted, repeat it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeleteKeys {
    pub api_id: IdOrName,
    /// Whether to erase the keys completely, including keys that were deleted before.
    #[serde(default)]
    pub permanent: Optional<bool>,
}

/// The number of deleted keys.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeleteKeysReply {
    deleted_keys: usize,
}

impl Operation for DeleteKeys {
    const NAME: &'static str = "apis.deleteKeys";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::DeleteKey]);
    const WRITES: bool = true;
    type Reply = DeleteKeysReply;

    fn example() -> Value {
        json!({ "apiId": example::API })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<DeleteKeysReply> {
        let id = ApiId::from(self.api_id.into_string());
        let deletion = match self.permanent.unwrap_or(false) {
            true => Deletion::Permanent,
            false => Deletion::Soft,
        };
        Ok(DeleteKeysReply {
            deleted_keys: apis::delete_keys(&app.context, caller, &id, deletion).await?,
        })
    }
}
