use crate::domain::identities::{self, IdentityRef};
use crate::rpc::prelude::*;
use crate::rpc::v2::schemas::{IdentityName, IdentityReply};

/// Get an identity.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetIdentity {
    /// The id or externalId of the identity.
    pub identity: IdentityName,
}

impl Operation for GetIdentity {
    const NAME: &'static str = "identities.getIdentity";
    const NEEDS: AccessRule = AccessRule::Permission(&[Action::ReadIdentity]);
    type Reply = IdentityReply;

    fn example() -> Value {
        json!({ "identity": example::EXTERNAL_ID })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<IdentityReply> {
        Ok(identities::get(app, caller, &IdentityRef::Either(self.identity.into_string()))
            .await?
            .into())
    }
}
