use domain::identities::{self, IdentityRef};

use crate::prelude::*;
use crate::v2::schemas::{IdentityIdOrExternalId, IdentityReply};

/// Get an identity.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetIdentity {
    /// The id or externalId of the identity.
    pub identity: IdentityIdOrExternalId,
}

impl Operation for GetIdentity {
    const NAME: &'static str = "identities.getIdentity";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::ReadIdentity]);
    type Reply = IdentityReply;

    fn example() -> Value {
        json!({ "identity": example::EXTERNAL_ID })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<IdentityReply> {
        Ok(identities::get(
            &app.context,
            caller,
            &IdentityRef::IdOrExternalId(self.identity.into_string()),
        )
        .await?
        .into())
    }
}
