//! The members of a workspace, their roles, and invitations.

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::routing::{get, post};
use foundation::clock::Timestamp;
use foundation::error::Error;
use foundation::id::{InvitationId, PersonId};
use foundation::model::{Invitation, Member, MemberRole};

use super::confirm::Confirm;
use super::failure::Failure;
use super::format::TimeLabel;
use super::layout::{Layout, Section, may};
use super::page_request::WorkspaceRequest;
use super::pagination::{Pages, paging};
use super::{Answer, page, redirect_to};
use crate::domain::permission::Action;
use crate::domain::users;

pub fn routes() -> Router {
    Router::new()
        .route("/dashboard/{workspace}/members", get(page_of))
        .route("/dashboard/{workspace}/members/invite", post(invite))
        .route("/dashboard/{workspace}/members/{person}/role", post(set_role))
        .route("/dashboard/{workspace}/members/{person}/remove", get(ask_remove).post(remove))
        .route("/dashboard/{workspace}/invitations/{invitation}/withdraw", post(withdraw))
}

#[derive(Template)]
#[template(path = "members.html")]
struct Page {
    shell: Layout,
    workspace: String,
    path: String,
    search: String,
    members: Vec<Row>,
    pages: Pages,
    invitations: Vec<Waiting>,
    may_manage: bool,
    /// The link of an invitation that was just created. It is shown only once.
    link: Option<Link>,
}

struct Link {
    url: String,
    role: &'static str,
    ends: TimeLabel,
}

struct Row {
    id: PersonId,
    email: String,
    role: &'static str,
    /// Every role, and whether the member has it.
    roles: [(&'static str, bool); 3],
    is_self: bool,
    joined: TimeLabel,
    seen: Option<TimeLabel>,
}

struct Waiting {
    id: InvitationId,
    role: &'static str,
    by: String,
    ends: TimeLabel,
}

impl Row {
    fn new(member: Member, request: &WorkspaceRequest, now: Timestamp) -> Self {
        Self {
            is_self: member.person.id == request.known.person.id,
            id: member.person.id,
            email: member.person.email,
            role: member.role.as_str(),
            roles: MemberRole::ALL.map(|role| (role.as_str(), role == member.role)),
            joined: TimeLabel::new(member.joined_at, now),
            seen: member.seen_at.map(|at| TimeLabel::new(at, now)),
        }
    }
}

async fn listed(request: &WorkspaceRequest, link: Option<Link>) -> Result<Page, Failure> {
    let app = &request.visit.app;
    let now = app.clock.now();
    let path = request.path("/members");
    let members = users::members(app, &request.caller, &paging(request)).await?;
    let invitations = users::invitations(app, &request.caller).await?;
    let row = |invitation: Invitation| Waiting {
        id: invitation.id,
        role: invitation.role.as_str(),
        by: invitation.invited_by.unwrap_or_else(|| "–".into()),
        ends: TimeLabel::new(invitation.expires_at, now),
    };
    Ok(Page {
        shell: Layout::of(request, Section::Members, "Members").await?,
        workspace: request.membership.workspace_id.to_string(),
        pages: Pages::new(request, &path, members.next.as_deref()),
        path,
        search: request.visit.query.text("q").to_owned(),
        members: members.items.into_iter().map(|member| Row::new(member, request, now)).collect(),
        invitations: invitations.into_iter().map(row).collect(),
        may_manage: may(request, Action::ManageMembers),
        link,
    })
}

async fn page_of(request: WorkspaceRequest) -> Answer {
    page(&listed(&request, None).await?)
}

fn role(request: &WorkspaceRequest) -> Result<MemberRole, Error> {
    let role = request.visit.form.text("role");
    role.parse().map_err(|fault: String| Error::invalid("role", format!("role {fault}")))
}

async fn invite(request: WorkspaceRequest) -> Answer {
    let app = &request.visit.app;
    let (invitation, token) = users::invite(app, &request.caller, role(&request)?).await?;
    let link = Link {
        url: format!("{}/dashboard/join/{}", request.visit.base_url, token.expose()),
        role: invitation.role.as_str(),
        ends: TimeLabel::new(invitation.expires_at, app.clock.now()),
    };
    page(&listed(&request, Some(link)).await?)
}

async fn withdraw(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    users::withdraw(&request.visit.app, &request.caller, &InvitationId::from(id)).await?;
    back(&request, "withdrawn")
}

async fn set_role(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    let role = role(&request)?;
    users::set_role(&request.visit.app, &request.caller, &PersonId::from(id), role).await?;
    back(&request, "role")
}

async fn ask_remove(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    request.caller.require(Action::ManageMembers)?;
    let member = users::member(&request.visit.app, &request.caller, &PersonId::from(id)).await?;
    let person = member.person;
    let leaves = match person.id == request.known.person.id {
        true => "You lose access to this workspace until a member invites you again.",
        false => "They lose access to this workspace immediately.",
    };
    page(&Confirm {
        shell: Layout::of(&request, Section::Members, "Remove member").await?,
        question: format!("Remove {}?", person.email),
        told: vec![format!("{leaves} Root keys that they created remain valid.")],
        act: request.path(&format!("/members/{}/remove", person.id)),
        fields: Vec::new(),
        button: "Remove",
        back: request.path("/members"),
    })
}

async fn remove(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    let id = PersonId::from(id);
    users::remove(&request.visit.app, &request.caller, &id).await?;
    // A user who has left the workspace may not see its members.
    if id == request.known.person.id {
        return redirect_to("/dashboard");
    }
    back(&request, "removed")
}

fn back(request: &WorkspaceRequest, notice: &str) -> Answer {
    redirect_to(&request.path(&format!("/members?notice={notice}")))
}
