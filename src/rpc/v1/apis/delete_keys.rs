use foundation::id::ApiId;

use crate::domain::apis;
use crate::domain::keys::Deletion;
use crate::rpc::prelude::*;
use crate::rpc::v1::schemas::Name;

/// Delete all keys of an API.
///
/// The keys become invalid. A large number of keys is deleted in several steps: if the call is interrupted, repeat it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeleteKeys {
    pub api_id: Name,
    /// Whether to erase the keys completely, including keys that were deleted before.
    #[serde(default)]
    pub permanent: Optional<bool>,
}

/// The number of deleted keys.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Deleted {
    deleted_keys: usize,
}

impl Operation for DeleteKeys {
    const NAME: &'static str = "apis.deleteKeys";
    const NEEDS: AccessRule = AccessRule::Permission(&[Action::DeleteKey]);
    const WRITES: bool = true;
    type Reply = Deleted;

    fn example() -> Value {
        json!({ "apiId": example::API })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Deleted> {
        let id = ApiId::from(self.api_id.into_string());
        let deletion = match self.permanent.unwrap_or(false) {
            true => Deletion::Permanent,
            false => Deletion::Soft,
        };
        Ok(Deleted { deleted_keys: apis::delete_keys(app, caller, &id, deletion).await? })
    }
}
