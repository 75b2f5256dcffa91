use foundation::id::ApiId;

use crate::domain::apis;
use crate::rpc::prelude::*;

/// Get an API.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetApi {
    pub api_id: Text<8, 255, crate::rpc::bounds::Word>,
}

/// An API.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Api {
    id: ApiId,
    name: String,
}

impl Operation for GetApi {
    const NAME: &'static str = "apis.getApi";
    const NEEDS: AccessRule = AccessRule::Permission(&[Action::ReadApi]);
    type Reply = Api;

    fn example() -> Value {
        json!({ "apiId": example::API })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Api> {
        let api = apis::get(app, caller, &ApiId::from(self.api_id.into_string())).await?;
        Ok(Api { id: api.id, name: api.name })
    }
}
