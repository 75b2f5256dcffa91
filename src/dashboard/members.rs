//! Members of a workspace: who they are, what they may do, and the links for those to come.

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
    /// A link that has just been made, shown this once.
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
    /// Every role, and whether it is this one.
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
    fn new(member: Member, asked: &WorkspaceRequest, now: Timestamp) -> Self {
        Self {
            is_self: member.person.id == asked.known.person.id,
            id: member.person.id,
            email: member.person.email,
            role: member.role.as_str(),
            roles: MemberRole::ALL.map(|role| (role.as_str(), role == member.role)),
            joined: TimeLabel::new(member.joined_at, now),
            seen: member.seen_at.map(|at| TimeLabel::new(at, now)),
        }
    }
}

async fn listed(asked: &WorkspaceRequest, link: Option<Link>) -> Result<Page, Failure> {
    let app = &asked.visit.app;
    let now = app.clock.now();
    let path = asked.path("/members");
    let members = users::members(app, &asked.caller, &paging(asked)).await?;
    let invitations = users::invitations(app, &asked.caller).await?;
    let waiting = |invitation: Invitation| Waiting {
        id: invitation.id,
        role: invitation.role.as_str(),
        by: invitation.invited_by.unwrap_or_else(|| "–".into()),
        ends: TimeLabel::new(invitation.expires_at, now),
    };
    Ok(Page {
        shell: Layout::of(asked, Section::Members, "Members").await?,
        workspace: asked.membership.workspace_id.to_string(),
        pages: Pages::new(asked, &path, members.next.as_deref()),
        path,
        search: asked.visit.query.text("q").to_owned(),
        members: members.items.into_iter().map(|member| Row::new(member, asked, now)).collect(),
        invitations: invitations.into_iter().map(waiting).collect(),
        may_manage: may(asked, Action::ManageMembers),
        link,
    })
}

async fn page_of(asked: WorkspaceRequest) -> Answer {
    page(&listed(&asked, None).await?)
}

fn role(asked: &WorkspaceRequest) -> Result<MemberRole, Error> {
    let role = asked.visit.form.text("role");
    role.parse().map_err(|fault: String| Error::invalid("role", format!("role {fault}")))
}

async fn invite(asked: WorkspaceRequest) -> Answer {
    let app = &asked.visit.app;
    let (invitation, token) = users::invite(app, &asked.caller, role(&asked)?).await?;
    let link = Link {
        url: format!("{}/dashboard/join/{}", asked.visit.base_url, token.expose()),
        role: invitation.role.as_str(),
        ends: TimeLabel::new(invitation.expires_at, app.clock.now()),
    };
    page(&listed(&asked, Some(link)).await?)
}

async fn withdraw(asked: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    users::withdraw(&asked.visit.app, &asked.caller, &InvitationId::from(id)).await?;
    back(&asked, "withdrawn")
}

async fn set_role(asked: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    let role = role(&asked)?;
    users::set_role(&asked.visit.app, &asked.caller, &PersonId::from(id), role).await?;
    back(&asked, "role")
}

async fn ask_remove(asked: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    asked.caller.require(Action::ManageMembers)?;
    let member = users::member(&asked.visit.app, &asked.caller, &PersonId::from(id)).await?;
    let person = member.person;
    let leaves = match person.id == asked.known.person.id {
        true => "You leave this workspace, and come back when somebody invites you.",
        false => "They can no longer use this workspace here.",
    };
    page(&Confirm {
        shell: Layout::of(&asked, Section::Members, "Remove a member").await?,
        question: format!("Remove {}?", person.email),
        told: vec![format!("{leaves} Root keys that they made stay good.")],
        act: asked.path(&format!("/members/{}/remove", person.id)),
        fields: Vec::new(),
        button: "Remove",
        back: asked.path("/members"),
    })
}

async fn remove(asked: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    let id = PersonId::from(id);
    users::remove(&asked.visit.app, &asked.caller, &id).await?;
    // Who leaves is not shown the members of what they have left.
    if id == asked.known.person.id {
        return redirect_to("/dashboard");
    }
    back(&asked, "removed")
}

fn back(asked: &WorkspaceRequest, told: &str) -> Answer {
    redirect_to(&asked.path(&format!("/members?notice={told}")))
}
