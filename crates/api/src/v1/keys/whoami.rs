use domain::keys::{self, FoundKey};
use foundation::clock::Timestamp;
use foundation::id::{IdentityId, KeyId};

use crate::bounds::AnyChar;
use crate::prelude::*;
use crate::schemas::non_empty_meta;

/// The maximum size of the body. A key has no other bound: one that is too long to exist is not found.
const BODY_BYTES: usize = 1024 * 1024;

/// Identify a key.
///
/// Returns the key that the plaintext belongs to. Nothing is checked or spent.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Whoami {
    /// The complete key.
    pub key: Text<1, BODY_BYTES, AnyChar>,
}

/// The details of a key.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WhoamiReply {
    id: KeyId,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The remaining credits; omitted if unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<WhoamiIdentity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<Meta>,
    /// The creation time in Unix milliseconds.
    created_at: Timestamp,
    enabled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    environment: Option<String>,
}

/// The identity that owns a key.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct WhoamiIdentity {
    id: IdentityId,
    external_id: String,
}

impl Operation for Whoami {
    const NAME: &'static str = "keys.whoami";
    const ACCESS: AccessRule = AccessRule::HiddenUnlessPermitted(&[Action::ReadKey]);
    const BODY_MAX_BYTES: usize = BODY_BYTES;
    type Reply = WhoamiReply;

    fn example() -> Value {
        json!({ "key": example::KEY })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<WhoamiReply> {
        Ok(keys::whoami(&app.keys, caller, self.key.as_str()).await?.into())
    }
}

impl From<FoundKey> for WhoamiReply {
    fn from(found: FoundKey) -> Self {
        let key = found.stored.key;
        let identity = found.resolved.identity().map(|identity| WhoamiIdentity {
            id: identity.id.clone(),
            external_id: identity.external_id.clone(),
        });
        Self {
            id: key.id,
            name: key.name,
            remaining: found.credits.map(|(remaining, _)| remaining),
            identity,
            meta: non_empty_meta(key.meta.as_ref()),
            created_at: key.created_at,
            enabled: key.is_enabled,
            environment: key.environment,
        }
    }
}
