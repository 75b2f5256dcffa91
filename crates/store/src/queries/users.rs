//! Implements reads and writes of users and their sessions.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{SessionId, UserId, WorkspaceId};
use foundation::model::{Session, User};
use sqlx::{query, query_as, query_scalar};

use super::Connection;
use crate::rows::{SessionRow, UserWithPasswordRow};
use crate::{UserReads, UserWrites};

macro_rules! people_where {
    ($condition:literal) => {
        concat!("SELECT id, email, created_at, password FROM people WHERE ", $condition)
    };
}

#[async_trait]
impl UserReads for Connection {
    async fn find_user_by_email(&mut self, email: &str) -> Result<Option<(User, Option<String>)>> {
        let row: Option<UserWithPasswordRow> =
            query_as(people_where!("email = $1")).bind(email).fetch_optional(self).await?;
        Ok(row.map(UserWithPasswordRow::into_parts))
    }

    async fn find_user(&mut self, id: &UserId) -> Result<Option<(User, Option<String>)>> {
        let row: Option<UserWithPasswordRow> =
            query_as(people_where!("id = $1")).bind(id).fetch_optional(self).await?;
        Ok(row.map(UserWithPasswordRow::into_parts))
    }

    async fn find_user_by_login(&mut self, issuer: &str, subject: &str) -> Result<Option<User>> {
        let sql = "
            SELECT p.id, p.email, p.created_at
            FROM people_logins l
            JOIN people p ON p.id = l.person_id
            WHERE l.issuer = $1 AND l.subject = $2";
        Ok(query_as(sql).bind(issuer).bind(subject).fetch_optional(self).await?)
    }

    async fn find_login_subject(&mut self, user: &UserId, issuer: &str) -> Result<Option<String>> {
        let sql = "SELECT subject FROM people_logins WHERE person_id = $1 AND issuer = $2";
        Ok(query_scalar(sql).bind(user).bind(issuer).fetch_optional(self).await?)
    }

    async fn has_users(&mut self) -> Result<bool> {
        Ok(query("SELECT 1 FROM people LIMIT 1").fetch_optional(self).await?.is_some())
    }

    async fn find_session(&mut self, hash: &str) -> Result<Option<(Session, User)>> {
        let sql = "
            SELECT s.id, s.person_id, s.created_at, s.seen_at, s.address, s.user_agent, p.email,
                p.created_at AS joined_at
            FROM sessions s
            JOIN people p ON p.id = s.person_id
            WHERE s.hash = $1";
        let row: Option<SessionRow> = query_as(sql).bind(hash).fetch_optional(self).await?;
        Ok(row.map(SessionRow::into_parts))
    }

    async fn has_session(&mut self, user: &UserId, id: &SessionId) -> Result<bool> {
        let sql = "SELECT 1 FROM sessions WHERE person_id = $1 AND id = $2";
        Ok(query(sql).bind(user).bind(id).fetch_optional(self).await?.is_some())
    }

    async fn list_sessions(&mut self, user: &UserId) -> Result<Vec<Session>> {
        let sql = "
            SELECT id, person_id, created_at, seen_at, address, user_agent
            FROM sessions
            WHERE person_id = $1
            ORDER BY seen_at DESC, id
            LIMIT 100";
        Ok(query_as(sql).bind(user).fetch_all(self).await?)
    }

    async fn count_resources(
        &mut self,
        workspace: &WorkspaceId,
        max: i64,
    ) -> Result<(i64, i64, i64)> {
        let sql = "
            SELECT
                (SELECT COUNT(*) FROM (
                    SELECT 1 FROM apis WHERE workspace_id = $1 AND deleted_at IS NULL LIMIT $2)
                    AS counted),
                (SELECT COUNT(*) FROM (
                    SELECT 1 FROM apis a
                    JOIN keys k ON k.api_id = a.id
                    WHERE a.workspace_id = $1 AND a.deleted_at IS NULL AND k.deleted_at IS NULL
                    LIMIT $2) AS counted),
                (SELECT COUNT(*) FROM (
                    SELECT 1 FROM identities WHERE workspace_id = $1 LIMIT $2) AS counted)";
        Ok(query_as(sql).bind(workspace).bind(max).fetch_one(self).await?)
    }
}

#[async_trait]
impl UserWrites for Connection {
    async fn insert_user(&mut self, user: &User, password: Option<&str>) -> Result<bool> {
        let sql = "
            INSERT INTO people (id, email, password, created_at) VALUES ($1, $2, $3, $4)
            ON CONFLICT (email) DO NOTHING";
        let query = query(sql).bind(&user.id).bind(&user.email);
        let query = query.bind(password.unwrap_or_default()).bind(user.created_at);
        Ok(query.execute(self).await?.rows_affected() == 1)
    }

    async fn lock_user(&mut self, id: &UserId) -> Result<Option<(User, Option<String>)>> {
        let sql = locked_for_no_key_update!(people_where!("id = $1"));
        let row: Option<UserWithPasswordRow> = query_as(sql).bind(id).fetch_optional(self).await?;
        Ok(row.map(UserWithPasswordRow::into_parts))
    }

    async fn set_password(&mut self, user: &UserId, password: Option<&str>) -> Result<()> {
        let sql = "UPDATE people SET password = $2 WHERE id = $1";
        query(sql).bind(user).bind(password.unwrap_or_default()).execute(self).await?;
        Ok(())
    }

    async fn set_login(
        &mut self,
        user: &UserId,
        issuer: &str,
        subject: &str,
        now: Timestamp,
    ) -> Result<()> {
        self.delete_login(user, issuer).await?;
        let sql = "
            INSERT INTO people_logins (issuer, subject, person_id, created_at)
            VALUES ($1, $2, $3, $4)";
        query(sql).bind(issuer).bind(subject).bind(user).bind(now).execute(self).await?;
        Ok(())
    }

    async fn delete_login(&mut self, user: &UserId, issuer: &str) -> Result<()> {
        let sql = "DELETE FROM people_logins WHERE person_id = $1 AND issuer = $2";
        query(sql).bind(user).bind(issuer).execute(self).await?;
        Ok(())
    }

    async fn delete_logins(&mut self, user: &UserId) -> Result<bool> {
        let sql = "DELETE FROM people_logins WHERE person_id = $1";
        Ok(query(sql).bind(user).execute(self).await?.rows_affected() > 0)
    }

    async fn delete_orphaned_user(&mut self, user: &UserId) -> Result<()> {
        let sql = "
            DELETE FROM people
            WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM memberships WHERE person_id = $1)";
        query(sql).bind(user).execute(self).await?;
        Ok(())
    }

    async fn insert_session(&mut self, session: &Session, hash: &str) -> Result<()> {
        let sql = "
            INSERT INTO sessions (id, person_id, hash, created_at, seen_at, address, user_agent)
            VALUES ($1, $2, $3, $4, $5, $6, $7)";
        query(sql)
            .bind(&session.id)
            .bind(&session.person_id)
            .bind(hash)
            .bind(session.created_at)
            .bind(session.seen_at)
            .bind(&session.address)
            .bind(&session.user_agent)
            .execute(self)
            .await?;
        Ok(())
    }

    async fn touch_session(&mut self, session: &Session) -> Result<()> {
        let sql = "
            UPDATE sessions
            SET seen_at = $2, address = $3, user_agent = $4
            WHERE id = $1 AND seen_at <= $2";
        query(sql)
            .bind(&session.id)
            .bind(session.seen_at)
            .bind(&session.address)
            .bind(&session.user_agent)
            .execute(self)
            .await?;
        Ok(())
    }

    async fn delete_session(&mut self, user: &UserId, id: &SessionId) -> Result<bool> {
        let sql = "DELETE FROM sessions WHERE person_id = $1 AND id = $2";
        Ok(query(sql).bind(user).bind(id).execute(self).await?.rows_affected() == 1)
    }

    async fn delete_other_sessions(
        &mut self,
        user: &UserId,
        except: Option<&SessionId>,
    ) -> Result<()> {
        let sql = "DELETE FROM sessions WHERE person_id = $1 AND id <> $2";
        query(sql).bind(user).bind(except.map_or("", SessionId::as_str)).execute(self).await?;
        Ok(())
    }

    async fn prune_sessions_and_invitations(
        &mut self,
        began: Timestamp,
        seen: Timestamp,
        now: Timestamp,
    ) -> Result<()> {
        let sql = "DELETE FROM sessions WHERE seen_at < $1 OR created_at < $2";
        query(sql).bind(seen).bind(began).execute(&mut *self).await?;
        query("DELETE FROM invitations WHERE expires_at < $1").bind(now).execute(self).await?;
        Ok(())
    }
}
