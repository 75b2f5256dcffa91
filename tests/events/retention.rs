//! Tests the retention of events.

use analytics::writer;
use foundation::model::Retention;
use serde_json::json;

use crate::on_both_stacks;
use crate::support::{Keyward, Stack};

const DAY_MS: i64 = 86_400_000;

/// Starts a server that stores events for a day, and rollups for longer the coarser they are.
async fn start_with_short_retention(stack: Stack) -> Keyward {
    Keyward::start_with(stack, |settings| {
        let retention =
            Retention { raw_days: 1, minute_days: 2, hour_days: 3, day_days: 4, month_days: 62 };
        settings.retention.verifications = retention;
        settings.retention.ratelimits = retention;
    })
    .await
}

async fn count(kw: &Keyward, sql: &'static str) -> usize {
    kw.query_events(sql).await.len()
}

async fn counts(kw: &Keyward) -> [usize; 5] {
    [
        count(kw, "SELECT request_id FROM verifications").await,
        count(kw, "SELECT CAST(time AS TEXT) FROM verifications_per_minute").await,
        count(kw, "SELECT CAST(time AS TEXT) FROM verifications_per_hour").await,
        count(kw, "SELECT CAST(time AS TEXT) FROM verifications_per_day").await,
        count(kw, "SELECT CAST(time AS TEXT) FROM verifications_per_month").await,
    ]
}

async fn assert_retention_by_unit(kw: Keyward) {
    let key = kw.create_key(json!({})).await;
    kw.verify(&key.key).await.assert_code("VALID");
    kw.write_events().await;
    writer::roll_up(&kw.app.analytics).await.unwrap();

    let mut seen = Vec::new();
    for _ in 0..5 {
        writer::maintain_partitions(&kw.app.analytics).await.unwrap();
        seen.push(counts(&kw).await);
        kw.clock.advance_ms(DAY_MS);
    }

    // After one day, the event has not been stored for longer than a day.
    assert_eq!(
        seen,
        [[1, 1, 1, 1, 1], [1, 1, 1, 1, 1], [0, 1, 1, 1, 1], [0, 0, 1, 1, 1], [0, 0, 0, 0, 1]]
    );
    kw.clock.advance_ms(62 * DAY_MS);
    writer::maintain_partitions(&kw.app.analytics).await.unwrap();
    assert_eq!(counts(&kw).await, [0; 5]);
    assert_eq!(count(&kw, "SELECT key_id FROM verification_series").await, 0);
    assert_eq!(count(&kw, "SELECT name FROM batches").await, 0);
    assert_eq!(count(&kw, "SELECT unit FROM verification_totals").await, 0);
}

#[tokio::test]
async fn events_are_deleted_after_their_retention_embedded() {
    assert_retention_by_unit(start_with_short_retention(Stack::Embedded).await).await;
}

#[tokio::test]
async fn events_are_deleted_after_their_retention_replica() {
    assert_retention_by_unit(start_with_short_retention(Stack::Replica).await).await;
}

/// Stores totals of 25,000 minutes in 1970.
async fn insert_expired_totals(kw: &Keyward) {
    kw.write_events().await;
    kw.change_events(
        "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 25000)
        INSERT INTO verification_totals
        SELECT 'ws_default', 'api_' || n, 'minute', n, 'VALID', 1, 0, 0, 0, 0, 0, 0, 0, 0 FROM n",
    )
    .await;
}

on_both_stacks! {
    async fn expired_rows_are_deleted_whatever_their_number(kw) {
        insert_expired_totals(&kw).await;

        writer::maintain_partitions(&kw.app.analytics).await.unwrap();

        assert_eq!(count(&kw, "SELECT api_id FROM verification_totals").await, 0);
    }
}

#[tokio::test]
async fn postgres_deletes_no_more_than_ten_thousand_expired_rows_at_once() {
    let kw = Keyward::start(Stack::Replica).await;
    insert_expired_totals(&kw).await;
    kw.change_events(
        "CREATE FUNCTION refuse_many() RETURNS TRIGGER LANGUAGE plpgsql AS $$
        BEGIN
            IF (SELECT COUNT(*) FROM deleted) > 10000 THEN
                RAISE EXCEPTION 'too many rows';
            END IF;
            RETURN NULL;
        END
        $$",
    )
    .await;
    kw.change_events(
        "CREATE TRIGGER refuse_many AFTER DELETE ON verification_totals
        REFERENCING OLD TABLE AS deleted FOR EACH STATEMENT EXECUTE FUNCTION refuse_many()",
    )
    .await;

    writer::maintain_partitions(&kw.app.analytics).await.unwrap();

    assert_eq!(count(&kw, "SELECT api_id FROM verification_totals").await, 0);
}

async fn assert_other_tables_are_maintained(kw: Keyward) {
    let key = kw.create_key(json!({})).await;
    kw.verify(&key.key).await.assert_code("VALID");
    kw.write_events().await;
    writer::roll_up(&kw.app.analytics).await.unwrap();
    kw.clock.advance_ms(70 * DAY_MS);

    kw.change_events("ALTER TABLE verification_totals RENAME TO away").await;
    let failed = writer::maintain_partitions(&kw.app.analytics).await;
    kw.change_events("ALTER TABLE away RENAME TO verification_totals").await;

    assert!(failed.is_err());
    assert_eq!(counts(&kw).await, [0; 5]);
    assert_eq!(count(&kw, "SELECT key_id FROM verification_series").await, 0);
    assert_ne!(count(&kw, "SELECT unit FROM verification_totals").await, 0);
}

#[tokio::test]
async fn other_tables_are_maintained_when_one_fails_embedded() {
    assert_other_tables_are_maintained(start_with_short_retention(Stack::Embedded).await).await;
}

#[tokio::test]
async fn other_tables_are_maintained_when_one_fails_replica() {
    assert_other_tables_are_maintained(start_with_short_retention(Stack::Replica).await).await;
}

async fn assert_late_events_are_rolled_up_before_they_are_deleted(kw: Keyward) {
    let key = kw.create_key(json!({})).await;
    let stopped = kw.replica().await;
    stopped.verify(&key.key).await.assert_code("VALID");
    stopped.write_events().await;
    drop(stopped);
    kw.clock.advance_ms(3 * DAY_MS);

    kw.change_events("ALTER TABLE verifications_per_day RENAME TO away").await;
    let failed = writer::maintain_partitions(&kw.app.analytics).await;
    kw.change_events("ALTER TABLE away RENAME TO verifications_per_day").await;
    assert!(failed.is_err());
    assert_eq!(counts(&kw).await, [1, 0, 0, 0, 0], "nothing is deleted that is not rolled up");
    writer::maintain_partitions(&kw.app.analytics).await.unwrap();
    writer::roll_up(&kw.app.analytics).await.unwrap();

    assert_eq!(counts(&kw).await[0], 0);
    let days = "SELECT CAST(count AS TEXT) FROM verifications_per_day";
    assert_eq!(kw.query_events(days).await, ["1"]);
}

#[tokio::test]
async fn late_events_are_rolled_up_before_they_are_deleted_embedded() {
    let kw = start_with_short_retention(Stack::Embedded).await;
    assert_late_events_are_rolled_up_before_they_are_deleted(kw).await;
}

#[tokio::test]
async fn late_events_are_rolled_up_before_they_are_deleted_replica() {
    let kw = start_with_short_retention(Stack::Replica).await;
    assert_late_events_are_rolled_up_before_they_are_deleted(kw).await;
}

/// The partitions of the verifications, by day.
const PARTITIONS: &str =
    "SELECT CAST(c.relname AS TEXT) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = to_regclass('verifications') ORDER BY 1";

#[tokio::test]
async fn postgres_partition_of_a_day_is_created_ahead_and_dropped_as_a_whole() {
    let kw = start_with_short_retention(Stack::Replica).await;
    let key = kw.create_key(json!({})).await;
    writer::maintain_partitions(&kw.app.analytics).await.unwrap();
    kw.verify(&key.key).await.assert_code("VALID");
    kw.write_events().await;

    let today = kw.query_events("SELECT request_id FROM verifications_p20260310").await.len();
    let before = kw.query_events(PARTITIONS).await;
    kw.clock.advance_ms(2 * DAY_MS);
    writer::maintain_partitions(&kw.app.analytics).await.unwrap();

    assert_eq!(today, 1);
    let days = |days: &[u8]| -> Vec<String> {
        let partitions = days.iter().map(|day| format!("verifications_p202603{day:02}"));
        partitions.chain(["verifications_rest".to_owned()]).collect()
    };
    assert_eq!(before, days(&[10, 11, 12]));
    assert_eq!(kw.query_events(PARTITIONS).await, days(&[11, 12, 13, 14]));
}

on_both_stacks! {
    async fn events_are_written_when_their_partition_was_not_created_ahead(kw) {
    let key = kw.create_key(json!({})).await;
    kw.clock.advance_ms(40 * DAY_MS);
    kw.verify(&key.key).await.assert_code("VALID");

    kw.write_events().await;
    writer::roll_up(&kw.app.analytics).await.unwrap();

    assert_eq!(counts(&kw).await, [1; 5]);
    }
}

async fn assert_series_is_kept(kw: Keyward) {
    let key = kw.create_key(json!({})).await;
    kw.clock.advance_ms(11 * 3_600_000);
    kw.verify(&key.key).await.assert_code("VALID");
    kw.write_events().await;
    writer::roll_up(&kw.app.analytics).await.unwrap();

    // The event occurs an hour before midnight; the day after is nearly over.
    kw.clock.advance_ms(23 * 3_600_000);
    writer::maintain_partitions(&kw.app.analytics).await.unwrap();

    assert_eq!(count(&kw, "SELECT request_id FROM verifications").await, 1);
    assert_eq!(count(&kw, "SELECT key_id FROM verification_series").await, 1);
}

async fn a_day(stack: Stack) -> Keyward {
    Keyward::start_with(stack, |settings| {
        let retention =
            Retention { raw_days: 1, minute_days: 1, hour_days: 1, day_days: 1, month_days: 1 };
        settings.retention.verifications = retention;
        settings.retention.ratelimits = retention;
    })
    .await
}

#[tokio::test]
async fn series_is_kept_as_long_as_its_events_embedded() {
    assert_series_is_kept(a_day(Stack::Embedded).await).await;
}

#[tokio::test]
async fn series_is_kept_as_long_as_its_events_replica() {
    assert_series_is_kept(a_day(Stack::Replica).await).await;
}
