//! The bank's accounts.

use super::*;

both_stores! {
    async fn an_account_is_there_for_a_metered_key_only(store) {
        let (metered, unlimited) =
            (key(&store, Some(credits(0, None, 0))).await, key(&store, None).await);
        let deleted = key(&store, Some(credits(5, None, 0))).await;
        commit(&store, async |tx| tx.delete_key(&deleted.id, NOON).await).await.unwrap();

        let mut tx = store.begin().await.unwrap();

        assert_eq!(tx.lock_account(&metered.id).await.unwrap().unwrap().credits.balance, 0);
        assert!(tx.lock_account(&unlimited.id).await.unwrap().is_none());
        assert!(tx.lock_account(&deleted.id).await.unwrap().is_none());
        assert!(tx.lock_account(&KeyId::from("key_nowhere")).await.unwrap().is_none());
    }

    async fn a_balance_that_is_set_has_a_new_version(store) {
        let key = key(&store, None).await;
        let monthly = Refill { interval: RefillInterval::Monthly { day: 1 }, amount: i64::MAX };
        let daily = Refill { interval: RefillInterval::Daily, amount: 1 };
        let set = async |credits: Option<Credits>| {
            commit(&store, async |tx| {
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

    async fn a_balance_that_moves_keeps_its_refill(store) {
        let refill = Refill { interval: RefillInterval::Monthly { day: 31 }, amount: 9 };
        let key = key(&store, Some(credits(5, Some(refill), 3))).await;

        let (before, after) = commit(&store, async |tx| {
            let before = tx.lock_account(&key.id).await?.unwrap().credits;
            let moved = Credits { balance: i64::MAX, refilled: 4, version: 9, ..before };
            tx.move_credits(&key.id, &moved).await?;
            Ok((before, tx.lock_account(&key.id).await?.unwrap().credits))
        })
        .await
        .unwrap();

        assert_eq!(after, Credits { balance: i64::MAX, refilled: 4, version: 9, ..before });
    }

    async fn a_balance_never_falls_below_0(store) {
        let key = key(&store, Some(credits(5, None, 0))).await;

        let moved = commit(&store, async |tx| tx.move_credits(&key.id, &credits(-1, None, 0)).await).await;
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
                    let mut credits = tx.lock_account(&id).await.unwrap().unwrap().credits;
                    tokio::task::yield_now().await;
                    (credits.balance, credits.refilled) = (credits.balance - n, credits.refilled + 1);
                    tx.move_credits(&id, &credits).await.unwrap();
                    tx.commit().await.unwrap();
                }
            });
        }
        tasks.join_all().await;

        let stored = store.read().await.unwrap().key_by_hash(&key.hash).await.unwrap().unwrap();
        let left = stored.key.credits.unwrap();
        assert_eq!((left.balance, left.refilled), (1_000 - 4 * (0..16).sum::<i64>(), 64));
    }

    async fn purses_are_kept_with_their_account(store) {
        let key = key(&store, Some(credits(5, None, 0))).await;
        let purse = |epoch, withheld_at| Purse {
            epoch,
            life: 7,
            granted: 100,
            spent: 40,
            opened_at: NOON,
            asked_at: NOON,
            asked_by: "rep_a".into(),
            withheld_at,
        };
        let (open, gone) = (purse(2, None), purse(1, Some(NOON)));

        commit(&store, async |tx| {
            tx.put_purse(&key.id, &open).await?;
            tx.put_purse(&key.id, &gone).await
        })
        .await
        .unwrap();
        let mut tx = store.begin().await.unwrap();
        let both = tx.lock_account(&key.id).await.unwrap().unwrap().purses;
        tx.drop_purse(&key.id, 2).await.unwrap();
        let one = tx.lock_account(&key.id).await.unwrap().unwrap().purses;
        let ledger = tx.withheld(Some(&key.id)).await.unwrap();
        let of_another = tx.withheld(Some(&KeyId::from("key_nowhere"))).await.unwrap();
        tx.drop_purses(&key.id).await.unwrap();

        assert_eq!(both, [gone.clone(), open]);
        assert_eq!(one, [gone]);
        assert_eq!((ledger[0].units, ledger[0].since, ledger.len()), (60, NOON, 1));
        assert!(of_another.is_empty());
        assert!(tx.withheld(None).await.unwrap().is_empty());
    }

    async fn idle_purses_are_found_and_a_replicas_own(store) {
        let key = key(&store, Some(credits(5, None, 0))).await;
        let asked_at = store.read().await.unwrap().now().await.unwrap();
        let purse = Purse {
            epoch: 1,
            life: 7,
            granted: 1,
            spent: 0,
            opened_at: asked_at,
            asked_at,
            asked_by: "rep_a".into(),
            withheld_at: None,
        };
        commit(&store, async |tx| tx.put_purse(&key.id, &purse).await).await.unwrap();

        let mut reader = store.read().await.unwrap();
        let found = async |reader: &mut keyward::store::Reader, idle, replica| {
            !reader.purses_to_settle(idle, replica).await.unwrap().is_empty()
        };

        assert!(!found(&mut reader, 60_000, None).await);
        assert!(found(&mut reader, -60_000, None).await);
        assert!(found(&mut reader, 60_000, Some("rep_a")).await);
        assert!(!found(&mut reader, 60_000, Some("rep_b")).await);
    }

    async fn purses_in_use_are_looked_after_and_never_told_less_than_is_known(store) {
        let key = key(&store, Some(credits(5, None, 0))).await;
        let long_ago = Timestamp(1);
        let purse = |epoch, withheld_at| Purse {
            epoch,
            life: 7,
            granted: 100,
            spent: 40,
            opened_at: long_ago,
            asked_at: long_ago,
            asked_by: "rep_a".into(),
            withheld_at,
        };

        commit(&store, async |tx| {
            for purse in [purse(1, None), purse(2, None), purse(3, Some(NOON))] {
                tx.put_purse(&key.id, &purse).await?;
            }
            let told = |epoch, spent| (key.id.clone(), epoch, spent);
            tx.look_after_purses(&[told(1, 50), told(2, 30), told(3, 50), told(4, 50)]).await
        })
        .await
        .unwrap();

        let account = store.read().await.unwrap().account(&key.id).await.unwrap().unwrap();
        let known = |purse: &Purse| (purse.spent, purse.asked_at > long_ago);
        let known: Vec<_> = account.purses.iter().map(known).collect();
        assert_eq!(known, [(50, true), (40, true), (40, false)]);
    }

    async fn replicas_are_counted_while_they_say_that_they_are_there(store) {
        let register = async |id: &str, within| {
            commit(&store, async |tx| tx.register_replica(id, within).await).await.unwrap()
        };

        assert_eq!(register("rep_a", 60_000).await, 1);
        assert_eq!(register("rep_b", 60_000).await, 2);
        assert_eq!(register("rep_a", 60_000).await, 2);
        commit(&store, async |tx| tx.drop_replica("rep_b").await).await.unwrap();
        assert_eq!(register("rep_a", 60_000).await, 1);
        assert_eq!(register("rep_a", -60_000).await, 0);
    }
}
