//! Tests credit accounts.

use super::*;

on_both_stores! {
    async fn account_exists_only_for_metered_keys(store) {
        let (metered, unlimited) =
            (key(&store, Some(credits(0, None, 0))).await, key(&store, None).await);
        let deleted = key(&store, Some(credits(5, None, 0))).await;
        commit_with(&store, async |tx| tx.delete_key(&deleted.id, NOON).await).await.unwrap();

        let mut tx = store.begin().await.unwrap();

        assert_eq!(tx.lock_account(&metered.id).await.unwrap().unwrap().credits.balance, 0);
        assert!(tx.lock_account(&unlimited.id).await.unwrap().is_none());
        assert!(tx.lock_account(&deleted.id).await.unwrap().is_none());
        assert!(tx.lock_account(&KeyId::from("key_nowhere")).await.unwrap().is_none());
    }

    async fn balance_update_increments_its_version(store) {
        let key = key(&store, None).await;
        let monthly = Refill { interval: RefillInterval::Monthly { day: 1 }, amount: i64::MAX };
        let daily = Refill { interval: RefillInterval::Daily, amount: 1 };
        let set = async |credits: Option<Credits>| {
            commit_with(&store, async |tx| {
                tx.set_credits(&key.id, credits.as_ref()).await?;
                Ok(tx.lock_account(&key.id).await?.map(|account| account.credits))
            })
            .await
            .unwrap()
        };

        let first = set(Some(credits(i64::MAX, Some(monthly), i64::MAX))).await.unwrap();
        let second = set(Some(credits(0, Some(daily), -1))).await.unwrap();
        let none = set(None).await;
        let last = set(Some(credits(7, None, 0))).await.unwrap();

        assert_eq!(
            (first.balance, first.refill, first.refilled_period),
            (i64::MAX, Some(monthly), i64::MAX)
        );
        assert_eq!((second.balance, second.refill, second.refilled_period), (0, Some(daily), -1));
        assert_eq!(none, None);
        assert_eq!((last.balance, last.refill), (7, None));
        assert!(first.last_lease_number < second.last_lease_number && second.last_lease_number < last.last_lease_number);
        let stored = store.read().await.unwrap().find_key_by_hash(&key.hash).await.unwrap().unwrap();
        assert_eq!(stored.key.credits, Some(last));
    }

    async fn moved_balance_keeps_its_refill(store) {
        let refill = Refill { interval: RefillInterval::Monthly { day: 31 }, amount: 9 };
        let key = key(&store, Some(credits(5, Some(refill), 3))).await;

        let (before, after) = commit_with(&store, async |tx| {
            let before = tx.lock_account(&key.id).await?.unwrap().credits;
            let moved = Credits { balance: i64::MAX, refilled_period: 4, last_lease_number: 9, ..before };
            tx.update_balance(&key.id, &moved).await?;
            Ok((before, tx.lock_account(&key.id).await?.unwrap().credits))
        })
        .await
        .unwrap();

        assert_eq!(after, Credits { balance: i64::MAX, refilled_period: 4, last_lease_number: 9, ..before });
    }

    async fn balance_is_never_negative(store) {
        let key = key(&store, Some(credits(5, None, 0))).await;

        let moved = commit_with(&store, async |tx| tx.update_balance(&key.id, &credits(-1, None, 0)).await).await;
        let set =
            commit_with(&store, async |tx| tx.set_credits(&key.id, Some(&credits(-1, None, 0))).await)
                .await;

        assert!(moved.is_err() && set.is_err());
        let stored = store.read().await.unwrap().find_key_by_hash(&key.hash).await.unwrap().unwrap();
        assert_eq!(stored.key.credits.unwrap().balance, 5);
    }

    async fn concurrent_debits_are_exact(store) {
        let store = Arc::new(store);
        let key = key(&store, Some(credits(1_000, None, 0))).await;
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..16 {
            let (store, id) = (store.clone(), key.id.clone());
            tasks.spawn(async move {
                for _ in 0..4 {
                    let mut tx = store.begin().await.unwrap();
                    let mut credits = tx.lock_account(&id).await.unwrap().unwrap().credits;
                    tokio::task::yield_now().await;
                    (credits.balance, credits.refilled_period) = (credits.balance - n, credits.refilled_period + 1);
                    tx.update_balance(&id, &credits).await.unwrap();
                    tx.commit().await.unwrap();
                }
            });
        }
        tasks.join_all().await;

        let stored = store.read().await.unwrap().find_key_by_hash(&key.hash).await.unwrap().unwrap();
        let left = stored.key.credits.unwrap();
        assert_eq!((left.balance, left.refilled_period), (1_000 - 4 * (0..16).sum::<i64>(), 64));
    }
}

#[tokio::test]
async fn top_up_keeps_its_account_lock_for_a_second_when_stalled() {
    let database = Database::create().await;
    let store = Store::connect(&database.url, 8).await.unwrap();
    store.migrate().await.unwrap();
    let key = key(&store, Some(credits(5, None, 0))).await;
    let mut still = store.begin_within(Duration::from_millis(40)).await.unwrap();
    still.lock_account(&key.id).await.unwrap();

    let mut next = store.begin_within(Duration::from_secs(4)).await.unwrap();
    let account = next.lock_account(&key.id).await.unwrap();

    assert!(account.is_some());
    assert!(still.lock_account(&key.id).await.is_err(), "the transaction was not ended");
}
