use domain::identities::{self, IdentityRef};

use crate::prelude::*;
use crate::reply::EmptyReply;
use crate::v2::schemas::IdentityIdOrExternalId;

/// Delete an identity.
///
/// Its keys stay valid, without the meta and the rate limits of the identity. Its externalId can be used again
/// immediately; a later identity with the same externalId is not connected to these keys.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeleteIdentity {
    /// The id or externalId of the identity.
    pub identity: IdentityIdOrExternalId,
}

impl Operation for DeleteIdentity {
    const NAME: &'static str = "identities.deleteIdentity";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::DeleteIdentity]);
    const WRITES: bool = true;
    const USES_PROBLEM_JSON: bool = true;
    type Reply = EmptyReply;

    fn example() -> Value {
        json!({ "identity": example::EXTERNAL_ID })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<EmptyReply> {
        identities::delete(
            &app.context,
            caller,
            &IdentityRef::IdOrExternalId(self.identity.into_string()),
        )
        .await?;
        Ok(EmptyReply)
    }
}
