use domain::apis;
use foundation::id::ApiId;

use crate::prelude::*;

/// Create an API.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreateApi {
    /// The name of the API. It need not be unique.
    pub name: Text<3, 255, Printable>,
}

/// The new API.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreateApiReply {
    api_id: ApiId,
    name: String,
}

impl Operation for CreateApi {
    const NAME: &'static str = "apis.createApi";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::CreateApi]);
    const WRITES: bool = true;
    type Reply = CreateApiReply;

    fn example() -> Value {
        json!({ "name": "payments" })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<CreateApiReply> {
        let name = self.name.into_string();
        Ok(CreateApiReply { api_id: apis::create(&app.context, caller, name.clone()).await?, name })
    }
}
