//! Defines reads and writes of users, sessions, memberships and invitations.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{InvitationId, SessionId, UserId, WorkspaceId};
use foundation::model::{Invitation, Member, MemberRole, Membership, Session, User};

use crate::PageQuery;

#[async_trait]
pub trait UserReads: Send {
    /// Returns the user with this e-mail address, and the hash of the password if the user has one.
    async fn find_user_by_email(&mut self, email: &str) -> Result<Option<(User, Option<String>)>>;
    /// Returns the user with this id, and the hash of the password if the user has one.
    async fn find_user(&mut self, id: &UserId) -> Result<Option<(User, Option<String>)>>;
    /// Returns the user whom an issuer identifies by this subject.
    async fn find_user_by_login(&mut self, issuer: &str, subject: &str) -> Result<Option<User>>;
    /// Returns the subject by which an issuer identifies a user.
    async fn find_login_subject(&mut self, user: &UserId, issuer: &str) -> Result<Option<String>>;
    async fn has_users(&mut self) -> Result<bool>;
    /// Counts the owners of all workspaces. A user who owns two workspaces counts twice.
    async fn count_owners(&mut self) -> Result<i64>;
    /// Returns the session with this hash of its token, and its user.
    async fn find_session(&mut self, hash: &str) -> Result<Option<(Session, User)>>;
    /// Returns up to a hundred sessions of a user, the most recently used first.
    async fn list_sessions(&mut self, user: &UserId) -> Result<Vec<Session>>;
    /// Returns up to a hundred memberships of a user, by the name of the workspace.
    async fn list_memberships(&mut self, user: &UserId) -> Result<Vec<Membership>>;
    /// Returns the membership of a user in a workspace.
    async fn find_membership(
        &mut self,
        workspace: &WorkspaceId,
        user: &UserId,
    ) -> Result<Option<Membership>>;
    /// Returns a page of the members of a workspace by e-mail address, which is also what is searched. A page by id is one by e-mail
    /// address.
    async fn list_members(
        &mut self,
        workspace: &WorkspaceId,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<Member>>;
    async fn find_member(
        &mut self,
        workspace: &WorkspaceId,
        user: &UserId,
    ) -> Result<Option<Member>>;
    /// Returns whether a workspace has an owner other than this user.
    async fn has_other_owner(&mut self, workspace: &WorkspaceId, except: &UserId) -> Result<bool>;
    /// Counts the members of a workspace.
    async fn count_members(&mut self, workspace: &WorkspaceId) -> Result<i64>;
    /// Returns up to a thousand invitations of a workspace that members have created, the latest first.
    async fn list_invitations(&mut self, workspace: &WorkspaceId) -> Result<Vec<Invitation>>;
    /// Returns the invitation with this hash of its token.
    async fn find_invitation(&mut self, hash: &str) -> Result<Option<Invitation>>;
    /// Counts the APIs, keys and identities of a workspace, each up to `max`.
    async fn count_resources(
        &mut self,
        workspace: &WorkspaceId,
        max: i64,
    ) -> Result<(i64, i64, i64)>;
}

#[async_trait]
pub trait UserWrites: UserReads {
    /// Inserts a user unless the e-mail address is in use. `password` is the hash of the password, if the user has one. Returns
    /// whether it was inserted.
    async fn insert_user(&mut self, user: &User, password: Option<&str>) -> Result<bool>;
    /// Returns the user with this id, and the hash of the password if the user has one, and locks the user until the
    /// transaction ends. Members are locked before their users.
    async fn lock_user(&mut self, id: &UserId) -> Result<Option<(User, Option<String>)>>;
    async fn set_password(&mut self, user: &UserId, password: Option<&str>) -> Result<()>;
    /// Sets the subject by which an issuer identifies a user, and replaces the previous one.
    async fn set_login(
        &mut self,
        user: &UserId,
        issuer: &str,
        subject: &str,
        now: Timestamp,
    ) -> Result<()>;
    /// Deletes the subject by which an issuer identifies a user.
    async fn delete_login(&mut self, user: &UserId, issuer: &str) -> Result<()>;
    /// Deletes a user who is no longer a member of any workspace, with all sessions.
    async fn delete_orphaned_user(&mut self, user: &UserId) -> Result<()>;
    async fn insert_session(&mut self, session: &Session, hash: &str) -> Result<()>;
    /// Records the time, address and user agent of the last use of a session.
    async fn touch_session(&mut self, session: &Session) -> Result<()>;
    /// Ends one session of a user. Returns whether it existed.
    async fn delete_session(&mut self, user: &UserId, id: &SessionId) -> Result<bool>;
    /// Ends all sessions of a user except one.
    async fn delete_other_sessions(
        &mut self,
        user: &UserId,
        except: Option<&SessionId>,
    ) -> Result<()>;
    /// Deletes sessions that began before `began` or were last used before `seen`, and invitations that expired
    /// before `now`.
    async fn prune_sessions_and_invitations(
        &mut self,
        began: Timestamp,
        seen: Timestamp,
        now: Timestamp,
    ) -> Result<()>;
    /// Locks the members of a workspace until the transaction ends.
    async fn lock_members(&mut self, workspace: &WorkspaceId) -> Result<()>;
    /// Adds a member. Returns false if the user already was one.
    async fn insert_member(
        &mut self,
        workspace: &WorkspaceId,
        user: &UserId,
        role: MemberRole,
        now: Timestamp,
    ) -> Result<bool>;
    async fn set_member_role(
        &mut self,
        workspace: &WorkspaceId,
        user: &UserId,
        role: MemberRole,
    ) -> Result<()>;
    async fn delete_member(&mut self, workspace: &WorkspaceId, user: &UserId) -> Result<()>;
    async fn insert_invitation(&mut self, invitation: &Invitation, hash: &str) -> Result<()>;
    /// Deletes an invitation. Returns whether it existed.
    async fn delete_invitation(
        &mut self,
        workspace: &WorkspaceId,
        id: &InvitationId,
    ) -> Result<bool>;
    /// Deletes the invitations to a workspace that the member with this e-mail address has created. Returns their ids.
    async fn delete_invitations_of(
        &mut self,
        workspace: &WorkspaceId,
        invited_by: &str,
    ) -> Result<Vec<InvitationId>>;
    /// Deletes the invitations for the first user.
    async fn delete_setup_invitations(&mut self) -> Result<()>;
}
