//! Implements reads and writes of identities.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::home::Home;
use foundation::id::{IdentityId, KeyId, WorkspaceId};
use foundation::model::{Identity, IdentitySummary, Meta};
use serde_json::json;
use sqlx::{query, query_as, query_scalar};

use super::{Connection, fetch_all_as, fetch_optional_as, to_index_pattern};
use crate::rows::IdentityRow;
use crate::{IdentityReads, IdentitySelection, IdentityWrites, PageQuery, to_search_text};

macro_rules! identities_where {
    ($condition:expr) => {
        concat!(
            "SELECT i.id, i.external_id, i.meta, i.home, ",
            ratelimits_of!("l.identity_id = i.id"),
            " FROM identities i WHERE i.workspace_id = $1 AND ",
            $condition
        )
    };
}

/// Selects identities as lists show them: without their metadata and limits.
macro_rules! identity_summaries_where {
    ($condition:expr) => {
        concat!(
            "SELECT i.id, i.external_id,
                (SELECT COUNT(*) FROM ratelimits l WHERE l.identity_id = i.id) AS limit_count
            FROM identities i WHERE i.workspace_id = $1 AND ",
            $condition
        )
    };
}

/// Selects a page of identities with `$select` by one more condition. `$id` is their id, as a condition for an index or not.
macro_rules! identity_page_where {
    ($select:ident, $id:expr, $condition:expr) => {
        $select!(concat!(
            $id,
            " >= $2 AND ($3 = '' OR ",
            contains!("i.search", "$3"),
            ") AND ",
            $condition,
            " ORDER BY i.id LIMIT $4"
        ))
    };
}

/// Selects a page of identities with `$select`, and returns the value of `$5`. There is one statement per case, because each case
/// has an index: of a workspace in order, and of ids.
macro_rules! identities_page {
    ($select:ident, $selection:expr) => {
        match $selection {
            IdentitySelection::All => {
                (identity_page_where!($select, "i.id", "$5 = ''"), String::new())
            }
            IdentitySelection::Before(end) => {
                (identity_page_where!($select, "i.id", "i.id < $5"), end.to_owned())
            }
            IdentitySelection::Ids(ids) => (
                identity_page_where!(
                    $select,
                    unindexed!("i.id"),
                    concat!("i.id ", is_one_of!("$5"))
                ),
                json!(ids).to_string(),
            ),
        }
    };
}

#[async_trait]
impl IdentityReads for Connection {
    async fn list_identities_by_ids(
        &mut self,
        workspace: &WorkspaceId,
        ids: &[IdentityId],
    ) -> Result<Vec<Identity>> {
        let sql = identities_where!(concat!("i.id ", is_one_of!("$2")));
        fetch_all_as::<IdentityRow, _>(
            self,
            query_as(sql).bind(workspace).bind(json!(ids).to_string()),
        )
        .await
    }

    async fn find_identity(
        &mut self,
        workspace: &WorkspaceId,
        id: &str,
        external_id: &str,
    ) -> Result<Option<Identity>> {
        let sql =
            identities_where!("(i.id = $2 OR i.external_id = $3) ORDER BY i.id = $2 DESC LIMIT 1");
        fetch_optional_as::<IdentityRow, _>(
            self,
            query_as(sql).bind(workspace).bind(id).bind(external_id),
        )
        .await
    }

    async fn find_identity_id(
        &mut self,
        workspace: &WorkspaceId,
        external_id: &str,
    ) -> Result<Option<IdentityId>> {
        let sql = "SELECT id FROM identities WHERE workspace_id = $1 AND external_id = $2";
        Ok(query_scalar(sql).bind(workspace).bind(external_id).fetch_optional(self).await?)
    }

    async fn find_searched_identities(
        &mut self,
        workspace: &WorkspaceId,
        search: &str,
        max: i64,
    ) -> Result<Option<Vec<String>>> {
        let Some(pattern) = to_index_pattern(search) else { return Ok(None) };
        let query = query_scalar(identities_by_text!()).bind(workspace).bind(pattern);
        let ids: Vec<String> = query.bind(max.saturating_add(1)).fetch_all(self).await?;
        Ok(i64::try_from(ids.len()).is_ok_and(|found| found <= max).then_some(ids))
    }

    async fn count_identities(&mut self, workspace: &WorkspaceId) -> Result<i64> {
        let sql = "SELECT COUNT(*) FROM identities WHERE workspace_id = $1";
        Ok(query_scalar(sql).bind(workspace).fetch_one(self).await?)
    }

    async fn find_identity_at(
        &mut self,
        workspace: &WorkspaceId,
        start_id: &str,
        offset: i64,
    ) -> Result<Option<String>> {
        let sql = "
            SELECT id FROM identities
            WHERE workspace_id = $1 AND id >= $2
            ORDER BY id LIMIT 1 OFFSET $3";
        let query = query_scalar(sql).bind(workspace).bind(start_id).bind(offset);
        Ok(query.fetch_optional(self).await?)
    }

    async fn list_identities(
        &mut self,
        workspace: &WorkspaceId,
        selection: IdentitySelection<'_>,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<Identity>> {
        let (sql, selected) = identities_page!(identities_where, selection);
        fetch_all_as::<IdentityRow, _>(
            self,
            query_as(sql)
                .bind(workspace)
                .bind(listing.start)
                .bind(&listing.search)
                .bind(listing.rows_max)
                .bind(selected),
        )
        .await
    }

    async fn list_identities_by_external_id(
        &mut self,
        workspace: &WorkspaceId,
        start: &str,
        descending: bool,
        max: i64,
    ) -> Result<Vec<IdentitySummary>> {
        // One statement per case, because each has another range of the index.
        let sql = match (descending, start.is_empty()) {
            (false, _) => {
                identity_summaries_where!("i.external_id >= $2 ORDER BY i.external_id LIMIT $3")
            }
            (true, true) => {
                identity_summaries_where!("$2 = '' ORDER BY i.external_id DESC LIMIT $3")
            }
            (true, false) => identity_summaries_where!(
                "i.external_id <= $2 ORDER BY i.external_id DESC LIMIT $3"
            ),
        };
        Ok(query_as(sql).bind(workspace).bind(start).bind(max).fetch_all(self).await?)
    }
}

#[async_trait]
impl IdentityWrites for Connection {
    async fn lock_identity(
        &mut self,
        workspace: &WorkspaceId,
        id: &str,
        external_id: &str,
    ) -> Result<Option<Identity>> {
        let sql = locked!(
            "SELECT id FROM identities
            WHERE workspace_id = $1 AND (id = $2 OR external_id = $3)
            ORDER BY id = $2 DESC LIMIT 1"
        );
        let id: Option<IdentityId> = query_scalar(sql)
            .bind(workspace)
            .bind(id)
            .bind(external_id)
            .fetch_optional(&mut *self)
            .await?;
        // Read after the lock, so that writes of its previous holder are visible.
        match id {
            Some(id) => Ok(self
                .list_identities_by_ids(workspace, std::slice::from_ref(&id))
                .await?
                .into_iter()
                .next()),
            None => Ok(None),
        }
    }

    async fn ensure_identity(
        &mut self,
        workspace: &WorkspaceId,
        external_id: &str,
        home: Option<&Home>,
        now: Timestamp,
    ) -> Result<IdentityId> {
        // DO UPDATE instead of DO NOTHING, because it returns the existing row.
        let sql = "
            INSERT INTO identities (id, workspace_id, external_id, search, created_at, home)
            VALUES ($1, $2, $3, $4, $5, $6)
            ON CONFLICT (workspace_id, external_id) DO UPDATE SET external_id = excluded.external_id
            RETURNING id";
        let id = IdentityId::random();
        Ok(query_scalar(sql)
            .bind(&id)
            .bind(workspace)
            .bind(external_id)
            .bind(to_search_text([id.as_str(), external_id]))
            .bind(now)
            .bind(home.map(Home::to_string))
            .fetch_one(self)
            .await?)
    }

    async fn insert_identity(
        &mut self,
        workspace: &WorkspaceId,
        identity: &Identity,
        now: Timestamp,
    ) -> Result<()> {
        let sql = "
            INSERT INTO identities (id, workspace_id, external_id, meta, search, created_at, home)
            VALUES ($1, $2, $3, $4, $5, $6, $7)";
        query(sql)
            .bind(&identity.id)
            .bind(workspace)
            .bind(&identity.external_id)
            .bind(identity.meta.as_ref().map(Meta::as_str))
            .bind(to_search_text([identity.id.as_str(), &identity.external_id]))
            .bind(now)
            .bind(identity.home.as_ref().map(Home::to_string))
            .execute(self)
            .await?;
        Ok(())
    }

    async fn set_identity_meta(&mut self, id: &IdentityId, meta: &Meta) -> Result<()> {
        let sql = "UPDATE identities SET meta = $2 WHERE id = $1";
        query(sql).bind(id).bind(meta.as_str()).execute(self).await?;
        Ok(())
    }

    async fn unlink_identity(&mut self, id: &IdentityId) -> Result<Vec<KeyId>> {
        let sql = "UPDATE keys SET identity_id = NULL WHERE identity_id = $1 RETURNING id";
        Ok(query_scalar(sql).bind(id).fetch_all(self).await?)
    }

    async fn delete_identity(&mut self, id: &IdentityId) -> Result<()> {
        query("DELETE FROM identities WHERE id = $1").bind(id).execute(self).await?;
        Ok(())
    }
}
