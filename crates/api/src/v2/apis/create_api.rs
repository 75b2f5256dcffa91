use domain::apis;
use domain::bounds::{API_NAME_MAX, API_NAME_MIN};
use foundation::id::ApiId;

use crate::prelude::*;

/// Create an API.
///
/// An API is a set of keys that a backend accepts. Names need not be unique.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateApi {
    /// The name of the API.
    pub name: Text<API_NAME_MIN, API_NAME_MAX, Printable>,
}

/// The new API.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreateApiReply {
    api_id: ApiId,
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
        let api_id = apis::create(&app.context, caller, self.name.into_string()).await?;
        Ok(CreateApiReply { api_id })
    }
}
