//! The members of a workspace, their roles, and invitations.

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::routing::{get, post};
use domain::permission::Action;
use domain::users;
use foundation::clock::Timestamp;
use foundation::error::Error;
use foundation::id::{InvitationId, UserId};
use foundation::model::{Invitation, Member, MemberRole};

use super::confirm::ConfirmPage;
use super::failure::Failure;
use super::format::TimeLabel;
use super::layout::{Layout, Section, is_allowed};
use super::list_frame::ListFrame;
use super::page_request::WorkspaceRequest;
use super::pagination::paging_from_query;
use super::{PageResult, redirect_to, render_page};

pub fn routes() -> Router {
    Router::new()
        .route("/dashboard/{workspace}/members", get(show))
        .route("/dashboard/{workspace}/members/invite", post(invite))
        .route("/dashboard/{workspace}/members/{person}/role", post(set_role))
        .route("/dashboard/{workspace}/members/{person}/remove", get(confirm_remove).post(remove))
        .route("/dashboard/{workspace}/invitations/{invitation}/withdraw", post(withdraw))
}

#[derive(Template)]
#[template(path = "members.html")]
struct MembersPage {
    layout: Layout,
    list: ListFrame,
    rows: Vec<MemberTableRow>,
    invitations: Vec<InvitationRow>,
    may_manage: bool,
    /// The link of an invitation that was just created. It is shown only once.
    link: Option<InvitationLink>,
}

struct InvitationLink {
    url: String,
    role: &'static str,
    expires: TimeLabel,
}

struct MemberTableRow {
    id: UserId,
    email: String,
    role: &'static str,
    /// Every role, and whether the member has it.
    roles: [(&'static str, bool); 3],
    is_self: bool,
    joined: TimeLabel,
    last_active: Option<TimeLabel>,
}

struct InvitationRow {
    id: InvitationId,
    role: &'static str,
    invited_by: String,
    expires: TimeLabel,
}

impl MemberTableRow {
    fn new(member: Member, request: &WorkspaceRequest, now: Timestamp) -> Self {
        Self {
            is_self: member.user.id == request.known.user.id,
            id: member.user.id,
            email: member.user.email,
            role: member.role.as_str(),
            roles: MemberRole::ALL.map(|role| (role.as_str(), role == member.role)),
            joined: TimeLabel::new(member.joined_at, now),
            last_active: member.seen_at.map(|at| TimeLabel::new(at, now)),
        }
    }
}

async fn build_page(
    request: &WorkspaceRequest,
    link: Option<InvitationLink>,
) -> Result<MembersPage, Failure> {
    let app = &request.page_request.app;
    let now = app.context.clock.now();
    let members =
        users::list_members(&app.context, &request.caller, &paging_from_query(request)).await?;
    let invitations = users::list_invitations(&app.context, &request.caller).await?;
    let row = |invitation: Invitation| InvitationRow {
        id: invitation.id,
        role: invitation.role.as_str(),
        invited_by: invitation.invited_by.unwrap_or_else(|| "–".into()),
        expires: TimeLabel::new(invitation.expires_at, now),
    };
    Ok(MembersPage {
        layout: Layout::for_workspace(request, Section::Members, "Members").await?,
        list: ListFrame::new(request, "/members", members.next_id.as_deref()),
        rows: members
            .items
            .into_iter()
            .map(|member| MemberTableRow::new(member, request, now))
            .collect(),
        invitations: invitations.into_iter().map(row).collect(),
        may_manage: is_allowed(request, Action::ManageMembers),
        link,
    })
}

async fn show(request: WorkspaceRequest) -> PageResult {
    render_page(&build_page(&request, None).await?)
}

fn parse_role(request: &WorkspaceRequest) -> Result<MemberRole, Error> {
    let role = request.page_request.form.text("role");
    role.parse().map_err(|fault: String| Error::invalid("role", format!("role {fault}")))
}

async fn invite(request: WorkspaceRequest) -> PageResult {
    let app = &request.page_request.app;
    let (invitation, token) =
        users::invite(&app.context, &request.caller, parse_role(&request)?).await?;
    let link = InvitationLink {
        url: format!("{}/dashboard/join/{}", request.page_request.base_url, token.expose()),
        role: invitation.role.as_str(),
        expires: TimeLabel::new(invitation.expires_at, app.context.clock.now()),
    };
    render_page(&build_page(&request, Some(link)).await?)
}

async fn withdraw(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> PageResult {
    users::withdraw_invitation(
        &request.page_request.app.context,
        &request.caller,
        &InvitationId::from(id),
    )
    .await?;
    redirect_to_members(&request, "withdrawn")
}

async fn set_role(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> PageResult {
    let role = parse_role(&request)?;
    users::set_member_role(
        &request.page_request.app.context,
        &request.caller,
        &UserId::from(id),
        role,
    )
    .await?;
    redirect_to_members(&request, "role")
}

async fn confirm_remove(
    request: WorkspaceRequest,
    Path((_, id)): Path<(String, String)>,
) -> PageResult {
    request.caller.require(Action::ManageMembers)?;
    let member =
        users::get_member(&request.page_request.app.context, &request.caller, &UserId::from(id))
            .await?;
    let person = member.user;
    let leaves = match person.id == request.known.user.id {
        true => "You lose access to this workspace until a member invites you again.",
        false => "They lose access to this workspace immediately.",
    };
    render_page(&ConfirmPage {
        layout: Layout::for_workspace(&request, Section::Members, "Remove member").await?,
        question: format!("Remove {}?", person.email),
        consequences: vec![format!("{leaves} Root keys that they created remain valid.")],
        action_url: request.workspace_path(&format!("/members/{}/remove", person.id)),
        fields: Vec::new(),
        button: "Remove",
        back_url: request.workspace_path("/members"),
    })
}

async fn remove(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> PageResult {
    let id = UserId::from(id);
    users::remove_member(&request.page_request.app.context, &request.caller, &id).await?;
    // A user who has left the workspace may not see its members.
    if id == request.known.user.id {
        return redirect_to("/dashboard");
    }
    redirect_to_members(&request, "removed")
}

fn redirect_to_members(request: &WorkspaceRequest, notice: &str) -> PageResult {
    redirect_to(&request.workspace_path(&format!("/members?notice={notice}")))
}
