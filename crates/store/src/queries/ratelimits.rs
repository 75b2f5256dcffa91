//! Implements reads and writes of namespaces and overrides.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::home::Home;
use foundation::id::{NamespaceId, OverrideId, WorkspaceId};
use foundation::model::{Namespace, OutagePolicy, Override};
use serde_json::json;
use sqlx::{query, query_as, query_scalar};

use super::{Connection, fetch_all_as, fetch_optional_as};
use crate::rows::{NamespaceRow, OverrideRow, StoredNamespaceRow};
use crate::{
    PageOrder, PageQuery, RatelimitReads, RatelimitWrites, StoredNamespace, to_search_text,
};

macro_rules! namespaces_with {
    ($more:expr, $condition:expr) => {
        concat!(
            "SELECT n.id, n.workspace_id, n.name, n.on_outage, n.home, n.created_at, n.deleted_at",
            $more,
            " FROM namespaces n WHERE n.workspace_id = $1",
            $condition
        )
    };
}

macro_rules! existing_namespaces_where {
    ($condition:expr) => {
        namespaces_with!("", concat!(" AND n.deleted_at IS NULL AND ", $condition))
    };
}

macro_rules! namespace_by_id_or_name {
    ($more:expr) => {
        namespaces_with!($more, " AND (n.id = $2 OR n.name = $2) ORDER BY n.id = $2 DESC LIMIT 1")
    };
}

/// Selects a namespace with its overrides.
macro_rules! stored_namespace {
    () => {
        namespace_by_id_or_name!(concat!(
            ", (SELECT ",
            array!(object!(
                "'id', o.id, 'identifier', o.identifier, 'limit', o.\"limit\",
                'duration_ms', o.duration_ms, 'expires_at', o.expires_at, 'is_async', o.is_async,
                'created_at', o.created_at, 'updated_at', o.updated_at"
            )),
            " FROM overrides o WHERE o.namespace_id = n.id) AS overrides"
        ))
    };
}

macro_rules! overrides_of {
    ($condition:expr) => {
        concat!(
            "SELECT o.id, o.identifier, o.\"limit\", o.duration_ms, o.expires_at, o.is_async,
                o.created_at, o.updated_at
            FROM overrides o
            JOIN namespaces n ON n.id = o.namespace_id AND n.workspace_id = $1
            WHERE o.namespace_id = $2 AND ",
            $condition
        )
    };
}

#[async_trait]
impl RatelimitReads for Connection {
    async fn find_stored_namespace(
        &mut self,
        workspace: &WorkspaceId,
        id_or_name: &str,
    ) -> Result<Option<StoredNamespace>> {
        fetch_optional_as::<StoredNamespaceRow, _>(
            self,
            query_as(stored_namespace!()).bind(workspace).bind(id_or_name),
        )
        .await
    }

    async fn find_namespace(
        &mut self,
        workspace: &WorkspaceId,
        id_or_name: &str,
    ) -> Result<Option<Namespace>> {
        fetch_optional_as::<NamespaceRow, _>(
            self,
            query_as(namespace_by_id_or_name!("")).bind(workspace).bind(id_or_name),
        )
        .await
    }

    async fn list_all_namespaces(&mut self, workspace: &WorkspaceId) -> Result<Vec<Namespace>> {
        fetch_all_as::<NamespaceRow, _>(
            self,
            query_as(namespaces_with!("", " ORDER BY n.name")).bind(workspace),
        )
        .await
    }

    async fn load_namespace_names(
        &mut self,
        workspace: &WorkspaceId,
        ids: &[NamespaceId],
    ) -> Result<Vec<(NamespaceId, String)>> {
        let sql = concat!(
            "SELECT id, name FROM namespaces WHERE workspace_id = $1 AND deleted_at IS NULL AND id ",
            is_one_of!("$2")
        );
        Ok(query_as(sql).bind(workspace).bind(json!(ids).to_string()).fetch_all(self).await?)
    }

    async fn list_namespaces(
        &mut self,
        workspace: &WorkspaceId,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<Namespace>> {
        let sql = page_in_order!(existing_namespaces_where, listing, "n.id", "n.name", "n.search");
        let query = query_as(sql).bind(workspace).bind(listing.start);
        fetch_all_as::<NamespaceRow, _>(self, query.bind(&listing.search).bind(listing.rows_max))
            .await
    }

    async fn list_overrides(
        &mut self,
        workspace: &WorkspaceId,
        namespace: &NamespaceId,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<Override>> {
        let sql = page_in_order!(
            overrides_of,
            listing,
            "o.id",
            "o.identifier",
            "o.search",
            "$3",
            "$4",
            "$5"
        );
        let query = query_as(sql).bind(workspace).bind(namespace).bind(listing.start);
        fetch_all_as::<OverrideRow, _>(self, query.bind(&listing.search).bind(listing.rows_max))
            .await
    }

    async fn find_override(
        &mut self,
        workspace: &WorkspaceId,
        namespace: &NamespaceId,
        identifier: &str,
    ) -> Result<Option<Override>> {
        let sql = overrides_of!("o.identifier = $3");
        let query = query_as(sql).bind(workspace).bind(namespace).bind(identifier);
        fetch_optional_as::<OverrideRow, _>(self, query).await
    }

    async fn count_overrides(&mut self, namespace: &NamespaceId) -> Result<i64> {
        let sql = "SELECT COUNT(*) FROM overrides WHERE namespace_id = $1";
        Ok(query_scalar(sql).bind(namespace).fetch_one(self).await?)
    }
}

#[async_trait]
impl RatelimitWrites for Connection {
    async fn lock_namespaces(&mut self, workspace: &WorkspaceId) -> Result<i64> {
        let sql = locked_for_no_key_update!("SELECT id FROM workspaces WHERE id = $1");
        query(sql).bind(workspace).fetch_optional(&mut *self).await?;
        let sql = "
            SELECT COUNT(*)
            FROM namespaces
            WHERE workspace_id = $1 AND deleted_at IS NULL";
        Ok(query_scalar(sql).bind(workspace).fetch_one(self).await?)
    }

    async fn insert_namespaces(
        &mut self,
        workspace: &WorkspaceId,
        namespaces: &[Namespace],
    ) -> Result<Vec<String>> {
        let rows: Vec<_> = namespaces
            .iter()
            .map(|namespace| {
                json!({
                    "id": namespace.id, "name": namespace.name,
                    "on_outage": namespace.outage_policy.as_str(), "created_at": namespace.created_at,
                    "home": namespace.home.as_ref().map(Home::to_string),
                    "search": to_search_text([namespace.id.as_str(), &namespace.name]),
                })
            })
            .collect();
        let sql = concat!(
            "INSERT INTO namespaces (id, workspace_id, name, on_outage, created_at, search, home)
            SELECT item ->> 'id', $1, item ->> 'name', item ->> 'on_outage',
                CAST(item ->> 'created_at' AS BIGINT), item ->> 'search', item ->> 'home'
            FROM ",
            items!("$2"),
            " WHERE TRUE
            ON CONFLICT (workspace_id, name) DO NOTHING
            RETURNING name"
        );
        Ok(query_scalar(sql).bind(workspace).bind(json!(rows).to_string()).fetch_all(self).await?)
    }

    async fn lock_namespace(
        &mut self,
        workspace: &WorkspaceId,
        id_or_name: &str,
    ) -> Result<Option<Namespace>> {
        let sql =
            locked!("SELECT id FROM namespaces WHERE workspace_id = $1 AND (id = $2 OR name = $2)");
        query(sql).bind(workspace).bind(id_or_name).fetch_all(&mut *self).await?;
        // Read after the lock, so that writes of its previous holder are visible.
        self.find_namespace(workspace, id_or_name).await
    }

    async fn set_outage_policy(&mut self, id: &NamespaceId, on_outage: OutagePolicy) -> Result<()> {
        query("UPDATE namespaces SET on_outage = $2 WHERE id = $1")
            .bind(id)
            .bind(on_outage.as_str())
            .execute(self)
            .await?;
        Ok(())
    }

    async fn delete_namespace(&mut self, id: &NamespaceId, now: Timestamp) -> Result<()> {
        query("UPDATE namespaces SET deleted_at = $2 WHERE id = $1")
            .bind(id)
            .bind(now)
            .execute(self)
            .await?;
        Ok(())
    }

    async fn upsert_override(
        &mut self,
        namespace: &NamespaceId,
        new: &Override,
    ) -> Result<OverrideId> {
        let sql = "
            INSERT INTO overrides
                (id, namespace_id, identifier, \"limit\", duration_ms, expires_at, is_async,
                created_at, search)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
            ON CONFLICT (namespace_id, identifier) DO UPDATE
            SET \"limit\" = excluded.\"limit\", duration_ms = excluded.duration_ms,
                expires_at = excluded.expires_at, is_async = excluded.is_async,
                updated_at = excluded.created_at
            RETURNING id";
        Ok(query_scalar(sql)
            .bind(&new.id)
            .bind(namespace)
            .bind(&new.identifier)
            .bind(new.limit)
            .bind(new.duration_ms)
            .bind(new.expires_at)
            .bind(new.is_approximate)
            .bind(new.created_at)
            .bind(to_search_text([new.id.as_str(), &new.identifier]))
            .fetch_one(self)
            .await?)
    }

    async fn delete_override(
        &mut self,
        namespace: &NamespaceId,
        identifier: &str,
    ) -> Result<Option<OverrideId>> {
        let sql = "DELETE FROM overrides WHERE namespace_id = $1 AND identifier = $2 RETURNING id";
        Ok(query_scalar(sql).bind(namespace).bind(identifier).fetch_optional(self).await?)
    }
}
