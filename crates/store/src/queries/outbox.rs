//! Implements reads and writes of the ClickHouse outbox.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::model::{DeliverySnapshot, EventKind, RollupUnit};
use sqlx::{query, query_as, query_scalar};

use super::events::{insert_batch_row, insert_verification_totals, to_json_texts};
use super::{Connection, latencies};
use crate::Reads;
use crate::events::BatchId;
use crate::outbox::{
    ClaimedBatch, DayRollup, DeliveryReads, DeliveryWrites, OutboxBatch, OutboxPosition,
    UndeliveredEvents,
};

#[async_trait]
impl DeliveryReads for Connection {
    async fn delivery_snapshot(&mut self) -> Result<DeliverySnapshot> {
        let sql = "SELECT d.last, d.summed_until, v.id
            FROM delivered d LEFT JOIN void_deliveries v ON v.id <= d.last
            ORDER BY v.id";
        let rows: Vec<(i64, Option<i64>, Option<i64>)> = query_as(sql).fetch_all(self).await?;
        let (last_delivery, summed_until) = rows.first().map_or((0, None), |row| (row.0, row.1));
        Ok(DeliverySnapshot {
            last_delivery,
            rolled_up_until_ms: summed_until.unwrap_or(0),
            void_deliveries: rows.into_iter().filter_map(|row| row.2).collect(),
        })
    }

    async fn count_undelivered(&mut self) -> Result<UndeliveredEvents> {
        let sql = "SELECT CAST(COALESCE(SUM(events), 0) AS BIGINT) AS events,
            COALESCE(MIN(put_at), 0) AS since FROM parcels";
        Ok(query_as(sql).fetch_one(self).await?)
    }

    async fn load_outbox_position(&mut self) -> Result<OutboxPosition> {
        let sql = "SELECT (SELECT COALESCE(MAX(id), 0) FROM batches) AS last_batch,
            (SELECT MIN(first_at) FROM parcels) AS first_undelivered_at";
        Ok(query_as(sql).fetch_one(self).await?)
    }

    async fn find_first_event_after(&mut self, batch: BatchId) -> Result<Option<Timestamp>> {
        let sql = "SELECT MIN(first_at) FROM batches WHERE id > $1";
        Ok(query_scalar(sql).bind(batch).fetch_one(self).await?)
    }

    async fn list_void_deliveries(&mut self, before: Timestamp) -> Result<Vec<i64>> {
        let sql = "SELECT id FROM void_deliveries WHERE begun_at < $1 ORDER BY id";
        Ok(query_scalar(sql).bind(before).fetch_all(self).await?)
    }

    async fn load_database_time(&mut self) -> Result<Timestamp> {
        Reads::load_database_time(self).await
    }
}

#[async_trait]
impl DeliveryWrites for Connection {
    async fn enqueue_batch(&mut self, batch: &OutboxBatch, now: Timestamp) -> Result<()> {
        // The name is stored for longer than the batch: the batch may have been delivered before its writer received
        // the result of the insert.
        let (name, times) = (&batch.name, (batch.first_at, batch.last_at));
        let inserted = insert_batch_row(self, name, &batch.region, now, times, true).await?;
        let Some(id) = inserted else { return Ok(()) };
        insert_verification_totals(self, &batch.not_found_totals).await?;
        latencies::add(self, EventKind::Verifications, batch.not_found_totals.iter()).await?;
        if batch.events == 0 {
            return Ok(());
        }
        let sql = "INSERT INTO parcels
                (batch, put_at, first_at, last_at, events, verifications, ratelimits, delivery, held_until)
            VALUES ($1, $2, $3, $4, $5, $6, $7, 0, 0)";
        query(sql)
            .bind(id)
            .bind(now)
            .bind(batch.first_at)
            .bind(batch.last_at)
            .bind(i64::try_from(batch.events).unwrap_or(i64::MAX))
            .bind(&batch.verifications)
            .bind(&batch.ratelimits)
            .execute(self)
            .await?;
        Ok(())
    }

    async fn begin_delivery(&mut self, now: Timestamp) -> Result<i64> {
        let sql = "UPDATE delivered SET last = last + 1 RETURNING last";
        let id = query_scalar(sql).fetch_one(&mut *self).await?;
        insert_void_delivery(self, id, now).await?;
        Ok(id)
    }

    async fn claim_batches(
        &mut self,
        delivery: i64,
        now: Timestamp,
        claimed_until: Timestamp,
        batches_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<ClaimedBatch>> {
        // Neither engine reads a text for its length.
        let sql = "UPDATE parcels SET delivery = $1, held_until = $2
            WHERE batch IN (
                SELECT batch FROM (
                    SELECT batch, bytes, SUM(bytes) OVER (ORDER BY batch) AS bytes_so_far
                    FROM (
                        SELECT batch, octet_length(verifications) + octet_length(ratelimits) AS bytes
                        FROM parcels WHERE held_until <= $3 ORDER BY batch LIMIT $4
                    ) AS oldest
                ) AS measured
                WHERE bytes_so_far <= $5 OR bytes_so_far = bytes)
            RETURNING batch, events, verifications, ratelimits";
        let claim = query_as(sql).bind(delivery).bind(claimed_until).bind(now);
        let claim = claim.bind(i64::try_from(batches_max).unwrap_or(i64::MAX));
        Ok(claim.bind(i64::try_from(bytes_max).unwrap_or(i64::MAX)).fetch_all(self).await?)
    }

    async fn confirm_delivery(&mut self, delivery: i64, batches: usize) -> Result<bool> {
        lock_delivery_state(self).await?;
        let sql = "DELETE FROM parcels WHERE delivery = $1 RETURNING first_at, last_at";
        let spans: Vec<(Timestamp, Timestamp)> =
            query_as(sql).bind(delivery).fetch_all(&mut *self).await?;
        let sql = "DELETE FROM void_deliveries WHERE id = $1";
        let was_void = query(sql).bind(delivery).execute(&mut *self).await?.rows_affected();
        if spans.len() != batches || was_void != 1 {
            return Ok(false);
        }
        let first = spans.iter().map(|span| span.0).min();
        let last = spans.iter().map(|span| span.1).max();
        if let Some((first, last)) = first.zip(last) {
            record_day_changes(self, RollupUnit::Day.start_of(first), last).await?;
        }
        Ok(true)
    }

    async fn release_batches(
        &mut self,
        delivery: i64,
        claimed_until: Timestamp,
        is_certain: bool,
    ) -> Result<()> {
        let sql = "UPDATE parcels SET held_until = $2 WHERE delivery = $1";
        query(sql).bind(delivery).bind(claimed_until).execute(&mut *self).await?;
        if is_certain {
            let sql = "DELETE FROM void_deliveries WHERE id = $1";
            query(sql).bind(delivery).execute(self).await?;
        }
        Ok(())
    }

    async fn claim_day(
        &mut self,
        now: Timestamp,
        day_end_max: Timestamp,
        retained_since: Timestamp,
        claimed_until: Timestamp,
    ) -> Result<Option<DayRollup>> {
        let (summed_until, claimed) = lock_delivery_state(self).await?;
        let Some(summed_until) = summed_until.filter(|_| claimed <= now) else { return Ok(None) };
        let sql = "DELETE FROM summed_days WHERE delivery = 0 AND day < $1 AND day < $2";
        query(sql).bind(retained_since).bind(summed_until).execute(&mut *self).await?;
        let sql = "SELECT MIN(day) FROM summed_days
            WHERE changes > changes_summed AND day >= $1 AND day < $2";
        let changed: Option<Timestamp> =
            query_scalar(sql).bind(retained_since).bind(summed_until).fetch_one(&mut *self).await?;
        let next = RollupUnit::Day.start_of_next(summed_until);
        // A batch in the outbox may contain events of that day.
        let sql = "SELECT COUNT(*) FROM parcels WHERE first_at < $1";
        let pending: i64 = query_scalar(sql).bind(next).fetch_one(&mut *self).await?;
        let day = match changed {
            Some(day) => day,
            None if next <= day_end_max && pending == 0 => summed_until,
            None => return Ok(None),
        };
        let delivery_snapshot = self.delivery_snapshot().await?;
        let delivery = self.begin_delivery(now).await?;
        let sql = "UPDATE delivered SET held_until = $1";
        query(sql).bind(claimed_until).execute(&mut *self).await?;
        // Batches delivered from here on count as changes of the day.
        let sql = "INSERT INTO summed_days (day, delivery, changes, changes_summed)
            VALUES ($1, 0, 0, 0)
            ON CONFLICT (day) DO UPDATE SET delivery = summed_days.delivery
            RETURNING changes";
        let change_count = query_scalar(sql).bind(day).fetch_one(self).await?;
        Ok(Some(DayRollup { day, change_count, delivery, delivery_snapshot }))
    }

    async fn complete_day(&mut self, day: &DayRollup, now: Timestamp) -> Result<()> {
        let (summed_until, _) = lock_delivery_state(self).await?;
        let sql = "DELETE FROM void_deliveries WHERE id = $1";
        if query(sql).bind(day.delivery).execute(&mut *self).await?.rows_affected() != 1 {
            return Ok(());
        }
        let sql = "SELECT delivery FROM summed_days WHERE day = $1 AND delivery <> 0";
        let before: Option<i64> =
            query_scalar(sql).bind(day.day).fetch_optional(&mut *self).await?;
        if let Some(before) = before {
            insert_void_delivery(self, before, now).await?;
        }
        let sql = "UPDATE summed_days SET delivery = $2, changes_summed = $3 WHERE day = $1";
        let update = query(sql).bind(day.day).bind(day.delivery).bind(day.change_count);
        update.execute(&mut *self).await?;
        let until = summed_until.max(Some(RollupUnit::Day.start_of_next(day.day)));
        let sql = "UPDATE delivered SET summed_until = $1, held_until = 0";
        query(sql).bind(until).execute(self).await?;
        Ok(())
    }

    async fn delete_deliveries(&mut self, ids: &[i64]) -> Result<()> {
        let sql = concat!(
            "DELETE FROM void_deliveries WHERE id IN (SELECT CAST(item AS BIGINT) FROM ",
            texts!("$1"),
            ")"
        );
        query(sql).bind(to_json_texts(ids)).execute(self).await?;
        Ok(())
    }

    async fn delete_days(&mut self, before: Timestamp) -> Result<()> {
        query("DELETE FROM summed_days WHERE day < $1").bind(before).execute(self).await?;
        Ok(())
    }
}

/// Locks the delivery state. Returns the time up to which days are rolled up, and the time until which a replica has
/// claimed a day. Other replicas wait for the lock.
async fn lock_delivery_state(
    connection: &mut Connection,
) -> Result<(Option<Timestamp>, Timestamp)> {
    let sql = locked!("SELECT summed_until, held_until FROM delivered");
    Ok(query_as(sql).fetch_one(connection).await?)
}

async fn insert_void_delivery(
    connection: &mut Connection,
    delivery: i64,
    now: Timestamp,
) -> Result<()> {
    let sql = "INSERT INTO void_deliveries (id, begun_at) VALUES ($1, $2)";
    query(sql).bind(delivery).bind(now).execute(connection).await?;
    Ok(())
}

/// Records changes of the days from the one that begins at `first` to the one that contains `last`. The first
/// delivered events determine where rollups begin.
async fn record_day_changes(
    connection: &mut Connection,
    first: Timestamp,
    last: Timestamp,
) -> Result<()> {
    let sql = "UPDATE delivered SET summed_until = $1 WHERE summed_until IS NULL";
    query(sql).bind(first).execute(&mut *connection).await?;
    // Inserts a row for a day before `summed_until` that has none, so that it is rolled up too.
    let sql = "INSERT INTO summed_days (day, delivery, changes, changes_summed)
        SELECT $1, 0, 0, 0 FROM delivered WHERE summed_until > $1
        ON CONFLICT (day) DO NOTHING";
    let mut day = first;
    while day <= last {
        query(sql).bind(day).execute(&mut *connection).await?;
        day = RollupUnit::Day.start_of_next(day);
    }
    let sql = "UPDATE summed_days SET changes = changes + 1 WHERE day >= $1 AND day <= $2";
    query(sql).bind(first).bind(last).execute(connection).await?;
    Ok(())
}
