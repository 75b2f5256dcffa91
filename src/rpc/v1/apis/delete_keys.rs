use foundation::id::ApiId;

use crate::domain::apis;
use crate::domain::keys::Deletion;
use crate::rpc::prelude::*;
use crate::rpc::v1::schemas::Name;

/// Delete all keys of an API.
///
/// They stop verifying. Very many go in several steps: where the call is broken off, repeat it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeleteKeys {
    pub api_id: Name,
    /// Whether nothing is left of them, of those too that were deleted before.
    #[serde(default)]
    pub permanent: Optional<bool>,
}

/// How many they were.
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
