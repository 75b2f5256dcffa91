use foundation::id::{ApiId, WorkspaceId};

use crate::domain::apis;
use crate::rpc::prelude::*;
use crate::rpc::v1::schemas::Name;

/// Get an API.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GetApi {
    pub api_id: Name,
}

/// An API.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Api {
    id: ApiId,
    workspace_id: WorkspaceId,
    name: String,
}

impl Operation for GetApi {
    const NAME: &'static str = "apis.getApi";
    const VERB: Verb = Verb::Get;
    const NEEDS: AccessRule = AccessRule::Permission(&[Action::ReadApi]);
    type Reply = Api;

    fn example() -> Value {
        json!({ "apiId": example::API })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Api> {
        let api = apis::get(app, caller, &ApiId::from(self.api_id.into_string())).await?;
        Ok(Api { id: api.id, workspace_id: api.workspace_id, name: api.name })
    }
}
