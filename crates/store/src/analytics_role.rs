//! Manages the Postgres role that runs analytics queries: what it is allowed to read, and what it should not be.

use foundation::error::Result;
use foundation::model::EventKind;
use sqlx::{AssertSqlSafe, PgPool, query, query_as, query_scalar};

use super::EventStore;
use super::events::{EventDatabase, SCHEMA};

/// The privileges of a role that matter for analytics queries.
#[derive(Debug, Clone, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct AnalyticsRole {
    pub name: String,
    pub is_superuser: bool,
    /// Whether it can read or change anything but events.
    pub reads_other_tables: bool,
    pub writes_events: bool,
    /// How much one of its queries may write to disk. `-1`: any amount.
    pub temp_file_limit: String,
}

impl EventStore {
    /// Grants the role that runs analytics queries access to the tables that it reads, if it does not have it.
    pub async fn grant_analytics_role(&self) -> Result<()> {
        let EventDatabase::Postgres { write, analytics: ask, .. } = &self.database else {
            return Ok(());
        };
        let (write, ask) = (&write.get(), &ask.get());
        let role: String = query_scalar("SELECT CAST(current_user AS TEXT)").fetch_one(ask).await?;
        if !has_schema_usage(write, &role).await? {
            grant_privilege(write, "USAGE ON SCHEMA", SCHEMA, &role).await?;
        }
        let missing: Vec<String> = query_scalar(
            "SELECT name FROM unnest($1) AS name
            WHERE NOT has_table_privilege($2, format('%I.%I', CAST($3 AS TEXT), name), 'SELECT')",
        )
        .bind(query_tables())
        .bind(&role)
        .bind(SCHEMA)
        .fetch_all(write)
        .await?;
        for table in missing {
            grant_privilege(write, "SELECT ON", &format!("{SCHEMA}.{table}"), &role).await?;
        }
        Ok(())
    }

    /// Returns the role that runs analytics queries, or `None` if Postgres does not run them.
    pub async fn find_analytics_role(&self) -> Result<Option<AnalyticsRole>> {
        let EventDatabase::Postgres { analytics: ask, .. } = &self.database else {
            return Ok(None);
        };
        let sql = "
            SELECT CAST(current_user AS TEXT) AS name, r.rolsuper AS is_superuser,
                EXISTS (
                    SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                    WHERE n.nspname NOT IN ($1, 'pg_catalog', 'information_schema')
                        AND n.nspname NOT LIKE 'pg\\_%' AND c.relkind IN ('r', 'p')
                        AND has_table_privilege(c.oid, 'SELECT, INSERT, UPDATE, DELETE')
                ) AS reads_other_tables,
                has_table_privilege(format('%I.batches', CAST($1 AS TEXT)), 'INSERT, UPDATE, DELETE')
                    AS writes_events,
                current_setting('temp_file_limit') AS temp_file_limit
            FROM pg_roles r WHERE r.rolname = current_user";
        Ok(Some(query_as(sql).bind(SCHEMA).fetch_one(&ask.get()).await?))
    }
}

/// Returns the tables behind the public tables.
fn query_tables() -> Vec<String> {
    let of_kind = |kind: EventKind| {
        let raw = kind.table_name();
        let rollups = ["minute", "hour", "day", "month"].map(|unit| format!("{raw}_per_{unit}"));
        let series = format!("{}_series", raw.trim_end_matches('s'));
        rollups.into_iter().chain([raw.to_owned(), series])
    };
    EventKind::ALL.into_iter().flat_map(of_kind).chain(["batches".to_owned()]).collect()
}

async fn has_schema_usage(pool: &PgPool, role: &str) -> Result<bool> {
    let sql = "SELECT has_schema_privilege($1, $2, 'USAGE')";
    Ok(query_scalar(sql).bind(role).bind(SCHEMA).fetch_one(pool).await?)
}

/// Grants a privilege. `what` and `on` are words of this program; Postgres quotes the name of the role.
async fn grant_privilege(pool: &PgPool, what: &str, on: &str, role: &str) -> Result<()> {
    let sql =
        "SELECT format('GRANT %s %s TO %I', CAST($1 AS TEXT), CAST($2 AS TEXT), CAST($3 AS TEXT))";
    let sql: String = query_scalar(sql).bind(what).bind(on).bind(role).fetch_one(pool).await?;
    query(AssertSqlSafe(sql)).execute(pool).await?;
    Ok(())
}
