use domain::apis;
use foundation::id::ApiId;

use crate::prelude::*;
use crate::reply::EmptyReply;
use crate::v1::schemas::IdOrName;

/// Delete an API.
///
/// Its keys become invalid immediately.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeleteApi {
    pub api_id: IdOrName,
}

impl Operation for DeleteApi {
    const NAME: &'static str = "apis.deleteApi";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::DeleteApi]);
    const WRITES: bool = true;
    type Reply = EmptyReply;

    fn example() -> Value {
        json!({ "apiId": example::API })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<EmptyReply> {
        apis::delete(&app.context, caller, &ApiId::from(self.api_id.into_string())).await?;
        Ok(EmptyReply)
    }
}
