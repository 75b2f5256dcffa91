use domain::identities;

use super::schemas::{IdentityReply, to_identity_ref};
use crate::prelude::*;
use crate::v1::schemas::IdOrName;

/// Get an identity.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GetIdentity {
    /// The identity id. It takes precedence over `externalId`.
    #[serde(default)]
    pub identity_id: Optional<IdOrName>,
    #[serde(default)]
    pub external_id: Optional<IdOrName>,
}

impl Operation for GetIdentity {
    const NAME: &'static str = "identities.getIdentity";
    const METHOD: HttpMethod = HttpMethod::Get;
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::ReadIdentity]);
    type Reply = IdentityReply;

    fn example() -> Value {
        json!({ "externalId": example::EXTERNAL_ID })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<IdentityReply> {
        let identity = to_identity_ref(self.identity_id, self.external_id)?;
        Ok(identities::get(&app.context, caller, &identity).await?.into())
    }
}
