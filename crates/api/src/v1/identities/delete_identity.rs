use domain::identities::{self, IdentityRef};

use crate::prelude::*;
use crate::reply::EmptyReply;
use crate::v1::schemas::IdOrName;

/// Delete an identity.
///
/// Its keys stay valid, without the meta and the rate limits of the identity.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeleteIdentity {
    pub identity_id: IdOrName,
}

impl Operation for DeleteIdentity {
    const NAME: &'static str = "identities.deleteIdentity";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::DeleteIdentity]);
    const WRITES: bool = true;
    type Reply = EmptyReply;

    fn example() -> Value {
        json!({ "identityId": example::IDENTITY_ID })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<EmptyReply> {
        identities::delete(&app.context, caller, &IdentityRef::Id(self.identity_id.into_string()))
            .await?;
        Ok(EmptyReply)
    }
}
