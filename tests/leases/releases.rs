//! Tests the release of withheld credits, as `keyward credits release` does it: of leases that a replica has not reported.

use domain::credits;
use foundation::error::Error;
use foundation::id::KeyId;

use super::reports::Fixture;
use super::*;

impl Fixture {
    /// Releases the withheld credits of a key, or of all keys. Returns their number.
    async fn release(&self, key: Option<&str>) -> Result<i64, Error> {
        let key = key.map(KeyId::from);
        credits::release_withheld(&self.app.ledger, key.as_ref()).await
    }

    /// Returns the keys that have withheld credits, each with the credits of one lease.
    async fn list_withheld(&self, key: Option<&str>) -> Vec<(String, i64)> {
        let key = key.map(KeyId::from);
        let withheld = credits::list_withheld(&self.app.context, key.as_ref()).await.unwrap();
        withheld.into_iter().map(|lease| (lease.key_id.as_str().to_owned(), lease.units)).collect()
    }
}

#[tokio::test]
async fn release_of_a_key_returns_its_credits_once_and_is_recorded() {
    let mut fixture = Fixture::start().await;
    fixture.create_withheld_leases(1, 2).await;
    let second_lease =
        "INSERT INTO purses (key_id, epoch, life, granted, spent, opened_at, asked_at,
            asked_by, withheld_at, number)
        VALUES ('key_1', 2, 7, 5, 2, 1, 1, 'rep_killed', 3, 3)";
    fixture.execute(second_lease).await;
    let withheld = |key: &str, units| (key.to_owned(), units);
    let before = [withheld("key_1", 10), withheld("key_2", 10), withheld("key_1", 3)];
    assert_eq!(fixture.list_withheld(None).await, before);
    assert_eq!(fixture.list_withheld(Some("key_2")).await, [withheld("key_2", 10)]);
    let returned_before = fixture.app.context.metrics.credits_returned.get();

    // The second one finds nothing.
    for expected in [13, 0] {
        assert_eq!(fixture.release(Some("key_1")).await.unwrap(), expected);

        let returned = fixture.app.context.metrics.credits_returned.get() - returned_before;
        assert_eq!((fixture.sum_balances().await, returned), (13, 13));
        assert_eq!(fixture.list_withheld(None).await, [withheld("key_2", 10)]);
        // One for each lease.
        let entries = r#"audit WHERE workspace_id = 'ws' AND event = 'key.update'
            AND actor_id = 'cli' AND targets LIKE '%"key_1"%'"#;
        assert_eq!((fixture.count_rows(entries).await, fixture.count_rows("audit").await), (2, 2));
        assert_eq!(fixture.count_rows("changes WHERE subject = 'key:key_1'").await, 1);
        assert_eq!(fixture.count_rows("changes WHERE subject = 'key:key_2'").await, 0);
    }
}

#[tokio::test]
async fn release_of_all_keys_returns_the_credits_of_every_page_once() {
    let mut fixture = Fixture::start().await;
    fixture.create_withheld_leases(1, 1_001).await;

    for expected in [10_010, 0] {
        assert_eq!(fixture.release(None).await.unwrap(), expected);

        assert_eq!((fixture.count_rows("purses").await, fixture.sum_balances().await), (0, 10_010));
        assert_eq!(fixture.count_rows("audit").await, 1_001);
    }
}

#[tokio::test]
async fn release_fails_when_there_is_no_such_key_unless_a_deleted_one_has_withheld_credits() {
    let mut fixture = Fixture::start().await;
    fixture.create_withheld_leases(1, 2).await;
    fixture.execute("DELETE FROM purses WHERE key_id = 'key_2'").await;
    fixture.execute("UPDATE keys SET deleted_at = 1 WHERE id = 'key_1'").await;

    assert_eq!(fixture.release(Some("key_2")).await.unwrap(), 0, "it has no withheld credits");
    assert_eq!(fixture.release(Some("key_1")).await.unwrap(), 10, "it is deleted");
    for key in ["key_1", "key_3"] {
        let released = fixture.release(Some(key)).await;
        assert!(matches!(released, Err(Error::NotFound(_))), "{key}: {released:?}");
    }
}

#[tokio::test]
async fn lease_in_use_is_closed_when_withheld_credits_return_to_its_account() {
    let kw = start().await;
    let key = create_key(&kw, 1_000).await;
    verify(&kw, &key).await;
    let [number] = lease_numbers(&kw, &key).await[..] else { panic!("one lease") };
    let id = &key.id;
    let sql = format!(
        "INSERT INTO purses (key_id, epoch, life, granted, spent, opened_at, asked_at, asked_by,
            withheld_at) VALUES ('{id}', 0, 7, 10, 0, 1, 1, 'rep_killed', 1)"
    );
    kw.execute_sql(sql).await;

    // Unless the replica has returned them already, because it knows of no other one.
    credits::release_withheld(&kw.app.ledger, Some(&KeyId::from(id.as_str()))).await.unwrap();

    // The balance that it reports is too low.
    let began = Stopwatch::new();
    while lease_state(&kw, &key, number).await != LeaseState::Closed {
        assert!(began.elapsed() < Duration::from_secs(10), "the lease stays open");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(remaining(&kw, &key).await, 1_009);
}
