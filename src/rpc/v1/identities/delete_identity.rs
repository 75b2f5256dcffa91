use crate::domain::identities::{self, Called};
use crate::rpc::prelude::*;
use crate::rpc::reply::Nothing;
use crate::rpc::v1::shapes::Name;

/// Delete an identity.
///
/// Its keys go on without its meta and its limits.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeleteIdentity {
    pub identity_id: Name,
}

impl Operation for DeleteIdentity {
    const NAME: &'static str = "identities.deleteIdentity";
    const NEEDS: Needs = Needs::Permission(&[Action::DeleteIdentity]);
    const WRITES: bool = true;
    type Reply = Nothing;

    fn example() -> Value {
        json!({ "identityId": example::IDENTITY_ID })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Nothing> {
        identities::delete(app, caller, &Called::Id(self.identity_id.into_string())).await?;
        Ok(Nothing)
    }
}
