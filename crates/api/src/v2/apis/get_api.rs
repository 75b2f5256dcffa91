use domain::apis;
use foundation::id::ApiId;

use crate::prelude::*;

/// Get an API.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetApi {
    pub api_id: Text<8, 255, crate::bounds::WordChars>,
}

/// An API.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiReply {
    id: ApiId,
    name: String,
}

impl Operation for GetApi {
    const NAME: &'static str = "apis.getApi";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::ReadApi]);
    type Reply = ApiReply;

    fn example() -> Value {
        json!({ "apiId": example::API })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<ApiReply> {
        let api = apis::get(&app.context, caller, &ApiId::from(self.api_id.into_string())).await?;
        Ok(ApiReply { id: api.id, name: api.name })
    }
}
