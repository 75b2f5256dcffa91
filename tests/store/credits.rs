//! The bank's accounts.

use super::*;

both_stores! {
    async fn an_account_is_there_for_a_metered_key_only(store) {
        let (metered, unlimited) =
            (key(&store, Some(credits(0, None, 0))).await, key(&store, None).await);
        let deleted = key(&store, Some(credits(5, None, 0))).await;
        commit(&store, async |tx| tx.delete_key(&deleted.id, NOON).await).await.unwrap();

        let mut tx = store.begin().await.unwrap();

        assert_eq!(tx.lock_credits(&metered.id).await.unwrap().unwrap().balance, 0);
        assert!(tx.lock_credits(&unlimited.id).await.unwrap().is_none());
        assert!(tx.lock_credits(&deleted.id).await.unwrap().is_none());
        assert!(tx.lock_credits(&KeyId::from("key_nowhere")).await.unwrap().is_none());
    }

    async fn a_balance_that_is_set_has_a_new_version(store) {
        let key = key(&store, None).await;
        let monthly = Refill { interval: RefillInterval::Monthly { day: 1 }, amount: i64::MAX };
        let daily = Refill { interval: RefillInterval::Daily, amount: 1 };
        let set = async |credits: Option<Credits>| {
            commit(&store, async |tx| {
                tx.set_credits(&key.id, credits.as_ref()).await?;
                tx.lock_credits(&key.id).await
            })
            .await
            .unwrap()
        };

        let first = set(Some(credits(i64::MAX, Some(monthly), i64::MAX))).await.unwrap();
        let second = set(Some(credits(0, Some(daily), -1))).await.unwrap();
        let none = set(None).await;
        let last = set(Some(credits(7, None, 0))).await.unwrap();

        assert_eq!(
            (first.balance, first.refill, first.refilled),
            (i64::MAX, Some(monthly), i64::MAX)
        );
        assert_eq!((second.balance, second.refill, second.refilled), (0, Some(daily), -1));
        assert_eq!(none, None);
        assert_eq!((last.balance, last.refill), (7, None));
        assert!(first.version < second.version && second.version < last.version);
        let stored = store.read().await.unwrap().key_by_hash(&key.hash).await.unwrap().unwrap();
        assert_eq!(stored.key.credits, Some(last));
    }

    async fn a_balance_that_moves_keeps_its_version_and_refill(store) {
        let refill = Refill { interval: RefillInterval::Monthly { day: 31 }, amount: 9 };
        let key = key(&store, Some(credits(5, Some(refill), 3))).await;

        let (before, after) = commit(&store, async |tx| {
            let before = tx.lock_credits(&key.id).await?;
            tx.move_credits(&key.id, i64::MAX, 4).await?;
            Ok((before.unwrap(), tx.lock_credits(&key.id).await?.unwrap()))
        })
        .await
        .unwrap();

        assert_eq!(after, Credits { balance: i64::MAX, refilled: 4, ..before });
    }

    async fn a_balance_never_falls_below_0(store) {
        let key = key(&store, Some(credits(5, None, 0))).await;

        let moved = commit(&store, async |tx| tx.move_credits(&key.id, -1, 0).await).await;
        let set =
            commit(&store, async |tx| tx.set_credits(&key.id, Some(&credits(-1, None, 0))).await)
                .await;

        assert!(moved.is_err() && set.is_err());
        let stored = store.read().await.unwrap().key_by_hash(&key.hash).await.unwrap().unwrap();
        assert_eq!(stored.key.credits.unwrap().balance, 5);
    }

    async fn withdrawals_at_once_lose_nothing(store) {
        let store = Arc::new(store);
        let key = key(&store, Some(credits(1_000, None, 0))).await;
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..16 {
            let (store, id) = (store.clone(), key.id.clone());
            tasks.spawn(async move {
                for _ in 0..4 {
                    let mut tx = store.begin().await.unwrap();
                    let credits = tx.lock_credits(&id).await.unwrap().unwrap();
                    tokio::task::yield_now().await;
                    tx.move_credits(&id, credits.balance - n, credits.refilled + 1).await.unwrap();
                    tx.commit().await.unwrap();
                }
            });
        }
        tasks.join_all().await;

        let stored = store.read().await.unwrap().key_by_hash(&key.hash).await.unwrap().unwrap();
        let left = stored.key.credits.unwrap();
        assert_eq!((left.balance, left.refilled), (1_000 - 4 * (0..16).sum::<i64>(), 64));
    }
}
