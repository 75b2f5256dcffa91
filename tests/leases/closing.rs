//! Tests when leases are closed, and what is recorded if one cannot be closed.

use domain::credits;
use foundation::error::Error;
use foundation::id::KeyId;
use tokio::time::timeout;

use super::*;
use crate::support::Reply;
use crate::support::process::free_port;

/// Lets a change of a key fail in a way that leaves it unknown whether Redis has closed a lease. So the replica must
/// close the leases of the key soon.
async fn fail_to_change(kw: &Keyward, key: &IssuedKey) {
    let id = KeyId::from(key.id.as_str());
    let change = || async { Err::<(), _>(Error::StoreNotReady) };
    assert!(credits::run_with_closed_leases(&kw.app.ledger, &id, change).await.is_err());
}

async fn increment(kw: &Keyward, key: &IssuedKey) -> Reply {
    let request = json!({ "keyId": key.id, "operation": "increment", "value": 1 });
    kw.v2("keys.updateCredits", request).await
}

#[tokio::test]
async fn top_ups_and_returned_credits_are_counted() {
    let kw = start().await;
    let metrics = &kw.app.context.metrics;
    let (key, exhausted) = (create_key(&kw, 1_000).await, create_key(&kw, 0).await);

    verify(&kw, &key).await;
    kw.verify(&exhausted.key).await.assert_code("USAGE_EXCEEDED");
    let before = (metrics.lease_top_ups.get(), metrics.credits_returned.get());
    increment(&kw, &key).await.data();

    assert_eq!(before, (1, 0), "one of the accounts was debited");
    assert_eq!(metrics.credits_returned.get(), 99, "a tenth was leased, and one credit spent");
    assert_eq!(remaining(&kw, &key).await, 1_000);
}

#[tokio::test]
async fn leases_are_closed_once_when_a_change_has_failed() {
    let kw = start().await;
    let key = create_key(&kw, 1_000).await;
    verify(&kw, &key).await;
    let [first] = lease_numbers(&kw, &key).await[..] else { panic!("one lease") };
    fail_to_change(&kw, &key).await;

    credits::close_outdated(&kw.app.ledger).await.unwrap();

    assert_eq!(lease_state(&kw, &key, first).await, LeaseState::Closed);
    let mut stays_open = false;
    // A pass of the background task that began before may close the first one of them.
    for _ in 0..3 {
        verify(&kw, &key).await;
        let open = lease_numbers(&kw, &key).await;
        credits::close_outdated(&kw.app.ledger).await.unwrap();
        stays_open |= lease_numbers(&kw, &key).await == open;
    }
    assert!(stays_open, "the leases of the key are closed again and again");
}

#[tokio::test]
async fn leased_credits_return_soon_when_a_change_is_rejected_after_the_close() {
    let kw = start().await;
    let key = create_key(&kw, 1_000).await;
    verify(&kw, &key).await;
    let too_much = json!({ "keyId": key.id, "operation": "increment", "value": i64::MAX });
    kw.v2("keys.updateCredits", too_much).await.assert_error(400, "invalid_input");

    credits::close_outdated(&kw.app.ledger).await.unwrap();

    assert_eq!(remaining(&kw, &key).await, 999);
}

/// The state is as if Redis was unreachable when the key became unlimited.
#[tokio::test]
async fn leases_of_an_unlimited_key_are_closed_or_forfeited() {
    let kw = start().await;
    let key = create_key(&kw, 1_000).await;
    verify(&kw, &key).await;
    let [number] = lease_numbers(&kw, &key).await[..] else { panic!("one lease") };
    let id = &key.id;
    for sql in [
        // Withheld leases wait for the report of a replica that was killed.
        "INSERT INTO replicas (id, started_at, seen_at)
        VALUES ('rep_killed', 1, (SELECT MAX(seen_at) FROM replicas) + 3600000)"
            .to_owned(),
        format!("UPDATE keys SET credits = NULL WHERE id = '{id}'"),
        format!("UPDATE purses SET granted = spent, withheld_at = 1 WHERE key_id = '{id}'"),
        // The lease of a Redis that does not reply any more.
        format!(
            "INSERT INTO purses (key_id, epoch, life, granted, spent, opened_at, asked_at, asked_by,
                withheld_at) VALUES ('{id}', 0, 7, 10, 0, 1, 1, 'rep_killed', 1)"
        ),
    ] {
        kw.execute_sql(sql).await;
    }
    fail_to_change(&kw, &key).await;

    credits::close_outdated(&kw.app.ledger).await.unwrap();

    assert_eq!(lease_state(&kw, &key, number).await, LeaseState::Closed);
    assert_eq!(lease_numbers(&kw, &key).await, [0]);
    let id = KeyId::from(id.as_str());
    let withheld = credits::list_withheld(&kw.app.context, Some(&id)).await.unwrap();
    assert_eq!(withheld[0].units, 0, "the credits of the other lease are forfeited");
}

#[tokio::test]
async fn lease_in_use_is_touched_and_its_spend_recorded_when_it_is_listed_as_idle() {
    let kw = start().await;
    let key = create_key(&kw, 1_000).await;
    for _ in 0..3 {
        verify(&kw, &key).await;
    }
    kw.execute_sql("UPDATE purses SET asked_at = 1".into()).await;

    credits::close_idle_leases(&kw.app.context, Duration::from_mins(1)).await.unwrap();

    let sql = "SELECT CAST(COALESCE(SUM(spent), 0) AS BIGINT) FROM purses WHERE asked_at > 1";
    let spent: i64 = sqlx::query_scalar(sql).fetch_one(&mut postgres(&kw).await).await.unwrap();
    assert_eq!(spent, 3);
    let [number] = lease_numbers(&kw, &key).await[..] else { panic!("one lease") };
    assert_eq!(lease_state(&kw, &key, number).await, LeaseState::Sufficient);
}

/// The error is that of the database, not one of a transaction that goes on after it.
#[tokio::test]
async fn close_fails_with_the_error_of_the_database_when_its_disk_is_full() {
    let kw = start().await;
    let key = create_key(&kw, 1_000).await;
    verify(&kw, &key).await;
    for sql in [
        "CREATE FUNCTION fail() RETURNS TRIGGER LANGUAGE plpgsql AS $$
        BEGIN RAISE EXCEPTION 'no space left' USING ERRCODE = '53100'; END $$",
        "CREATE TRIGGER disk_is_full BEFORE DELETE ON purses
        FOR EACH ROW EXECUTE FUNCTION fail()",
    ] {
        kw.execute_sql(sql.into()).await;
    }

    increment(&kw, &key).await.assert_error(503, "service_unavailable");
    let failure = credits::close_own_leases(&kw.app.context).await.unwrap_err();
    assert!(failure.is_outage(), "{failure}");
}

/// Waits until idle leases could not be closed this often.
async fn wait_for_failures(connection: &mut PgConnection, count: i64) {
    let (sql, began) = ("SELECT last_value FROM failures", Stopwatch::new());
    loop {
        let failures: i64 = sqlx::query_scalar(sql).fetch_one(&mut *connection).await.unwrap();
        if failures >= count {
            return;
        }
        assert!(began.elapsed() < Duration::from_mins(1), "{failures} of {count}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn replica_forgets_closed_leases_when_others_cannot_be_closed() {
    let kw = Keyward::start_with(Stack::Replica, |settings| settings.lease_idle_seconds = 1).await;
    wait_until_registered(&kw).await;
    let (closed, idle) = (create_key(&kw, 1_000).await, create_key(&kw, 1_000).await);
    verify(&kw, &idle).await;
    for sql in [
        "CREATE SEQUENCE failures".to_owned(),
        "CREATE FUNCTION fail() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN
            PERFORM nextval('failures');
            RAISE EXCEPTION 'no space left' USING ERRCODE = '53100';
        END $$"
            .to_owned(),
        format!(
            "CREATE TRIGGER disk_is_full BEFORE DELETE ON purses
            FOR EACH ROW WHEN (OLD.key_id = '{}') EXECUTE FUNCTION fail()",
            idle.id
        ),
    ] {
        kw.execute_sql(sql).await;
    }
    kw.clock.advance_ms(60_000);
    let mut connection = postgres(&kw).await;
    wait_for_failures(&mut connection, 2).await;
    verify(&kw, &closed).await;
    let [number] = lease_numbers(&kw, &closed).await[..] else { panic!("one lease") };
    increment(&kw, &closed).await.data();

    wait_for_failures(&mut connection, 8).await;

    // As if the account still had the lease.
    kw.execute_sql(format!(
        "INSERT INTO purses (key_id, epoch, life, granted, spent, opened_at, asked_at, asked_by)
        VALUES ('{}', {number}, 7, 100, 0, 1, {}, 'rep_a')",
        closed.id,
        i64::MAX
    ))
    .await;
    credits::report_and_deregister(&kw.app.ledger).await.unwrap();
    let sql = "SELECT spent FROM purses WHERE key_id = $1";
    for (key, expected) in [(&closed, 0), (&idle, 1)] {
        let spent: i64 =
            sqlx::query_scalar(sql).bind(&key.id).fetch_one(&mut connection).await.unwrap();
        assert_eq!(spent, expected);
    }
}

#[tokio::test]
async fn closing_own_leases_ends_when_redis_is_unreachable() {
    let kw = Keyward::start_with(Stack::Replica, |settings| {
        if let Deployment::Replica { redis_url, .. } = &mut settings.deployment {
            *redis_url = format!("redis://127.0.0.1:{}", free_port());
        }
    })
    .await;
    let key = create_key(&kw, 1_000).await;
    let sql = format!(
        "INSERT INTO purses (key_id, epoch, life, granted, spent, opened_at, asked_at, asked_by)
        VALUES ('{}', 1, 7, 10, 0, 1, 1, '{}')",
        key.id, kw.app.context.replica_id
    );
    kw.execute_sql(sql).await;

    let closing = credits::close_own_leases(&kw.app.context);
    timeout(Duration::from_secs(30), closing).await.expect("it ends").unwrap();

    assert_eq!(lease_numbers(&kw, &key).await, [1], "it may still be in use");
}

/// Otherwise the credits of the last period would be added to those of this one.
#[tokio::test]
async fn lost_lease_is_forfeited_when_a_refill_is_due() {
    let kw = start().await;
    let refilled = json!({ "remaining": 50, "refill": { "interval": "daily", "amount": 50 } });
    let key = kw.create_key(json!({ "credits": refilled })).await;
    verify(&kw, &key).await;
    let [number] = lease_numbers(&kw, &key).await[..] else { panic!("one lease") };
    lose_lease(&kw, &key, number).await;

    kw.clock.advance_ms(DAY_MS);
    increment(&kw, &key).await.data();
    credits::report_and_sweep_all(&kw.app.ledger).await.unwrap();

    assert!(lease_numbers(&kw, &key).await.is_empty());
    assert_eq!(remaining(&kw, &key).await, 51);
}
