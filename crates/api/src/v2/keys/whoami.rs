use domain::keys;

use crate::bounds::AnyChar;
use crate::prelude::*;
use crate::v2::schemas::KeyReply;

/// Identify a key.
///
/// Returns the key that the plaintext belongs to. Nothing is checked or spent.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Whoami {
    /// The complete key, including its prefix.
    pub key: Text<1, 512, AnyChar>,
}

impl Operation for Whoami {
    const NAME: &'static str = "keys.whoami";
    const ACCESS: AccessRule = AccessRule::HiddenUnlessPermitted(&[Action::ReadKey]);
    type Reply = KeyReply;

    fn example() -> Value {
        json!({ "key": example::KEY })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<KeyReply> {
        let found = keys::whoami(&app.keys, caller, &self.key.into_string()).await?;
        Ok(KeyReply::from(found))
    }
}
