//! Implements reads and writes of the members of workspaces and of invitations.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{InvitationId, UserId, WorkspaceId};
use foundation::model::{Invitation, Member, MemberRole, Membership};
use sqlx::{AssertSqlSafe, query, query_as, query_scalar};

use super::Connection;
use crate::{MemberReads, MemberWrites, PageOrder, PageQuery};

macro_rules! memberships_where {
    ($condition:literal) => {
        concat!(
            "SELECT m.workspace_id, w.name AS workspace_name, w.enabled AS workspace_enabled, m.role
            FROM memberships m
            JOIN workspaces w ON w.id = m.workspace_id
            WHERE ",
            $condition
        )
    };
}

macro_rules! members_where {
    ($condition:literal) => {
        concat!(
            "SELECT p.id, p.email, p.created_at, m.role, m.joined_at,
                (SELECT MAX(s.seen_at) FROM sessions s WHERE s.person_id = p.id) AS seen_at
            FROM memberships m
            JOIN people p ON p.id = m.person_id
            WHERE ",
            $condition
        )
    };
}

macro_rules! invitations_where {
    ($condition:literal) => {
        concat!(
            "SELECT i.id, i.workspace_id, w.name AS workspace_name, i.kind, i.role, i.invited_by,
                i.created_at, i.expires_at
            FROM invitations i
            JOIN workspaces w ON w.id = i.workspace_id
            WHERE ",
            $condition
        )
    };
}

#[async_trait]
impl MemberReads for Connection {
    async fn count_owners(&mut self) -> Result<i64> {
        let sql = "SELECT COUNT(*) FROM memberships WHERE role = $1";
        Ok(query_scalar(sql).bind(MemberRole::Owner.as_str()).fetch_one(self).await?)
    }

    async fn list_memberships(&mut self, user: &UserId) -> Result<Vec<Membership>> {
        let sql = memberships_where!("m.person_id = $1 ORDER BY w.name, w.id LIMIT 100");
        Ok(query_as(sql).bind(user).fetch_all(self).await?)
    }

    async fn list_workspace_ids(&mut self, user: &UserId) -> Result<Vec<WorkspaceId>> {
        let sql = "SELECT workspace_id FROM memberships WHERE person_id = $1 ORDER BY workspace_id";
        Ok(query_scalar(sql).bind(user).fetch_all(self).await?)
    }

    async fn find_membership(
        &mut self,
        workspace: &WorkspaceId,
        user: &UserId,
    ) -> Result<Option<Membership>> {
        let sql = memberships_where!("m.workspace_id = $1 AND m.person_id = $2");
        Ok(query_as(sql).bind(workspace).bind(user).fetch_optional(self).await?)
    }

    async fn list_members(
        &mut self,
        workspace: &WorkspaceId,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<Member>> {
        let (follows, direction) = match listing.order {
            PageOrder::ById | PageOrder::ByName => ("<=", ""),
            PageOrder::ByNameDescending => (">=", " DESC"),
        };
        let members = members_where!("m.workspace_id = $1");
        let is_found = contains!("p.email", "$2");
        let sql = format!(
            "{members} AND ($2 = '' OR {is_found}) AND ($3 = '' OR EXISTS (
                SELECT 1 FROM memberships fm JOIN people f ON f.id = fm.person_id
                WHERE f.id = $3 AND fm.workspace_id = $1 AND f.email {follows} p.email))
            ORDER BY p.email{direction} LIMIT $4"
        );
        let query = query_as(AssertSqlSafe(sql)).bind(workspace).bind(&listing.search);
        Ok(query.bind(listing.start).bind(listing.rows_max).fetch_all(self).await?)
    }

    async fn find_member(
        &mut self,
        workspace: &WorkspaceId,
        user: &UserId,
    ) -> Result<Option<Member>> {
        let sql = members_where!("m.workspace_id = $1 AND m.person_id = $2");
        Ok(query_as(sql).bind(workspace).bind(user).fetch_optional(self).await?)
    }

    async fn has_other_owner(&mut self, workspace: &WorkspaceId, except: &UserId) -> Result<bool> {
        let sql = "
            SELECT 1 FROM memberships
            WHERE workspace_id = $1 AND person_id <> $2 AND role = 'owner'
            LIMIT 1";
        Ok(query(sql).bind(workspace).bind(except).fetch_optional(self).await?.is_some())
    }

    async fn count_members(&mut self, workspace: &WorkspaceId) -> Result<i64> {
        let sql = "SELECT COUNT(*) FROM memberships WHERE workspace_id = $1";
        Ok(query_scalar(sql).bind(workspace).fetch_one(self).await?)
    }

    async fn list_invitations(&mut self, workspace: &WorkspaceId) -> Result<Vec<Invitation>> {
        let sql = invitations_where!(
            "i.workspace_id = $1 AND i.kind = 'member' ORDER BY i.created_at DESC, i.id LIMIT 1000"
        );
        Ok(query_as(sql).bind(workspace).fetch_all(self).await?)
    }

    async fn count_invitations(&mut self, workspace: &WorkspaceId) -> Result<i64> {
        let sql = "SELECT COUNT(*) FROM invitations WHERE workspace_id = $1 AND kind = 'member'";
        Ok(query_scalar(sql).bind(workspace).fetch_one(self).await?)
    }

    async fn find_invitation(&mut self, hash: &str) -> Result<Option<Invitation>> {
        Ok(query_as(invitations_where!("i.hash = $1")).bind(hash).fetch_optional(self).await?)
    }
}

#[async_trait]
impl MemberWrites for Connection {
    async fn lock_members(&mut self, workspace: &WorkspaceId) -> Result<()> {
        let sql = locked_for_no_key_update!("SELECT id FROM workspaces WHERE id = $1");
        query(sql).bind(workspace).fetch_optional(self).await?;
        Ok(())
    }

    async fn insert_member(
        &mut self,
        workspace: &WorkspaceId,
        user: &UserId,
        role: MemberRole,
        now: Timestamp,
    ) -> Result<bool> {
        let sql = "
            INSERT INTO memberships (workspace_id, person_id, role, joined_at)
            VALUES ($1, $2, $3, $4)
            ON CONFLICT (workspace_id, person_id) DO NOTHING";
        let query = query(sql).bind(workspace).bind(user).bind(role.as_str()).bind(now);
        Ok(query.execute(self).await?.rows_affected() == 1)
    }

    async fn set_member_role(
        &mut self,
        workspace: &WorkspaceId,
        user: &UserId,
        role: MemberRole,
    ) -> Result<()> {
        let sql = "UPDATE memberships SET role = $3 WHERE workspace_id = $1 AND person_id = $2";
        query(sql).bind(workspace).bind(user).bind(role.as_str()).execute(self).await?;
        Ok(())
    }

    async fn delete_member(&mut self, workspace: &WorkspaceId, user: &UserId) -> Result<()> {
        let sql = "DELETE FROM memberships WHERE workspace_id = $1 AND person_id = $2";
        query(sql).bind(workspace).bind(user).execute(self).await?;
        Ok(())
    }

    async fn insert_invitation(&mut self, invitation: &Invitation, hash: &str) -> Result<()> {
        let sql = "
            INSERT INTO invitations
                (id, workspace_id, hash, kind, role, invited_by, created_at, expires_at)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
        query(sql)
            .bind(&invitation.id)
            .bind(&invitation.workspace_id)
            .bind(hash)
            .bind(invitation.kind.as_str())
            .bind(invitation.role.as_str())
            .bind(&invitation.invited_by)
            .bind(invitation.created_at)
            .bind(invitation.expires_at)
            .execute(self)
            .await?;
        Ok(())
    }

    async fn delete_invitation(
        &mut self,
        workspace: &WorkspaceId,
        id: &InvitationId,
    ) -> Result<bool> {
        let sql = "DELETE FROM invitations WHERE workspace_id = $1 AND id = $2";
        Ok(query(sql).bind(workspace).bind(id).execute(self).await?.rows_affected() == 1)
    }

    async fn delete_invitations_of(
        &mut self,
        workspace: &WorkspaceId,
        invited_by: &str,
    ) -> Result<Vec<InvitationId>> {
        let sql = "
            DELETE FROM invitations
            WHERE workspace_id = $1 AND kind = 'member' AND invited_by = $2
            RETURNING id";
        Ok(query_scalar(sql).bind(workspace).bind(invited_by).fetch_all(self).await?)
    }

    async fn delete_setup_invitations(&mut self) -> Result<()> {
        query("DELETE FROM invitations WHERE kind = 'first'").execute(self).await?;
        Ok(())
    }
}
