//! What is kept of people: sessions, memberships, links that make somebody a member.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{InvitationId, PersonId, SessionId, WorkspaceId};
use foundation::model::{Invitation, Member, MemberRole, Membership, Session, User};

use crate::PageQuery;

#[async_trait]
pub trait PeopleReads: Send {
    /// A person, and the hash of the password, of who has one.
    async fn person_of(&mut self, email: &str) -> Result<Option<(User, Option<String>)>>;
    /// As [`PeopleReads::person_of`], by the id.
    async fn person(&mut self, id: &PersonId) -> Result<Option<(User, Option<String>)>>;
    /// Whom an issuer calls so.
    async fn person_by_login(&mut self, issuer: &str, subject: &str) -> Result<Option<User>>;
    /// What an issuer calls a person.
    async fn login_of(&mut self, person: &PersonId, issuer: &str) -> Result<Option<String>>;
    async fn has_users(&mut self) -> Result<bool>;
    /// How many people own a workspace; who owns two counts twice.
    async fn count_owners(&mut self) -> Result<i64>;
    /// A session by the hash of its token, and whose it is.
    async fn session(&mut self, hash: &str) -> Result<Option<(Session, User)>>;
    /// A person's latest sessions, the one first that was used last.
    async fn sessions_of(&mut self, person: &PersonId) -> Result<Vec<Session>>;
    /// Up to a hundred workspaces that a person belongs to, by name.
    async fn memberships_of(&mut self, person: &PersonId) -> Result<Vec<Membership>>;
    /// What a person is in a workspace.
    async fn membership(
        &mut self,
        workspace: &WorkspaceId,
        person: &PersonId,
    ) -> Result<Option<Membership>>;
    /// A page of the members of a workspace, by e-mail, which is searched.
    async fn members(
        &mut self,
        workspace: &WorkspaceId,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<Member>>;
    async fn member(
        &mut self,
        workspace: &WorkspaceId,
        person: &PersonId,
    ) -> Result<Option<Member>>;
    /// Whether a workspace has an owner but this person.
    async fn has_other_owner(&mut self, workspace: &WorkspaceId, but: &PersonId) -> Result<bool>;
    /// How many members a workspace has.
    async fn count_members(&mut self, workspace: &WorkspaceId) -> Result<i64>;
    /// The links of a workspace that members have made, the latest first.
    async fn invitations(&mut self, workspace: &WorkspaceId) -> Result<Vec<Invitation>>;
    /// A link by the hash of its token.
    async fn invitation(&mut self, hash: &str) -> Result<Option<Invitation>>;
    /// Of a workspace, how many APIs, keys and identities it has; each counted up to `max`.
    async fn sizes(&mut self, workspace: &WorkspaceId, max: i64) -> Result<(i64, i64, i64)>;
}

#[async_trait]
pub trait PeopleWrites: PeopleReads {
    /// `password`: a hash, of who has one.
    async fn insert_person(&mut self, person: &User, password: Option<&str>) -> Result<()>;
    async fn set_password(&mut self, person: &PersonId, password: Option<&str>) -> Result<()>;
    /// Notes what an issuer calls a person, instead of what it called them before.
    async fn set_login(
        &mut self,
        person: &PersonId,
        issuer: &str,
        subject: &str,
        now: Timestamp,
    ) -> Result<()>;
    /// Forgets what an issuer calls a person.
    async fn delete_login(&mut self, person: &PersonId, issuer: &str) -> Result<()>;
    /// Removes a person who belongs to no workspace any more, with all sessions.
    async fn delete_orphaned_user(&mut self, person: &PersonId) -> Result<()>;
    async fn insert_session(&mut self, session: &Session, hash: &str) -> Result<()>;
    /// Notes when and from where a session is used.
    async fn touch_session(&mut self, session: &Session) -> Result<()>;
    /// Ends one session of a person; whether there was one.
    async fn end_session(&mut self, person: &PersonId, id: &SessionId) -> Result<bool>;
    /// Ends all sessions of a person but one.
    async fn end_other_sessions(
        &mut self,
        person: &PersonId,
        but: Option<&SessionId>,
    ) -> Result<()>;
    /// Forgets sessions that began or were last used before these moments, and links that ended before `now`.
    async fn prune_people(
        &mut self,
        began: Timestamp,
        seen: Timestamp,
        now: Timestamp,
    ) -> Result<()>;
    /// Holds who belongs to a workspace until the transaction ends.
    async fn lock_members(&mut self, workspace: &WorkspaceId) -> Result<()>;
    /// Adds a member; whether the person was none.
    async fn insert_member(
        &mut self,
        workspace: &WorkspaceId,
        person: &PersonId,
        role: MemberRole,
        now: Timestamp,
    ) -> Result<bool>;
    async fn set_member_role(
        &mut self,
        workspace: &WorkspaceId,
        person: &PersonId,
        role: MemberRole,
    ) -> Result<()>;
    async fn delete_member(&mut self, workspace: &WorkspaceId, person: &PersonId) -> Result<()>;
    async fn insert_invitation(&mut self, invitation: &Invitation, hash: &str) -> Result<()>;
    /// Removes a link; whether it was there.
    async fn delete_invitation(
        &mut self,
        workspace: &WorkspaceId,
        id: &InvitationId,
    ) -> Result<bool>;
    /// Removes the links that were for the first person.
    async fn delete_first_invitations(&mut self) -> Result<()>;
}
