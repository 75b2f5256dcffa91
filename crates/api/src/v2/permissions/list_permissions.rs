use domain::rbac;

use crate::prelude::*;
use crate::reply::PageReply;
use crate::schemas::PermissionReply;
use crate::v2::schemas::{Cursor, PageLimit, Search, to_search_paging};

/// List permissions.
///
/// Returns pages of the permissions of the workspace, sorted by id.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListPermissions {
    /// The maximum number of items per page. Default: 100.
    #[serde(default)]
    pub limit: Optional<PageLimit>,
    /// The `pagination.cursor` of the previous page. Default: the first page.
    #[serde(default)]
    pub cursor: Optional<Cursor>,
    /// Returns only permissions whose id, name, slug or description contains this text, ignoring case.
    #[serde(default)]
    pub search: Optional<Search>,
}

impl Operation for ListPermissions {
    const NAME: &'static str = "permissions.listPermissions";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::ReadPermission]);
    type Reply = PageReply<PermissionReply>;

    fn example() -> Value {
        json!({ "limit": 20, "search": "documents" })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<PageReply<PermissionReply>> {
        let paging = to_search_paging(self.limit, self.cursor, self.search);
        let page = rbac::list_permissions(&app.context, caller, &paging).await?;
        Ok(PageReply::new(page))
    }
}
