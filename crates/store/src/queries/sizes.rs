//! Implements reads of the bytes of rows.

use async_trait::async_trait;
use foundation::error::Result;
use foundation::id::{ApiId, WorkspaceId};
use serde_json::json;
use sqlx::{query_as, query_scalar};

use super::Connection;
use crate::{IdentitySelection, KeyOwnerFilter, PageOrder, PageQuery, SizeReads};

/// Returns the bytes of a permission `p`: of its texts, its id and the names of its fields.
macro_rules! permission_bytes {
    () => {
        "64 + octet_length(p.slug) + octet_length(p.name) + COALESCE(octet_length(p.description), 0)"
    };
}

/// Selects the bytes of keys. Of the permissions of a key, 5,000 are read; a key with more is counted as if it had 100,000, which
/// its roles may have.
macro_rules! key_sizes_where {
    ($condition:expr) => {
        concat!(
            "SELECT CAST(COALESCE(octet_length(k.meta), 0)
                + COALESCE((SELECT octet_length(i.meta) FROM identities i WHERE i.id = k.identity_id), 0)
                + (SELECT CASE COUNT(*) WHEN 5000 THEN 20 ELSE 1 END * COALESCE(SUM(bytes), 0)
                    FROM (
                        SELECT ",
            permission_bytes!(),
            " AS bytes
                        FROM key_permissions kp JOIN permissions p ON p.id = kp.permission_id
                        WHERE kp.key_id = k.id
                        UNION ALL SELECT ",
            permission_bytes!(),
            "
                        FROM key_roles kr JOIN role_permissions rp ON rp.role_id = kr.role_id
                            JOIN permissions p ON p.id = rp.permission_id
                        WHERE kr.key_id = k.id
                        LIMIT 5000
                    ) AS texts
                ) AS BIGINT)
            FROM keys k
            WHERE k.deleted_at IS NULL AND ",
            $condition
        )
    };
}

/// Selects the ids of identities and the bytes of their metadata.
macro_rules! identity_sizes_where {
    ($condition:expr) => {
        concat!(
            "SELECT i.id, CAST(COALESCE(octet_length(i.meta), 0) AS BIGINT)
            FROM identities i WHERE i.workspace_id = $1 AND ",
            $condition
        )
    };
}

/// Selects the bytes of the permissions of roles.
macro_rules! role_sizes_where {
    ($condition:expr) => {
        concat!(
            "SELECT CAST((SELECT COALESCE(SUM(",
            permission_bytes!(),
            "), 0) FROM role_permissions rp JOIN permissions p ON p.id = rp.permission_id
                WHERE rp.role_id = r.id) AS BIGINT)
            FROM roles r WHERE r.workspace_id = $1 AND ",
            $condition
        )
    };
}

#[async_trait]
impl SizeReads for Connection {
    async fn measure_api_keys(
        &mut self,
        workspace: &WorkspaceId,
        api: &ApiId,
        owner: &KeyOwnerFilter,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<i64>> {
        let (sql, owner_id) = api_keys_page!(key_sizes_where, owner);
        let query =
            query_scalar(sql).bind(workspace).bind(api).bind(listing.start).bind(listing.rows_max);
        let query = match owner_id {
            None => query,
            Some(owner_id) => query.bind(owner_id),
        };
        Ok(query.fetch_all(self).await?)
    }

    async fn measure_identities(
        &mut self,
        workspace: &WorkspaceId,
        selection: IdentitySelection<'_>,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<(String, i64)>> {
        let (sql, selected) = identities_page!(identity_sizes_where, selection);
        let query = query_as(sql).bind(workspace).bind(listing.start).bind(&listing.search);
        Ok(query.bind(listing.rows_max).bind(selected).fetch_all(self).await?)
    }

    async fn measure_roles(
        &mut self,
        workspace: &WorkspaceId,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<i64>> {
        let sql = page_in_order!(role_sizes_where, listing, "r.id", "r.name", "r.search");
        let query = query_scalar(sql).bind(workspace).bind(listing.start).bind(&listing.search);
        Ok(query.bind(listing.rows_max).fetch_all(self).await?)
    }
}
