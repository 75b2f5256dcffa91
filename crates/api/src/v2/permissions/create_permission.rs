use domain::bounds::{DESCRIPTION_MAX, PERMISSION_NAME_MAX};
use domain::rbac::{self, NewPermission};
use foundation::id::PermissionId;

use crate::prelude::*;

/// Create a permission.
///
/// A key can have the permission directly or through a role, and a verification can require it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreatePermission {
    /// The display name.
    pub name: Text<1, PERMISSION_NAME_MAX, Printable>,
    /// The identifier by which keys and permission queries refer to the permission.
    pub slug: Slug,
    #[serde(default)]
    pub description: Optional<Text<0, DESCRIPTION_MAX>>,
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
        json!({ "name": "Write documents", "slug": "documents.write" })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<CreatePermissionReply> {
        let description = self.description.0.map(Text::into_string).filter(|text| !text.is_empty());
        let name = self.name.into_string();
        let new = NewPermission { slug: self.slug.into_string(), name, description };
        let permission_id = rbac::create_permission(&app.context, caller, new).await?;
        Ok(CreatePermissionReply { permission_id })
    }
}
