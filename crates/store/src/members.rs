//! Defines reads and writes of the members of workspaces and of invitations.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{InvitationId, UserId, WorkspaceId};
use foundation::model::{Invitation, Member, MemberRole, Membership};

use crate::PageQuery;

#[async_trait]
pub trait MemberReads: Send {
    /// Counts the owners of all workspaces. A user who owns two workspaces counts twice.
    async fn count_owners(&mut self) -> Result<i64>;
    /// Returns up to a hundred memberships of a user, by the name of the workspace.
    async fn list_memberships(&mut self, user: &UserId) -> Result<Vec<Membership>>;
    /// Returns the ids of all workspaces of a user.
    async fn list_workspace_ids(&mut self, user: &UserId) -> Result<Vec<WorkspaceId>>;
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
    /// Counts the invitations of a workspace that members have created.
    async fn count_invitations(&mut self, workspace: &WorkspaceId) -> Result<i64>;
    /// Returns the invitation with this hash of its token.
    async fn find_invitation(&mut self, hash: &str) -> Result<Option<Invitation>>;
}

#[async_trait]
pub trait MemberWrites: MemberReads {
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
