//! Implements reads and writes of the change log, and of the replicas that rely on announcements.

use async_trait::async_trait;
use foundation::error::Result;
use serde_json::json;
use sqlx::{query, query_as, query_scalar};
use sqlx_macros::FromRow;

use super::Connection;
use crate::changes::{
    ChangeReads, ChangeRow, ChangeWrites, LogHead, LogPage, PAGE_ROWS, RegisteredReplica,
};

/// The time added to the grace period of a replica before the period counts as over, in milliseconds.
macro_rules! grace_margin_ms {
    () => {
        "10000"
    };
}

/// A row of the log, with the head, which is the same in every row.
#[derive(FromRow)]
struct PageRow {
    #[sqlx(flatten)]
    head: LogHead,
    seq: Option<i64>,
    at: Option<i64>,
    subject: Option<String>,
}

#[async_trait]
impl ChangeReads for Connection {
    async fn load_log_page(&mut self, after: i64, replica: &str) -> Result<LogPage> {
        let sql = concat!(
            "SELECT h.now, h.top, h.ended_below, h.next, h.settled, r.feed, r.seen_at,
                h.has_older_replicas, c.seq, c.at, c.subject
            FROM (
                SELECT ",
            now_ms!(),
            " AS now, ",
            last_position!(),
            " AS top, ",
            transactions_ended_below!(),
            " AS ended_below, ",
            next_transaction!(),
            " AS next, COALESCE((
                    SELECT seq FROM changes WHERE at < (SELECT ",
            now_ms!(),
            " - 60000) ORDER BY at DESC LIMIT 1), 0) AS settled,
                EXISTS (
                    SELECT 1 FROM replicas
                    WHERE feed IS NULL AND id <> $2 AND seen_at > ",
            now_ms!(),
            " - 60000) AS has_older_replicas
            ) AS h
            LEFT JOIN replicas r ON r.id = $2
            LEFT JOIN (
                SELECT seq, at, subject FROM changes WHERE seq > $1 ORDER BY seq LIMIT 10000
            ) AS c ON TRUE
            ORDER BY c.seq"
        );
        let rows: Vec<PageRow> = query_as(sql).bind(after).bind(replica).fetch_all(self).await?;
        let head = rows.first().map(|row| row.head.clone()).unwrap_or_default();
        let row =
            |row: PageRow| Some(ChangeRow { seq: row.seq?, at: row.at?, subject: row.subject? });
        Ok(LogPage { head, rows: rows.into_iter().filter_map(row).collect() })
    }

    async fn load_writers_ended_below(&mut self) -> Result<i64> {
        Ok(query_scalar(concat!("SELECT ", writers_ended_below!())).fetch_one(self).await?)
    }

    async fn list_changes_in_ranges(&mut self, ranges: &[(i64, i64)]) -> Result<Vec<ChangeRow>> {
        let sql = concat!(
            "SELECT c.seq, c.at, c.subject
            FROM ",
            items!("$1"),
            changes_between!("CAST(item ->> 0 AS BIGINT)", "CAST(item ->> 1 AS BIGINT)", "$2"),
            " ORDER BY c.seq
            LIMIT $2"
        );
        let rows_max = i64::try_from(PAGE_ROWS).unwrap_or(i64::MAX);
        let query = query_as(sql).bind(json!(ranges).to_string()).bind(rows_max);
        Ok(query.fetch_all(self).await?)
    }

    async fn list_existing_positions(&mut self, positions: &[i64]) -> Result<Vec<i64>> {
        let sql = concat!(
            "SELECT seq FROM changes WHERE seq IN (SELECT CAST(item AS BIGINT) FROM ",
            texts!("$1"),
            ")"
        );
        Ok(query_scalar(sql).bind(json!(positions).to_string()).fetch_all(self).await?)
    }

    async fn list_unreached_replicas(
        &mut self,
        writer: &str,
        (eras, is_everywhere): (&[String], bool),
        intent: i64,
        grace_ms: i64,
    ) -> Result<Vec<String>> {
        // If the announcement was sent, a replica that has not registered for two seconds is assumed to receive it.
        let sql = concat!(
            "SELECT r.id
            FROM replicas r
            WHERE r.id <> $1
                AND NOT EXISTS (
                    SELECT 1 FROM change_acks a WHERE a.intent = $3 AND a.replica_id = r.id)
                AND (r.feed IS NULL OR r.feed NOT IN (SELECT item FROM ",
            texts!("$2"),
            ")) AND ((NOT $5 AND (r.feed IS NULL OR r.feed <> '') AND r.seen_at > ",
            now_ms!(),
            " - COALESCE(r.grace_ms, $4) - ",
            grace_margin_ms!(),
            ") OR ($5 AND r.feed <> '' AND r.seen_at > ",
            now_ms!(),
            " - 2000))
            ORDER BY r.id
            LIMIT 1000"
        );
        let query = query_scalar(sql).bind(writer).bind(json!(eras).to_string());
        let query = query.bind(intent).bind(grace_ms).bind(is_everywhere);
        Ok(query.fetch_all(self).await?)
    }

    async fn list_registered_replicas(
        &mut self,
        grace_ms: i64,
        max: i64,
    ) -> Result<Vec<RegisteredReplica>> {
        let sql = concat!(
            "SELECT id, started_at, ",
            now_ms!(),
            " - seen_at AS seen_ms_ago, feed, seen_at + COALESCE(grace_ms, $1) + ",
            grace_margin_ms!(),
            " - ",
            now_ms!(),
            " AS grace_left_ms
            FROM replicas
            ORDER BY seen_at DESC, id
            LIMIT $2"
        );
        Ok(query_as(sql).bind(grace_ms).bind(max).fetch_all(self).await?)
    }
}

#[async_trait]
impl ChangeWrites for Connection {
    async fn insert_changes(&mut self, tags: &[String]) -> Result<i64> {
        let sql = concat!(
            "INSERT INTO changes (at, subject) SELECT ",
            now_ms!(),
            ", item FROM ",
            texts!("$1"),
            " RETURNING seq"
        );
        let positions: Vec<i64> =
            query_scalar(sql).bind(json!(tags).to_string()).fetch_all(self).await?;
        Ok(positions.into_iter().min().unwrap_or(0))
    }

    async fn acknowledge_intents(&mut self, replica: &str, intents: &[i64]) -> Result<()> {
        let sql = concat!(
            "INSERT INTO change_acks (intent, replica_id, at)
            SELECT CAST(item AS BIGINT), $2, ",
            now_ms!(),
            " FROM ",
            texts!("$1"),
            " WHERE TRUE
            ON CONFLICT (intent, replica_id) DO NOTHING"
        );
        query(sql).bind(json!(intents).to_string()).bind(replica).execute(self).await?;
        Ok(())
    }

    async fn set_replica_feed(&mut self, replica: &str, feed: &str, grace_ms: i64) -> Result<()> {
        let sql = "UPDATE replicas SET feed = $2, grace_ms = $3 WHERE id = $1";
        query(sql).bind(replica).bind(feed).bind(grace_ms).execute(self).await?;
        Ok(())
    }

    async fn clear_replica_feed(&mut self, replica: &str) -> Result<bool> {
        let sql = "UPDATE replicas SET feed = '', grace_ms = 0 WHERE id = $1";
        Ok(query(sql).bind(replica).execute(self).await?.rows_affected() == 1)
    }

    async fn prune_changes(&mut self, max: i64) -> Result<u64> {
        macro_rules! prune {
            ($table:literal, $id:literal) => {
                concat!(
                    "DELETE FROM ",
                    $table,
                    " WHERE (",
                    $id,
                    ") IN (SELECT ",
                    $id,
                    " FROM ",
                    $table,
                    " WHERE at < ",
                    now_ms!(),
                    " - 86400000 LIMIT $1)"
                )
            };
        }
        let mut most = 0;
        for sql in [
            prune!("changes", "seq"),
            prune!("change_acks", "intent, replica_id"),
            prune!("kept_replies", "root_key_id, name"),
        ] {
            let pruned = query(sql).bind(max).execute(&mut *self).await?;
            most = most.max(pruned.rows_affected());
        }
        Ok(most)
    }
}
