use domain::apis;
use foundation::id::{ApiId, WorkspaceId};

use crate::prelude::*;
use crate::v1::schemas::IdOrName;

/// Get an API.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GetApi {
    pub api_id: IdOrName,
}

/// An API.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiReply {
    id: ApiId,
    workspace_id: WorkspaceId,
    name: String,
}

impl Operation for GetApi {
    const NAME: &'static str = "apis.getApi";
    const METHOD: HttpMethod = HttpMethod::Get;
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::ReadApi]);
    type Reply = ApiReply;

    fn example() -> Value {
        json!({ "apiId": example::API })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<ApiReply> {
        let api = apis::get(&app.context, caller, &ApiId::from(self.api_id.into_string())).await?;
        Ok(ApiReply { id: api.id, workspace_id: api.workspace_id, name: api.name })
    }
}
