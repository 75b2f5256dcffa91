//! The layout around every page: head, navigation (`navigation.html`), notice.

use domain::permission::Action;
use domain::users;
use foundation::id::WorkspaceId;
#[cfg(debug_assertions)]
use foundation::model::MemberRole;
use foundation::model::Membership;

use super::assets::{AssetPaths, asset_paths};
use super::failure::Failure;
use super::icons;
use super::last_workspace;
use super::one_time_form;
use super::page_request::{PageRequest, WorkspaceRequest};

/// The navigation entry that a page belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    Overview,
    Search,
    Apis,
    Keys,
    Identities,
    Permissions,
    Ratelimits,
    Gateways,
    Analytics,
    Logs,
    RootKeys,
    Imports,
    Members,
    Audit,
    Workspace,
    Account,
}

/// The template fields that every page shares.
pub struct Layout {
    pub assets: AssetPaths,
    pub title: &'static str,
    /// The name of the object that the page is about; it comes before the title.
    pub object: Option<String>,
    pub csrf: String,
    /// The e-mail of the user; `None` if no user is signed in.
    pub email: Option<String>,
    /// The navigation; `None` on pages outside of a workspace.
    pub nav: Option<Nav>,
    /// The notice about the change that was just made.
    pub notice: Option<String>,
}

impl Layout {
    /// Returns the path of the search; nothing outside of a workspace.
    pub fn search_path(&self) -> &str {
        self.nav.as_ref().map_or("", |nav| nav.search_path.as_str())
    }
}

/// The navigation of a workspace.
pub struct Nav {
    pub current: Membership,
    pub other_workspaces: Vec<Membership>,
    pub groups: [NavGroup; 3],
    pub search_path: String,
    /// Whether the current page is the user's account.
    pub is_account: bool,
}

/// Navigation entries under one heading.
pub struct NavGroup {
    pub label: &'static str,
    pub items: Vec<NavItem>,
}

pub struct NavItem {
    pub path: String,
    pub label: &'static str,
    /// The SVG of the entry.
    pub icon: &'static str,
    /// Whether the current page belongs to this entry. Screen readers announce it.
    pub is_current: bool,
}

impl Nav {
    /// `section` is the entry of the current page; `None` if it has none.
    fn new(here: Membership, others: Vec<Membership>, section: Option<Section>) -> Self {
        let base = format!("/dashboard/{}", here.workspace_id);
        let entry = |of, label, icon, rest| NavItem {
            path: format!("{base}{rest}"),
            label,
            icon,
            is_current: section == Some(of),
        };
        let build = vec![
            entry(Section::Apis, "APIs", icons::APIS, "/apis"),
            entry(Section::Keys, "Keys", icons::KEYS, "/keys"),
            entry(Section::Identities, "Identities", icons::IDENTITIES, "/identities"),
            entry(Section::Permissions, "Permissions", icons::PERMISSIONS, "/permissions"),
            entry(Section::Ratelimits, "Rate limits", icons::RATELIMITS, "/ratelimits"),
            entry(Section::Gateways, "Gateways", icons::GATEWAYS, "/gateways"),
        ];
        let observe = vec![
            entry(Section::Overview, "Overview", icons::OVERVIEW, ""),
            entry(Section::Analytics, "Analytics", icons::ANALYTICS, "/analytics"),
            entry(Section::Logs, "Logs", icons::LOGS, "/logs"),
            entry(Section::Audit, "Audit log", icons::AUDIT, "/audit"),
        ];
        let settings = vec![
            entry(Section::RootKeys, "Root keys", icons::ROOT_KEYS, "/root-keys"),
            entry(Section::Members, "Members", icons::MEMBERS, "/members"),
            entry(Section::Imports, "Imports", icons::IMPORTS, "/imports"),
            entry(Section::Workspace, "Workspace", icons::WORKSPACE, "/workspace"),
        ];
        Self {
            search_path: format!("{base}/search"),
            is_account: section == Some(Section::Account),
            current: here,
            other_workspaces: others,
            groups: [
                NavGroup { label: "Build", items: build },
                NavGroup { label: "Observe", items: observe },
                NavGroup { label: "Settings", items: settings },
            ],
        }
    }
}

impl Layout {
    /// Creates the layout of a page within a workspace.
    pub async fn for_workspace(
        request: &WorkspaceRequest,
        section: Section,
        title: &'static str,
    ) -> Result<Self, Failure> {
        let memberships =
            users::list_memberships(&request.page_request.app.context, &request.known.user).await?;
        let others = memberships.into_iter();
        let others = others.filter(|other| other.workspace_id != request.membership.workspace_id);
        let nav = Nav::new(request.membership.clone(), others.collect(), Some(section));
        let layout = Self::without_workspace(&request.page_request, title);
        let notice = match request.page_request.query.text("notice") {
            "joined" => Some(format!("Welcome to {}.", request.membership.workspace_name)),
            _ => layout.notice,
        };
        Ok(Self { nav: Some(nav), notice, ..layout })
    }

    /// Creates the layout of the user's account page, with the navigation of the workspace that was visited last, or else
    /// of the user's first one.
    pub async fn for_account(request: &PageRequest, title: &'static str) -> Result<Self, Failure> {
        let user = &request.require_session()?.user;
        let mut memberships = users::list_memberships(&request.app.context, user).await?;
        let layout = Self::without_workspace(request, title);
        if memberships.is_empty() {
            return Ok(layout);
        }
        let at = last_workspace::find_position(request, &memberships).unwrap_or(0);
        let here = memberships.remove(at);
        let nav = Nav::new(here, memberships, Some(Section::Account));
        Ok(Self { nav: Some(nav), ..layout })
    }

    /// Creates the layout of a failure, with the navigation of the workspace that `path` names, or else of the one that
    /// was visited last, or else of the user's first one. Shows no navigation if it cannot be loaded.
    pub async fn for_failure(request: &PageRequest, path: &str, title: &'static str) -> Self {
        let layout = Self { notice: None, ..Self::without_workspace(request, title) };
        let Some(session) = &request.session else { return layout };
        let memberships = users::list_memberships(&request.app.context, &session.user).await;
        let mut memberships = memberships.unwrap_or_default();
        memberships.retain(|membership| membership.workspace_enabled);
        let named = WorkspaceId::from(path.split(['/', '?']).nth(2).unwrap_or_default());
        let at = memberships.iter().position(|membership| membership.workspace_id == named);
        if memberships.is_empty() {
            return layout;
        }
        let at = at.or_else(|| last_workspace::find_position(request, &memberships));
        let here = memberships.remove(at.unwrap_or(0));
        Self { nav: Some(Nav::new(here, memberships, None)), ..layout }
    }

    /// Creates the layout of a page outside of any workspace.
    pub fn without_workspace(request: &PageRequest, title: &'static str) -> Self {
        Self {
            csrf: request.csrf.clone(),
            email: request.session.as_ref().map(|known| known.user.email.clone()),
            notice: notice_text(request.query.text("notice")).map(str::to_owned),
            ..Self::bare(title)
        }
    }

    /// Returns a new one-time token, for a form of the page that creates something.
    #[expect(clippy::unused_self, reason = "templates call it")]
    pub fn form_token(&self) -> String {
        one_time_form::generate_token()
    }

    /// Creates the layout of a page that is the same for everyone.
    pub fn bare(title: &'static str) -> Self {
        Self {
            assets: asset_paths(),
            title,
            object: None,
            csrf: String::new(),
            email: None,
            nav: None,
            notice: None,
        }
    }

    /// Creates the layout of the style guide: an example of every part, with nothing of the user.
    #[cfg(debug_assertions)]
    pub fn for_style_guide() -> Self {
        let workspace = |id: &str, name: &str| Membership {
            workspace_id: WorkspaceId::from(id),
            workspace_name: name.to_owned(),
            workspace_enabled: true,
            role: MemberRole::Viewer,
        };
        let others = vec![workspace("ws_staging", "Staging")];
        Self {
            email: Some("ada@example.com".to_owned()),
            nav: Some(Nav::new(workspace("ws_default", "Acme"), others, Some(Section::Keys))),
            notice: Some("Settings saved.".to_owned()),
            ..Self::bare("Style guide")
        }
    }

    /// Puts the name of the object that the page is about before its title.
    #[must_use]
    pub fn about(self, object: impl Into<String>) -> Self {
        Self { object: Some(object.into()), ..self }
    }
}

/// Returns the notice for a code. Only these sentences exist, so a crafted link cannot put other text into a page.
fn notice_text(code: &str) -> Option<&'static str> {
    Some(match code {
        "revoked" => "Root key revoked. It is no longer accepted.",
        "password" => "Password changed. Your other sessions have ended.",
        "linked" => "Account linked. You can now sign in either way.",
        "unlinked" => "Account unlinked. Sign in with your password.",
        "session" => "Session ended.",
        "others" => "All other sessions ended.",
        "role" => "Role changed.",
        "removed" => "Member removed.",
        "withdrawn" => "Invitation withdrawn.",
        "first-api" => "API created.",
        "api-created" => "API created. Create your first key.",
        "api-updated" => "Settings saved.",
        "api-deleted" => "API deleted. Its keys no longer work.",
        "key-updated" => "Key updated.",
        "key-unchanged" => "No changes to save.",
        "key-enabled" => "Key enabled.",
        "key-disabled" => "Key disabled. Verification returns DISABLED until it is enabled.",
        "key-deleted" => "Key deleted. It is no longer accepted.",
        "key-restored" => "Key restored. It is accepted again.",
        "key-credits" => "Credits updated.",
        "identity-created" => "Identity created. Assign it to keys by its external ID.",
        "identity-updated" => "Identity updated. The change applies to all its keys.",
        "identity-deleted" => "Identity deleted. Its keys remain without an identity.",
        "permission-created" => "Permission created. Assign it to keys or roles.",
        "permission-deleted" => "Permission deleted and removed from all keys and roles.",
        "role-created" => "Role created. Assign it to keys.",
        "role-updated" => "Permissions updated. The change applies to all keys with this role.",
        "role-deleted" => "Role deleted and removed from all keys.",
        "namespace-created" => "Namespace created. It is ready for limit checks.",
        "namespace-updated" => "Namespace updated. The change takes effect immediately.",
        "namespace-deleted" => "Namespace deleted. Limit checks in it are rejected.",
        "override-updated" => "Override saved. It applies to all checks from now on.",
        "override-spaces" => {
            "Override saved. Its identifier begins or ends with a space, which is part of it."
        }
        "override-deleted" => "Override deleted. It no longer applies to checks.",
        "gateway-updated" => "Policy updated. The change takes effect within a second.",
        "gateway-deleted" => "Policy deleted. Its gateways no longer have access.",
        "undone" => "Change undone and recorded in the audit log.",
        "all-undone" => "Changes undone and recorded in the audit log.",
        "workspace-renamed" => "Workspace renamed.",
        "import-created" => "Import created. Now import your keys.",
        "import-repeated" => "This form was sent before. Its keys were imported then.",
        _ => return None,
    })
}

/// Returns whether the user may perform an action. Pages use it to hide controls that would be rejected.
pub fn is_allowed(request: &WorkspaceRequest, action: Action) -> bool {
    request.caller.is_allowed(action)
}
