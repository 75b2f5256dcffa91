use super::schemas::{IdentityReply, called};
use crate::domain::identities;
use crate::rpc::prelude::*;
use crate::rpc::v1::schemas::Name;

/// Get an identity.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GetIdentity {
    /// The identity id. It takes precedence over `externalId`.
    #[serde(default)]
    pub identity_id: Optional<Name>,
    #[serde(default)]
    pub external_id: Optional<Name>,
}

impl Operation for GetIdentity {
    const NAME: &'static str = "identities.getIdentity";
    const VERB: Verb = Verb::Get;
    const NEEDS: AccessRule = AccessRule::Permission(&[Action::ReadIdentity]);
    type Reply = IdentityReply;

    fn example() -> Value {
        json!({ "externalId": example::EXTERNAL_ID })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<IdentityReply> {
        let identity = called(self.identity_id, self.external_id)?;
        Ok(identities::get(app, caller, &identity).await?.into())
    }
}
