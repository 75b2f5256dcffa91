use domain::apis;
use foundation::id::ApiId;

use crate::prelude::*;
use crate::schemas::Empty;

/// Delete an API.
///
/// Its keys become invalid immediately.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeleteApi {
    pub api_id: Text<8, 255, crate::bounds::WordChars>,
}

impl Operation for DeleteApi {
    const NAME: &'static str = "apis.deleteApi";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::DeleteApi]);
    const WRITES: bool = true;
    type Reply = Empty;

    fn example() -> Value {
        json!({ "apiId": example::API })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Empty> {
        apis::delete(&app.context, caller, &ApiId::from(self.api_id.into_string())).await?;
        Ok(Empty {})
    }
}
