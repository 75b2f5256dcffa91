use crate::domain::identities::{self, Called};
use crate::rpc::prelude::*;
use crate::rpc::v2::shapes::{IdentityName, IdentityReply};

/// Get an identity.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetIdentity {
    /// Its id or its externalId.
    pub identity: IdentityName,
}

impl Operation for GetIdentity {
    const NAME: &'static str = "identities.getIdentity";
    const NEEDS: Needs = Needs::Permission(&[Action::ReadIdentity]);
    type Reply = IdentityReply;

    fn example() -> Value {
        json!({ "identity": example::EXTERNAL_ID })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<IdentityReply> {
        Ok(identities::get(app, caller, &Called::Either(self.identity.into_string())).await?.into())
    }
}
