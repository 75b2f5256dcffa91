//! The members of a workspace, their roles, and invitations.

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use domain::permission::Action;
use domain::users;
use foundation::clock::Timestamp;
use foundation::error::Error;
use foundation::id::{InvitationId, UserId};
use foundation::model::{Invitation, Member, MemberRole};
use futures_util::TryFutureExt as _;

use super::confirm::ConfirmPage;
use super::failure::Failure;
use super::format::TimeLabel;
use super::layout::{Layout, Section, is_allowed};
use super::list_frame::ListFrame;
use super::one_time_form::{create_once, redirect_to_secret, render_secret_page, take_secret};
use super::page_request::WorkspaceRequest;
use super::sort_link::SortLink;
use super::{PageResult, form_page, redirect_to, render_page};

/// Names the form field of an owner who has confirmed the change of the own role.
const CONFIRMED_FIELD: &str = "confirmed";

pub fn routes() -> Router {
    Router::new()
        .route("/dashboard/{workspace}/members", get(show))
        .route("/dashboard/{workspace}/members/invite", form_page(1, "").post(invite))
        .route("/dashboard/{workspace}/members/{person}/role", form_page(2, "").post(set_role))
        .route("/dashboard/{workspace}/members/{person}/remove", get(confirm_remove).post(remove))
        .route("/dashboard/{workspace}/invitations/{invitation}/secret/{form}", get(show_link))
        .route(
            "/dashboard/{workspace}/invitations/{invitation}/withdraw",
            form_page(3, "/members").post(withdraw),
        )
}

#[derive(Template)]
#[template(path = "members.html")]
struct MembersPage {
    layout: Layout,
    list: ListFrame,
    rows: Vec<MemberTableRow>,
    invitations: Vec<InvitationRow>,
    may_manage: bool,
    /// The link of an invitation that was just created, or the reason why it cannot be shown.
    link: Option<Result<InvitationLink, &'static str>>,
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
    link: Option<Result<InvitationLink, &'static str>>,
) -> Result<MembersPage, Failure> {
    let app = &request.page_request.app;
    let now = app.context.clock.now();
    let (sort, paging) = SortLink::by_name(request, "/members");
    let members = users::list_members(&app.context, &request.caller, &paging).await?;
    let invitations = users::list_invitations(&app.context, &request.caller).await?;
    let row = |invitation: Invitation| InvitationRow {
        id: invitation.id,
        role: invitation.role.as_str(),
        invited_by: invitation.invited_by.unwrap_or_else(|| "–".into()),
        expires: TimeLabel::new(invitation.expires_at, now),
    };
    Ok(MembersPage {
        layout: Layout::for_workspace(request, Section::Members, "Members").await?,
        list: ListFrame::new(request, "/members", members.next_start.as_deref()).with_sort(sort),
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
    let (app, role) = (&request.page_request.app, parse_role(&request)?);
    let creation = users::invite(&app.context, &request.caller, role);
    let id = create_once(&request, creation.map_ok(|(invitation, _)| invitation.id)).await?;
    redirect_to_secret(&request, &format!("/invitations/{id}"))
}

/// Shows the link of an invitation that was just created, above the members.
async fn show_link(
    request: WorkspaceRequest,
    Path((_, id, form_id)): Path<(String, String, String)>,
) -> PageResult {
    request.caller.require(Action::ManageMembers)?;
    let context = &request.page_request.app.context;
    let secret = take_secret(&request, &id, form_id).await?;
    let invitations = users::list_invitations(context, &request.caller).await?;
    let invitation = invitations.into_iter().find(|invitation| invitation.id.as_str() == id);
    let link = match (secret, invitation) {
        (Ok(secret), Some(invitation)) => Ok(InvitationLink {
            url: format!("{}/dashboard/join/{}", secret.base_url, secret.plaintext.expose()),
            role: invitation.role.as_str(),
            expires: TimeLabel::new(invitation.expires_at, context.clock.now()),
        }),
        (Ok(_), None) => Err("This invitation was withdrawn or used."),
        (Err(reason), _) => Err(reason),
    };
    let is_shown = link.is_ok();
    render_secret_page(&build_page(&request, Some(link)).await?, is_shown)
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

/// Changes the role of a member. Owners who give up their own role are asked first: they cannot take it back.
async fn set_role(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> PageResult {
    let (role, id) = (parse_role(&request)?, UserId::from(id));
    let steps_down = id == request.known.user.id
        && request.membership.role == MemberRole::Owner
        && role != MemberRole::Owner;
    if steps_down && request.page_request.form.text(CONFIRMED_FIELD).is_empty() {
        return confirm_own_role(&request, role).await;
    }
    let context = &request.page_request.app.context;
    users::set_member_role(context, &request.caller, &id, role).await?;
    redirect_to_members(&request, "role")
}

async fn confirm_own_role(request: &WorkspaceRequest, role: MemberRole) -> PageResult {
    let loss = match role {
        MemberRole::Viewer => "You can then only view this workspace.",
        MemberRole::Admin | MemberRole::Owner => "You can no longer manage members.",
    };
    let user = &request.known.user;
    render_page(&ConfirmPage {
        layout: Layout::for_workspace(request, Section::Members, "Change role")
            .await?
            .about(&user.email),
        question: format!("Change your own role to {}?", role.as_str()),
        consequences: vec![format!(
            "{loss} Only another owner can change it back. Your pending invitations are withdrawn."
        )],
        action_url: request.workspace_path(&format!("/members/{}/role", user.id)),
        fields: vec![("role", role.as_str().to_owned()), (CONFIRMED_FIELD, "yes".to_owned())],
        button: "Change role",
        back_url: request.workspace_path("/members"),
        back_label: "Members".to_owned(),
    })
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
        layout: Layout::for_workspace(&request, Section::Members, "Remove member")
            .await?
            .about(&person.email),
        question: format!("Remove {}?", person.email),
        consequences: vec![format!("{leaves} Root keys that they created remain valid.")],
        action_url: request.workspace_path(&format!("/members/{}/remove", person.id)),
        fields: Vec::new(),
        button: "Remove",
        back_url: request.workspace_path("/members"),
        back_label: "Members".to_owned(),
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
