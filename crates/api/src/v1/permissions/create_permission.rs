use domain::rbac::{self, NewPermission};
use foundation::id::PermissionId;

use super::schemas::{Description, Identifier, validate_description};
use crate::prelude::*;

/// Create a permission.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreatePermission {
    pub name: Identifier,
    /// The slug by which requests refer to the permission. Default: the name.
    #[serde(default)]
    pub slug: Optional<Identifier>,
    #[serde(default)]
    pub description: Optional<Description>,
}

/// The new permission.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreatePermissionReply {
    permission_id: PermissionId,
}

impl Operation for CreatePermission {
    const NAME: &'static str = "permissions.createPermission";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::CreatePermission]);
    const WRITES: bool = true;
    type Reply = CreatePermissionReply;

    fn example() -> Value {
        json!({ "name": "documents.archive", "description": "May archive documents." })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<CreatePermissionReply> {
        let name = self.name.into_string();
        let slug = self.slug.0.map_or_else(|| name.clone(), Text::into_string);
        let new =
            NewPermission { slug, name, description: validate_description(self.description)? };
        Ok(CreatePermissionReply {
            permission_id: rbac::create_permission(&app.context, caller, new).await?,
        })
    }
}
