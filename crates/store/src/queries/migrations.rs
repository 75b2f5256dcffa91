//! Implements reads and writes of migrations, and bulk inserts of keys: one statement per table, regardless of the
//! number of keys.

use std::collections::HashSet;

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::home::Home;
use foundation::id::{ApiId, IdentityId, KeyId, MigrationId, RoleId, WorkspaceId};
use foundation::model::{Meta, Migration, RefillInterval};
use serde_json::{Value, json};
use sqlx::{query, query_as, query_scalar};

use super::{Connection, fetch_all_as, fetch_optional_as};
use crate::rows::MigrationRow;
use crate::{
    KeyToInsert, MigrationReads, MigrationWrites, PageQuery, StoredMigration, key_search_text,
    to_search_text,
};

macro_rules! migrations_where {
    ($condition:literal) => {
        concat!(
            "SELECT m.id, m.workspace_id, m.name, m.algorithm, m.created_at, m.came
            FROM migrations m
            WHERE ",
            $condition
        )
    };
}

/// Selects a page of migrations that begins with the migration `$3`.
macro_rules! migrations_from {
    ($comparison:literal, $order:literal) => {
        concat!(
            migrations_where!("m.workspace_id = $1"),
            " AND ($2 = '' OR ",
            contains!("m.search", "$2"),
            // A replica of the previous version stores no search text.
            " OR ",
            contains!("lower(m.id)", "$2"),
            " OR ",
            contains!("lower(m.name)", "$2"),
            ") AND ($3 = '' OR EXISTS (
                SELECT 1 FROM migrations f
                WHERE f.id = $3 AND f.workspace_id = $1 AND (m.created_at, m.id) ",
            $comparison,
            " (f.created_at, f.id)))
            ORDER BY ",
            $order,
            " LIMIT $4"
        )
    };
}

#[async_trait]
impl MigrationReads for Connection {
    async fn find_migration(
        &mut self,
        workspace: &WorkspaceId,
        id: &MigrationId,
    ) -> Result<Option<Migration>> {
        Ok(self.find_stored_migration(workspace, id).await?.map(|stored| stored.migration))
    }

    async fn find_stored_migration(
        &mut self,
        workspace: &WorkspaceId,
        id: &MigrationId,
    ) -> Result<Option<StoredMigration>> {
        let sql = migrations_where!("m.workspace_id = $1 AND m.id = $2");
        fetch_optional_as::<MigrationRow, _>(self, query_as(sql).bind(workspace).bind(id)).await
    }

    async fn find_migration_of_key(
        &mut self,
        workspace: &WorkspaceId,
        key: &KeyId,
    ) -> Result<Option<Migration>> {
        let sql = migrations_where!(
            "m.workspace_id = $1 AND m.id = (SELECT k.migration_id FROM keys k WHERE k.id = $2)"
        );
        let found = query_as(sql).bind(workspace).bind(key);
        let found: Option<StoredMigration> =
            fetch_optional_as::<MigrationRow, _>(self, found).await?;
        Ok(found.map(|stored| stored.migration))
    }

    async fn list_all_migrations(&mut self, workspace: &WorkspaceId) -> Result<Vec<Migration>> {
        let sql = migrations_where!("m.workspace_id = $1 ORDER BY m.id");
        let all = fetch_all_as::<MigrationRow, _>(self, query_as(sql).bind(workspace)).await?;
        Ok(all.into_iter().map(|stored: StoredMigration| stored.migration).collect())
    }

    async fn list_migrations(
        &mut self,
        workspace: &WorkspaceId,
        is_latest_first: bool,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<StoredMigration>> {
        let sql = match is_latest_first {
            true => migrations_from!("<=", "m.created_at DESC, m.id DESC"),
            false => migrations_from!(">=", "m.created_at, m.id"),
        };
        let query = query_as(sql).bind(workspace).bind(&listing.search);
        fetch_all_as::<MigrationRow, _>(self, query.bind(listing.start).bind(listing.rows_max))
            .await
    }

    async fn count_waiting_keys(&mut self, migration: &MigrationId, max: i64) -> Result<i64> {
        let sql = "
            SELECT COUNT(*) FROM (
                SELECT 1 FROM keys WHERE migration_id = $1 AND deleted_at IS NULL LIMIT $2)
                AS counted";
        Ok(query_scalar(sql).bind(migration).bind(max).fetch_one(self).await?)
    }

    async fn find_waiting_key(
        &mut self,
        migration: &MigrationId,
        hash: &str,
    ) -> Result<Option<(KeyId, ApiId)>> {
        let sql = "
            SELECT id, api_id
            FROM keys
            WHERE hash = $2 AND migration_id = $1 AND deleted_at IS NULL";
        Ok(query_as(sql).bind(migration).bind(hash).fetch_optional(self).await?)
    }

    async fn list_used_hashes(&mut self, hashes: &[String]) -> Result<Vec<String>> {
        let sql = concat!("SELECT hash FROM keys WHERE hash ", is_one_of!("$1"));
        Ok(query_scalar(sql).bind(json!(hashes).to_string()).fetch_all(self).await?)
    }
}

#[async_trait]
impl MigrationWrites for Connection {
    async fn insert_migration(&mut self, migration: &Migration) -> Result<()> {
        let sql = "
            INSERT INTO migrations (id, workspace_id, name, algorithm, created_at, search)
            VALUES ($1, $2, $3, $4, $5, $6)";
        let name = migration.name.as_deref().unwrap_or_default();
        query(sql)
            .bind(&migration.id)
            .bind(&migration.workspace_id)
            .bind(&migration.name)
            .bind(migration.algorithm.as_str())
            .bind(migration.created_at)
            .bind(to_search_text([migration.id.as_str(), name]))
            .execute(self)
            .await?;
        Ok(())
    }

    async fn reserve_import_time(
        &mut self,
        migration: &MigrationId,
        api: &ApiId,
        now: Timestamp,
    ) -> Result<Timestamp> {
        query("UPDATE migrations SET came = came WHERE id = $1")
            .bind(migration)
            .execute(&mut *self)
            .await?;
        let sql = "
            SELECT MAX(created_at)
            FROM keys
            WHERE api_id = $1 AND created_at >= $2 AND migration_id = $3 AND deleted_at IS NULL";
        let latest: Option<Timestamp> =
            query_scalar(sql).bind(api).bind(now).bind(migration).fetch_one(self).await?;
        Ok(latest.map_or(now, |latest| latest.plus_ms(1)))
    }

    async fn remove_unused_keys(
        &mut self,
        workspace: &WorkspaceId,
        migration: &MigrationId,
        api: &ApiId,
        created_at: Timestamp,
    ) -> Result<Vec<KeyId>> {
        let sql = "
            DELETE FROM keys
            WHERE workspace_id = $1 AND api_id = $2 AND created_at = $3 AND migration_id = $4
                AND deleted_at IS NULL
                AND NOT EXISTS (SELECT 1 FROM key_uses u WHERE u.key_id = keys.id)
                AND NOT EXISTS (SELECT 1 FROM purses p WHERE p.key_id = keys.id)
            RETURNING id";
        let query = query_scalar(sql).bind(workspace).bind(api).bind(created_at).bind(migration);
        Ok(query.fetch_all(self).await?)
    }

    async fn add_imported_count(&mut self, migration: &MigrationId, keys: i64) -> Result<()> {
        let sql = "UPDATE migrations SET came = came + $2 WHERE id = $1";
        query(sql).bind(migration).bind(keys).execute(self).await?;
        Ok(())
    }

    async fn ensure_identities(
        &mut self,
        workspace: &WorkspaceId,
        external_ids: &[String],
        home: Option<&Home>,
        now: Timestamp,
    ) -> Result<Vec<(String, IdentityId)>> {
        let row = |external_id: &String| {
            let id = IdentityId::random();
            let search = to_search_text([id.as_str(), external_id]);
            json!({ "id": id, "external_id": external_id, "search": search })
        };
        let rows: Vec<_> = external_ids.iter().map(row).collect();
        // DO UPDATE instead of DO NOTHING, because it returns the existing rows.
        let sql = concat!(
            "INSERT INTO identities (id, workspace_id, external_id, search, created_at, home)
            SELECT item ->> 'id', $1, item ->> 'external_id', item ->> 'search', $2, $4
            FROM ",
            items!("$3"),
            " WHERE TRUE
            ON CONFLICT (workspace_id, external_id) DO UPDATE SET external_id = excluded.external_id
            RETURNING external_id, id"
        );
        let rows = json!(rows).to_string();
        Ok(query_as(sql)
            .bind(workspace)
            .bind(now)
            .bind(rows)
            .bind(home.map(Home::to_string))
            .fetch_all(self)
            .await?)
    }

    async fn insert_roles(
        &mut self,
        workspace: &WorkspaceId,
        roles: &[(RoleId, String)],
        now: Timestamp,
    ) -> Result<Vec<String>> {
        let row = |(id, name): &(RoleId, String)| json!({ "id": id, "name": name, "search": to_search_text([id.as_str(), name]) });
        let rows: Vec<_> = roles.iter().map(row).collect();
        let sql = concat!(
            "INSERT INTO roles (id, workspace_id, name, search, created_at)
            SELECT item ->> 'id', $1, item ->> 'name', item ->> 'search', $2
            FROM ",
            items!("$3"),
            " WHERE TRUE
            ON CONFLICT (workspace_id, name) DO NOTHING
            RETURNING name"
        );
        let rows = json!(rows).to_string();
        Ok(query_scalar(sql).bind(workspace).bind(now).bind(rows).fetch_all(self).await?)
    }

    async fn insert_keys(
        &mut self,
        workspace: &WorkspaceId,
        migration: Option<&MigrationId>,
        keys: &[KeyToInsert],
    ) -> Result<Vec<KeyId>> {
        let sql = concat!(
            "INSERT INTO keys
                (id, workspace_id, api_id, hash, start, prefix, byte_length, name, meta, identity_id,
                owner_id, environment, enabled, expires_at, credits, credits_version, refill_amount, refill_day, refilled,
                created_at, search, migration_id)
            SELECT item ->> 'id', $1, item ->> 'api_id', item ->> 'hash', item ->> 'start',
                item ->> 'prefix', CAST(item ->> 'byte_length' AS BIGINT), item ->> 'name',
                item ->> 'meta', item ->> 'identity_id', item ->> 'owner_id',
                item ->> 'environment', CAST(item ->> 'enabled' AS BOOLEAN),
                CAST(item ->> 'expires_at' AS BIGINT), CAST(item ->> 'credits' AS BIGINT), 1,
                CAST(item ->> 'refill_amount' AS BIGINT), CAST(item ->> 'refill_day' AS BIGINT),
                CAST(item ->> 'refilled' AS BIGINT), CAST(item ->> 'created_at' AS BIGINT),
                item ->> 'search', $2
            FROM ",
            items!("$3"),
            " WHERE TRUE
            ON CONFLICT (hash) DO NOTHING
            RETURNING id"
        );
        // Sorted by hash, so that of two imports of the same keys one waits for the other, without a deadlock.
        let mut sorted: Vec<_> = keys.iter().collect();
        sorted.sort_by(|a, b| a.key.hash.cmp(&b.key.hash));
        let rows: Vec<_> = sorted.into_iter().map(to_key_row).collect();
        let inserted: Vec<KeyId> = query_scalar(sql)
            .bind(workspace)
            .bind(migration)
            .bind(json!(rows).to_string())
            .fetch_all(&mut *self)
            .await?;
        let inserted_ids: HashSet<&KeyId> = inserted.iter().collect();
        let inserted_keys =
            || keys.iter().filter(|incoming| inserted_ids.contains(&incoming.key.id));
        let limits: Vec<_> = inserted_keys().flat_map(to_limit_rows).collect();
        if !limits.is_empty() {
            let sql = concat!(
                "INSERT INTO ratelimits
                    (id, workspace_id, key_id, name, \"limit\", duration_ms, auto_apply,
                    is_async)
                SELECT item ->> 'id', $1, item ->> 'key_id', item ->> 'name',
                    CAST(item ->> 'limit' AS BIGINT), CAST(item ->> 'duration_ms' AS BIGINT),
                    CAST(item ->> 'auto_apply' AS BOOLEAN), CAST(item ->> 'is_async' AS BOOLEAN)
                FROM ",
                items!("$2")
            );
            let limits = json!(limits).to_string();
            query(sql).bind(workspace).bind(limits).execute(&mut *self).await?;
        }
        let link = |key: &KeyId, id: &str| json!({ "key_id": key, "id": id });
        let permissions: Vec<_> = inserted_keys()
            .flat_map(|k| k.permission_ids.iter().map(|id| link(&k.key.id, id.as_str())))
            .collect();
        if !permissions.is_empty() {
            let sql = concat!(
                "INSERT INTO key_permissions (key_id, permission_id)
                SELECT item ->> 'key_id', item ->> 'id' FROM ",
                items!("$1")
            );
            query(sql).bind(json!(permissions).to_string()).execute(&mut *self).await?;
        }
        let roles: Vec<_> = inserted_keys()
            .flat_map(|k| k.role_ids.iter().map(|id| link(&k.key.id, id.as_str())))
            .collect();
        if !roles.is_empty() {
            let sql = concat!(
                "INSERT INTO key_roles (key_id, role_id)
                SELECT item ->> 'key_id', item ->> 'id' FROM ",
                items!("$1")
            );
            query(sql).bind(json!(roles).to_string()).execute(&mut *self).await?;
        }
        Ok(inserted)
    }

    async fn adopt_key(
        &mut self,
        id: &KeyId,
        hash: &str,
        start: &str,
        prefix: &str,
    ) -> Result<bool> {
        let sql = "
            UPDATE keys
            SET hash = $2, start = $3, prefix = $4, migration_id = NULL
            WHERE id = $1 AND migration_id IS NOT NULL";
        let done = query(sql).bind(id).bind(hash).bind(start).bind(prefix).execute(self).await?;
        Ok(done.rows_affected() == 1)
    }
}

fn to_key_row(incoming: &KeyToInsert) -> Value {
    let key = &incoming.key;
    let refill = key.credits.map_or(incoming.idle_refill, |credits| credits.refill);
    let day = refill.and_then(|refill| match refill.interval {
        RefillInterval::Daily => None,
        RefillInterval::Monthly { day } => Some(day),
    });
    json!({
        "id": key.id, "api_id": key.api_id, "hash": key.hash, "start": key.start,
        "prefix": key.prefix, "byte_length": key.byte_length, "name": key.name,
        "meta": key.meta.as_ref().map(Meta::as_str), "identity_id": key.identity_id,
        "owner_id": key.owner_id, "environment": key.environment,
        "enabled": key.is_enabled, "expires_at": key.expires_at,
        "credits": key.credits.map(|credits| credits.balance),
        "refill_amount": refill.map(|refill| refill.amount), "refill_day": day,
        "refilled": key.credits.map_or(0, |credits| credits.refilled_period),
        "created_at": key.created_at, "search": key_search_text(key),
    })
}

fn to_limit_rows(incoming: &KeyToInsert) -> impl Iterator<Item = Value> {
    incoming.ratelimits.iter().map(|limit| {
        json!({
            "id": limit.id, "key_id": incoming.key.id, "name": limit.name, "limit": limit.limit,
            "duration_ms": limit.duration_ms, "auto_apply": limit.auto_apply,
            "is_async": limit.is_approximate,
        })
    })
}
