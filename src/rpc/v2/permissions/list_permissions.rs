use crate::domain::page::Page;
use crate::domain::rbac;
use crate::rpc::prelude::*;
use crate::rpc::schemas::PermissionReply;
use crate::rpc::v2::schemas::{Cursor, PageLimit, Search, searched};

/// List permissions.
///
/// All of the workspace, by id.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListPermissions {
    /// How many to list. Left out: 100.
    #[serde(default)]
    pub limit: Optional<PageLimit>,
    /// Where the page begins: `pagination.cursor` of the one before. Left out: the first page.
    #[serde(default)]
    pub cursor: Optional<Cursor>,
    /// Only those whose id, name, slug or description holds this text, in whatever case.
    #[serde(default)]
    pub search: Optional<Search>,
}

impl Operation for ListPermissions {
    const NAME: &'static str = "permissions.listPermissions";
    const NEEDS: AccessRule = AccessRule::Permission(&[Action::ReadPermission]);
    type Reply = Page<PermissionReply>;

    fn example() -> Value {
        json!({ "limit": 20, "search": "documents" })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Page<PermissionReply>> {
        let paging = searched(self.limit, self.cursor, self.search);
        let page = rbac::list_permissions(app, caller, &paging).await?;
        Ok(page.map(PermissionReply::from))
    }
}
