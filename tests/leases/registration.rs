//! Tests that only a registered replica learns of leases: others wait for its reports.

use domain::credits;

use super::*;

/// Returns how many replicas fulfill a condition.
async fn count_replicas(kw: &Keyward, condition: &str) -> i64 {
    let sql = AssertSqlSafe(format!("SELECT COUNT(*) FROM replicas WHERE {condition}"));
    sqlx::query_scalar(sql).fetch_one(&mut postgres(kw).await).await.unwrap()
}

#[tokio::test]
async fn replica_registers_again_before_it_opens_a_lease() {
    let kw = start().await;
    // It also registers twice a second.
    for _ in 0..5 {
        let key = create_key(&kw, 1_000).await;
        kw.execute_sql("UPDATE replicas SET silent_seen_at = seen_at".into()).await;

        verify(&kw, &key).await;

        assert_eq!(count_replicas(&kw, "silent_seen_at IS NULL").await, 1);
        assert_eq!(lease_numbers(&kw, &key).await.len(), 1);
    }
}

#[tokio::test]
async fn account_is_debited_without_a_lease_when_the_replica_cannot_stay_registered() {
    let kw = start().await;
    let key = create_key(&kw, 1_000).await;
    // As if others ended its registration each time.
    for sql in [
        "CREATE FUNCTION end_registration() RETURNS TRIGGER LANGUAGE plpgsql AS $$
        BEGIN NEW.silent_seen_at := NEW.seen_at; RETURN NEW; END $$",
        "CREATE TRIGGER end_registration BEFORE INSERT OR UPDATE ON replicas
        FOR EACH ROW EXECUTE FUNCTION end_registration()",
        "UPDATE replicas SET silent_seen_at = seen_at",
    ] {
        kw.execute_sql(sql.into()).await;
    }

    verify(&kw, &key).await;

    assert!(lease_numbers(&kw, &key).await.is_empty());
    assert_eq!(remaining(&kw, &key).await, 999);
}

#[tokio::test]
async fn stopping_replica_reports_its_spend_of_leases_that_exist() {
    let kw = start().await;
    let (kept, closed) = (create_key(&kw, 1_000).await, create_key(&kw, 1_000).await);
    for key in [&kept, &closed, &kept, &closed, &kept, &closed] {
        verify(&kw, key).await;
    }
    let renumber =
        |by: i64| format!("UPDATE purses SET epoch = epoch + {by} WHERE key_id = '{}'", closed.id);
    kw.execute_sql(renumber(1_000)).await;
    credits::prune_closed_leases(&kw.app.ledger).await.unwrap();
    kw.execute_sql(renumber(-1_000)).await;

    credits::report_and_deregister(&kw.app.ledger).await.unwrap();

    let sql = "SELECT spent FROM purses WHERE key_id = $1";
    let mut connection = postgres(&kw).await;
    for (key, expected) in [(&kept, 3), (&closed, 0)] {
        let spent: i64 =
            sqlx::query_scalar(sql).bind(&key.id).fetch_one(&mut connection).await.unwrap();
        assert_eq!(spent, expected, "the replica forgets a lease that its account does not have");
    }
}
