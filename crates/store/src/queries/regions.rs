//! Implements reads and writes of the regions of a deployment, and of what they count.

use async_trait::async_trait;
use foundation::error::{Error, Result};
use foundation::home::Home;
use foundation::id::WorkspaceId;
use sqlx::{query, query_as, query_scalar};

use super::Connection;
use crate::{HomeOwner, RegionReads, RegionWrites};

#[async_trait]
impl RegionReads for Connection {
    async fn list_regions(&mut self) -> Result<Vec<String>> {
        Ok(query_scalar("SELECT name FROM regions ORDER BY position").fetch_all(self).await?)
    }

    async fn count_homes(&mut self) -> Result<Vec<(String, i64, i64, i64)>> {
        let sql = "
            SELECT COALESCE(home, ''), CAST(SUM(apis) AS BIGINT), CAST(SUM(identities) AS BIGINT),
                CAST(SUM(namespaces) AS BIGINT)
            FROM (
                SELECT home, 1 AS apis, 0 AS identities, 0 AS namespaces
                FROM apis WHERE deleted_at IS NULL
                UNION ALL SELECT home, 0, 1, 0 FROM identities
                UNION ALL SELECT home, 0, 0, 1 FROM namespaces WHERE deleted_at IS NULL
            ) AS owners
            GROUP BY home
            ORDER BY 1";
        Ok(query_as(sql).fetch_all(self).await?)
    }
}

#[async_trait]
impl RegionWrites for Connection {
    async fn add_regions(&mut self, names: &[String]) -> Result<()> {
        // Of several replicas that start, one inserts a region; the others find it.
        let sql = "
            INSERT INTO regions (name, position)
            SELECT $1, COALESCE(MAX(position) + 1, 0) FROM regions WHERE TRUE
            ON CONFLICT DO NOTHING";
        for name in names {
            query(sql).bind(name).execute(&mut *self).await?;
        }
        Ok(())
    }

    async fn lock_home(
        &mut self,
        workspace: &WorkspaceId,
        owner: &HomeOwner,
    ) -> Result<Option<Option<Home>>> {
        let (sql, id) = match owner {
            HomeOwner::Api(id) => (
                locked!(
                    "SELECT home FROM apis WHERE workspace_id = $1 AND id = $2 AND deleted_at IS NULL"
                ),
                id.as_str(),
            ),
            HomeOwner::Identity(id) => (
                locked!("SELECT home FROM identities WHERE workspace_id = $1 AND id = $2"),
                id.as_str(),
            ),
            HomeOwner::Namespace(id) => (
                locked!(
                    "SELECT home FROM namespaces WHERE workspace_id = $1 AND id = $2 AND deleted_at IS NULL"
                ),
                id.as_str(),
            ),
        };
        let found: Option<Option<String>> =
            query_scalar(sql).bind(workspace).bind(id).fetch_optional(self).await?;
        let parse = |text: String| text.parse().map_err(Error::Internal);
        found.map(|home| home.map(parse).transpose()).transpose()
    }

    async fn set_home(&mut self, owner: &HomeOwner, home: &Home) -> Result<()> {
        let (sql, id) = match owner {
            HomeOwner::Api(id) => ("UPDATE apis SET home = $2 WHERE id = $1", id.as_str()),
            HomeOwner::Identity(id) => {
                ("UPDATE identities SET home = $2 WHERE id = $1", id.as_str())
            }
            HomeOwner::Namespace(id) => {
                ("UPDATE namespaces SET home = $2 WHERE id = $1", id.as_str())
            }
        };
        query(sql).bind(id).bind(home.to_string()).execute(self).await?;
        Ok(())
    }
}
