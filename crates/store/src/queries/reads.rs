//! Implements reads of APIs, keys and stored replies.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{ApiId, IdentityId, KeyId, WorkspaceId};
use foundation::model::{Api, KeySummary};
use serde_json::json;
use sqlx::{query_as, query_scalar};

use super::{Connection, fetch_all_as, fetch_optional_as};
use crate::rows::{ApiRow, KeyForSpendingRow, KeyRow};
use crate::{KeyOwnerFilter, PageOrder, PageQuery, Reads, StoredKey};

macro_rules! apis_where {
    ($condition:expr) => {
        concat!(
            "SELECT id, workspace_id, name, default_prefix, default_byte_length, recoverable_keys,
                delete_protection, allowed_networks, home, created_at, deleted_at
            FROM apis
            WHERE workspace_id = $1 AND ",
            $condition
        )
    };
}

macro_rules! apis_from {
    ($start:expr, $order:expr) => {
        apis_where!(concat!(
            "deleted_at IS NULL AND ",
            $start,
            " AND ($3 = '' OR ",
            contains!("search", "$3"),
            ") ORDER BY ",
            $order,
            " LIMIT $4"
        ))
    };
}

/// Selects a page of the keys of an API with `$select`, and returns the id of their owner, `$5`. There is one statement per case,
/// because each case has an index that returns the page in order.
macro_rules! api_keys_page {
    ($select:ident, $owner:expr) => {
        match $owner {
            KeyOwnerFilter::Any => (
                $select!(
                    "k.workspace_id = $1 AND k.api_id = $2 AND k.id >= $3
                    ORDER BY k.id
                    LIMIT $4"
                ),
                None,
            ),
            KeyOwnerFilter::Identity(id) => (
                $select!(
                    "k.workspace_id = $1 AND k.api_id = $2 AND k.id >= $3 AND k.identity_id = $5
                    ORDER BY k.id
                    LIMIT $4"
                ),
                Some(id.as_str()),
            ),
            KeyOwnerFilter::OwnerId(owner) => (
                $select!(
                    "k.workspace_id = $1 AND k.api_id = $2 AND k.id >= $3 AND k.owner_id = $5
                    ORDER BY k.id
                    LIMIT $4"
                ),
                Some(owner.as_str()),
            ),
        }
    };
}

#[async_trait]
impl Reads for Connection {
    async fn find_api(&mut self, workspace: &WorkspaceId, id: &ApiId) -> Result<Option<Api>> {
        fetch_optional_as::<ApiRow, _>(
            self,
            query_as(apis_where!("id = $2")).bind(workspace).bind(id),
        )
        .await
    }

    async fn list_all_apis(&mut self, workspace: &WorkspaceId) -> Result<Vec<Api>> {
        fetch_all_as::<ApiRow, _>(
            self,
            query_as(apis_where!("deleted_at IS NULL ORDER BY id")).bind(workspace),
        )
        .await
    }

    async fn list_apis(
        &mut self,
        workspace: &WorkspaceId,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<Api>> {
        // Names may be equal, so a page begins with a name and an id.
        let by_name = listing.start.split_once(' ').unwrap_or_default();
        let (id, name) = match listing.order {
            PageOrder::ById => (listing.start, ""),
            PageOrder::ByName | PageOrder::ByNameDescending => by_name,
        };
        let sql = match (listing.order, id.is_empty()) {
            (PageOrder::ById, _) => apis_from!("$2 = '' AND id >= $5", "id"),
            (PageOrder::ByName, _) => apis_from!(
                concat!("(", by_bytes!("name"), ", id) >= ($2, $5)"),
                concat!(by_bytes!("name"), ", id")
            ),
            (PageOrder::ByNameDescending, true) => {
                apis_from!("$2 = $5", concat!(by_bytes!("name"), " DESC, id DESC"))
            }
            (PageOrder::ByNameDescending, false) => apis_from!(
                concat!("(", by_bytes!("name"), ", id) <= ($2, $5)"),
                concat!(by_bytes!("name"), " DESC, id DESC")
            ),
        };
        let query = query_as(sql).bind(workspace).bind(name);
        let query = query.bind(&listing.search).bind(listing.rows_max).bind(id);
        fetch_all_as::<ApiRow, _>(self, query).await
    }

    async fn find_key(&mut self, workspace: &WorkspaceId, id: &KeyId) -> Result<Option<StoredKey>> {
        fetch_optional_as::<KeyRow, _>(
            self,
            query_as(keys_where!("k.workspace_id = $1 AND k.id = $2")).bind(workspace).bind(id),
        )
        .await
    }

    async fn list_api_keys(
        &mut self,
        workspace: &WorkspaceId,
        api: &ApiId,
        owner: &KeyOwnerFilter,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<StoredKey>> {
        let (sql, owner_id) = api_keys_page!(keys_where, owner);
        let query =
            query_as(sql).bind(workspace).bind(api).bind(listing.start).bind(listing.rows_max);
        let query = match owner_id {
            None => query,
            Some(owner_id) => query.bind(owner_id),
        };
        fetch_all_as::<KeyRow, _>(self, query).await
    }

    async fn list_keys_by_owner(
        &mut self,
        workspace: &WorkspaceId,
        owner: &str,
        max: i64,
    ) -> Result<Vec<(KeyId, ApiId)>> {
        let sql = "
            SELECT k.id, k.api_id
            FROM apis a JOIN keys k ON k.api_id = a.id
            WHERE a.workspace_id = $1 AND a.deleted_at IS NULL
                AND k.owner_id = $2 AND k.deleted_at IS NULL
            ORDER BY k.id
            LIMIT $3";
        Ok(query_as(sql).bind(workspace).bind(owner).bind(max).fetch_all(self).await?)
    }

    async fn list_keys_by_ids(
        &mut self,
        workspace: &WorkspaceId,
        ids: &[KeyId],
    ) -> Result<Vec<KeySummary>> {
        let sql = key_summaries_where!(concat!(
            unindexed!("k.workspace_id"),
            " = $1 AND k.id ",
            is_one_of!("$2"),
            " ORDER BY k.id"
        ));
        Ok(query_as(sql).bind(workspace).bind(json!(ids).to_string()).fetch_all(self).await?)
    }

    async fn list_identity_keys(
        &mut self,
        workspace: &WorkspaceId,
        identity: &IdentityId,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<KeySummary>> {
        let sql = key_summaries_where!(concat!(
            unindexed!("k.workspace_id"),
            " = $1 AND k.identity_id = $2 AND k.id >= $3 ORDER BY k.id LIMIT $4"
        ));
        let query = query_as(sql).bind(workspace).bind(identity).bind(listing.start);
        Ok(query.bind(listing.rows_max).fetch_all(self).await?)
    }

    async fn count_identity_keys(
        &mut self,
        workspace: &WorkspaceId,
        identity: &IdentityId,
        max: i64,
    ) -> Result<i64> {
        // SQLite joins tables in this order.
        let sql = concat!(
            "SELECT COUNT(*) FROM (
                SELECT 1 FROM keys k CROSS JOIN apis a
                WHERE k.identity_id = $2 AND k.deleted_at IS NULL AND ",
            unindexed!("k.workspace_id"),
            " = $1 AND a.id = k.api_id AND a.deleted_at IS NULL
                LIMIT $3) AS counted"
        );
        Ok(query_scalar(sql).bind(workspace).bind(identity).bind(max).fetch_one(self).await?)
    }

    async fn count_keys(&mut self, workspace: &WorkspaceId, api: &ApiId) -> Result<i64> {
        let sql = "
            SELECT COUNT(*)
            FROM keys
            WHERE workspace_id = $1 AND api_id = $2 AND deleted_at IS NULL";
        Ok(query_scalar(sql).bind(workspace).bind(api).fetch_one(self).await?)
    }

    async fn find_key_by_hash(&mut self, hash: &str) -> Result<Option<StoredKey>> {
        fetch_optional_as::<KeyRow, _>(self, query_as(keys_where!("k.hash = $1")).bind(hash)).await
    }

    async fn list_keys_to_spend(
        &mut self,
        hashes: &[String],
        replica: &str,
    ) -> Result<Vec<StoredKey>> {
        // In one statement, and therefore at one point in time: a replica that reads the number of a lease is
        // registered then.
        let sql = concat!(
            "SELECT found.*, EXISTS (SELECT 1 FROM replicas WHERE id = $2 AND ",
            is_registered!(),
            ") AS is_registered ",
            from_keys_by_hash!()
        );
        let query = query_as(sql).bind(json!(hashes).to_string()).bind(replica);
        fetch_all_as::<KeyForSpendingRow, _>(self, query).await
    }

    async fn has_key(&mut self, id: &KeyId) -> Result<bool> {
        let sql = "SELECT id FROM keys WHERE id = $1 AND deleted_at IS NULL";
        Ok(query_scalar::<_, String>(sql).bind(id).fetch_optional(self).await?.is_some())
    }

    async fn find_stored_reply(
        &mut self,
        root_key: &KeyId,
        name: &str,
    ) -> Result<Option<(String, String)>> {
        let sql = "SELECT request, sealed FROM kept_replies WHERE root_key_id = $1 AND name = $2";
        Ok(query_as(sql).bind(root_key).bind(name).fetch_optional(self).await?)
    }

    async fn load_database_time(&mut self) -> Result<Timestamp> {
        Ok(query_scalar(concat!("SELECT ", now_ms!())).fetch_one(self).await?)
    }
}
