//! What is on its way to ClickHouse.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::model::{DeliverySnapshot, RollupUnit};
use sqlx::{query, query_as, query_scalar};

use super::Connection;
use super::events::texts;
use crate::events::BatchId;
use crate::outbox::{
    ClaimedBatch, DayRollup, DeliveryReads, DeliveryWrites, OutboxBatch, Undelivered,
};

#[async_trait]
impl DeliveryReads for Connection {
    async fn delivered(&mut self) -> Result<DeliverySnapshot> {
        let sql = "SELECT d.last, d.summed_until, v.id
            FROM delivered d LEFT JOIN void_deliveries v ON v.id <= d.last
            ORDER BY v.id";
        let rows: Vec<(i64, Option<i64>, Option<i64>)> = query_as(sql).fetch_all(self).await?;
        let (last, summed_until) = rows.first().map_or((0, None), |row| (row.0, row.1));
        Ok(DeliverySnapshot {
            last,
            summed_until: summed_until.unwrap_or(0),
            void: rows.into_iter().filter_map(|row| row.2).collect(),
        })
    }

    async fn undelivered(&mut self) -> Result<Undelivered> {
        let sql = "SELECT CAST(COALESCE(SUM(events), 0) AS BIGINT) AS events,
            COALESCE(MIN(put_at), 0) AS since FROM parcels";
        Ok(query_as(sql).fetch_one(self).await?)
    }

    async fn void_before(&mut self, before: Timestamp) -> Result<Vec<i64>> {
        let sql = "SELECT id FROM void_deliveries WHERE begun_at < $1 ORDER BY id";
        Ok(query_scalar(sql).bind(before).fetch_all(self).await?)
    }
}

#[async_trait]
impl DeliveryWrites for Connection {
    async fn enqueue_batch(&mut self, parcel: &OutboxBatch, now: Timestamp) -> Result<()> {
        // The name is remembered for longer than the batch: it may have arrived before its writer knew that it was put.
        let sql = "INSERT INTO batches (name, region, written_at, first_at, last_at, summed)
            VALUES ($1, $2, $3, $4, $5, $6)
            ON CONFLICT (name) DO NOTHING
            RETURNING id";
        let id: Option<BatchId> = query_scalar(sql)
            .bind(&parcel.name)
            .bind(&parcel.region)
            .bind(now)
            .bind(parcel.first_at)
            .bind(parcel.last_at)
            .bind(true)
            .fetch_optional(&mut *self)
            .await?;
        let Some(id) = id else { return Ok(()) };
        let sql = "INSERT INTO parcels
                (batch, put_at, first_at, last_at, events, verifications, ratelimits, delivery, held_until)
            VALUES ($1, $2, $3, $4, $5, $6, $7, 0, 0)";
        query(sql)
            .bind(id)
            .bind(now)
            .bind(parcel.first_at)
            .bind(parcel.last_at)
            .bind(i64::try_from(parcel.events).unwrap_or(i64::MAX))
            .bind(&parcel.verifications)
            .bind(&parcel.ratelimits)
            .execute(self)
            .await?;
        Ok(())
    }

    async fn begin_delivery(&mut self, now: Timestamp) -> Result<i64> {
        let sql = "UPDATE delivered SET last = last + 1 RETURNING last";
        let id = query_scalar(sql).fetch_one(&mut *self).await?;
        make_void(self, id, now).await?;
        Ok(id)
    }

    async fn claim_batches(
        &mut self,
        delivery: i64,
        now: Timestamp,
        held_until: Timestamp,
        max: usize,
    ) -> Result<Vec<ClaimedBatch>> {
        let sql = "UPDATE parcels SET delivery = $1, held_until = $2
            WHERE batch IN (
                SELECT batch FROM parcels WHERE held_until <= $3 ORDER BY batch LIMIT $4)
            RETURNING batch, events, verifications, ratelimits";
        let taking = query_as(sql).bind(delivery).bind(held_until).bind(now);
        Ok(taking.bind(i64::try_from(max).unwrap_or(i64::MAX)).fetch_all(self).await?)
    }

    async fn confirm_delivery(&mut self, delivery: i64, batches: usize) -> Result<bool> {
        lock(self).await?;
        let sql = "DELETE FROM parcels WHERE delivery = $1 RETURNING first_at, last_at";
        let gone: Vec<(Timestamp, Timestamp)> =
            query_as(sql).bind(delivery).fetch_all(&mut *self).await?;
        let sql = "DELETE FROM void_deliveries WHERE id = $1";
        let was_void = query(sql).bind(delivery).execute(&mut *self).await?.rows_affected();
        if gone.len() != batches || was_void != 1 {
            return Ok(false);
        }
        let first = gone.iter().map(|span| span.0).min();
        let last = gone.iter().map(|span| span.1).max();
        if let Some((first, last)) = first.zip(last) {
            change_days(self, RollupUnit::Day.beginning(first), last).await?;
        }
        Ok(true)
    }

    async fn release_batches(
        &mut self,
        delivery: i64,
        held_until: Timestamp,
        certainly: bool,
    ) -> Result<()> {
        let sql = "UPDATE parcels SET held_until = $2 WHERE delivery = $1";
        query(sql).bind(delivery).bind(held_until).execute(&mut *self).await?;
        if certainly {
            let sql = "DELETE FROM void_deliveries WHERE id = $1";
            query(sql).bind(delivery).execute(self).await?;
        }
        Ok(())
    }

    async fn claim_day(
        &mut self,
        now: Timestamp,
        over: Timestamp,
        kept_since: Timestamp,
        held_until: Timestamp,
    ) -> Result<Option<DayRollup>> {
        let (summed_until, held) = lock(self).await?;
        let Some(summed_until) = summed_until.filter(|_| held <= now) else { return Ok(None) };
        let sql = "DELETE FROM summed_days WHERE delivery = 0 AND day < $1 AND day < $2";
        query(sql).bind(kept_since).bind(summed_until).execute(&mut *self).await?;
        let sql = "SELECT MIN(day) FROM summed_days
            WHERE changes > changes_summed AND day >= $1 AND day < $2";
        let changed: Option<Timestamp> =
            query_scalar(sql).bind(kept_since).bind(summed_until).fetch_one(&mut *self).await?;
        let next = RollupUnit::Day.next(summed_until);
        // What waits may be of that day.
        let sql = "SELECT COUNT(*) FROM parcels WHERE first_at < $1";
        let late: i64 = query_scalar(sql).bind(next).fetch_one(&mut *self).await?;
        let day = match changed {
            Some(day) => day,
            None if next <= over && late == 0 => summed_until,
            None => return Ok(None),
        };
        let delivered = self.delivered().await?;
        let delivery = self.begin_delivery(now).await?;
        let sql = "UPDATE delivered SET held_until = $1";
        query(sql).bind(held_until).execute(&mut *self).await?;
        // From here on, what arrives changes it.
        let sql = "INSERT INTO summed_days (day, delivery, changes, changes_summed)
            VALUES ($1, 0, 0, 0)
            ON CONFLICT (day) DO UPDATE SET delivery = summed_days.delivery
            RETURNING changes";
        let changes = query_scalar(sql).bind(day).fetch_one(self).await?;
        Ok(Some(DayRollup { day, changes, delivery, delivered }))
    }

    async fn complete_day(&mut self, day: &DayRollup, now: Timestamp) -> Result<()> {
        let (summed_until, _) = lock(self).await?;
        let sql = "DELETE FROM void_deliveries WHERE id = $1";
        if query(sql).bind(day.delivery).execute(&mut *self).await?.rows_affected() != 1 {
            return Ok(());
        }
        let sql = "SELECT delivery FROM summed_days WHERE day = $1 AND delivery <> 0";
        let before: Option<i64> =
            query_scalar(sql).bind(day.day).fetch_optional(&mut *self).await?;
        if let Some(before) = before {
            make_void(self, before, now).await?;
        }
        let sql = "UPDATE summed_days SET delivery = $2, changes_summed = $3 WHERE day = $1";
        let setting = query(sql).bind(day.day).bind(day.delivery).bind(day.changes);
        setting.execute(&mut *self).await?;
        let until = summed_until.max(Some(RollupUnit::Day.next(day.day)));
        let sql = "UPDATE delivered SET summed_until = $1, held_until = 0";
        query(sql).bind(until).execute(self).await?;
        Ok(())
    }

    async fn forget_deliveries(&mut self, ids: &[i64]) -> Result<()> {
        let sql = concat!(
            "DELETE FROM void_deliveries WHERE id IN (SELECT CAST(item AS BIGINT) FROM ",
            texts!("$1"),
            ")"
        );
        query(sql).bind(texts(ids)).execute(self).await?;
        Ok(())
    }

    async fn forget_days(&mut self, before: Timestamp) -> Result<()> {
        query("DELETE FROM summed_days WHERE day < $1").bind(before).execute(self).await?;
        Ok(())
    }
}

/// Up to when days are summed up, and until when somebody has one in hand. Who else asks waits.
async fn lock(connection: &mut Connection) -> Result<(Option<Timestamp>, Timestamp)> {
    let sql = locked!("SELECT summed_until, held_until FROM delivered");
    Ok(query_as(sql).fetch_one(connection).await?)
}

async fn make_void(connection: &mut Connection, delivery: i64, now: Timestamp) -> Result<()> {
    let sql = "INSERT INTO void_deliveries (id, begun_at) VALUES ($1, $2)";
    query(sql).bind(delivery).bind(now).execute(connection).await?;
    Ok(())
}

/// The days from one that begins then until a moment have got events. The first that ever came tells where to begin to
/// sum up.
async fn change_days(connection: &mut Connection, first: Timestamp, last: Timestamp) -> Result<()> {
    let sql = "UPDATE delivered SET summed_until = $1 WHERE summed_until IS NULL";
    query(sql).bind(first).execute(&mut *connection).await?;
    // One before the first day that was summed up is put among them.
    let sql = "INSERT INTO summed_days (day, delivery, changes, changes_summed)
        SELECT $1, 0, 0, 0 FROM delivered WHERE summed_until > $1
        ON CONFLICT (day) DO NOTHING";
    let mut day = first;
    while day <= last {
        query(sql).bind(day).execute(&mut *connection).await?;
        day = RollupUnit::Day.next(day);
    }
    let sql = "UPDATE summed_days SET changes = changes + 1 WHERE day >= $1 AND day <= $2";
    query(sql).bind(first).bind(last).execute(connection).await?;
    Ok(())
}
