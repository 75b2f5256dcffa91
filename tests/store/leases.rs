//! Tests credit leases, and the replicas that report what they have spent from them.

use std::collections::HashMap;

use super::*;

on_both_stores! {
    async fn leases_are_stored_with_their_account(store) {
        let key = key(&store, Some(credits(5, None, 0))).await;
        let lease = |lease_number, withheld_at| Lease {
            lease_number,
            redis_generation: 7,
            granted: 100,
            spent: 40,
            opened_at: NOON,
            topped_up_at: NOON,
            topped_up_by: "rep_a".into(),
            withheld_at,
            closed: false,
            region: String::new(),
        };
        let (open, gone) = (lease(2, None), lease(1, Some(NOON)));

        commit_with(&store, async |tx| {
            tx.upsert_lease(&key.id, &open).await?;
            tx.upsert_lease(&key.id, &gone).await
        })
        .await
        .unwrap();
        let mut tx = store.begin().await.unwrap();
        let both = tx.lock_account(&key.id).await.unwrap().unwrap().leases;
        tx.delete_lease(&key.id, 2).await.unwrap();
        let one = tx.lock_account(&key.id).await.unwrap().unwrap().leases;
        let withheld_entries = tx.list_withheld(Some(&key.id)).await.unwrap();
        let of_another = tx.list_withheld(Some(&KeyId::from("key_nowhere"))).await.unwrap();
        tx.upsert_lease(&key.id, &Lease { closed: true, ..lease(3, Some(NOON)) }).await.unwrap();
        tx.forfeit_leases(&key.id).await.unwrap();
        let forfeited = tx.list_leases(&key.id).await.unwrap();

        assert_eq!(both, [gone.clone(), open]);
        assert_eq!(one, [gone]);
        assert_eq!((withheld_entries[0].units, withheld_entries[0].since, withheld_entries.len()), (60, NOON, 1));
        assert!(of_another.is_empty());
        // Another replica may still spend from it: the lease is still recorded, and none of its credits are returned.
        let forfeited: Vec<_> = forfeited.iter().map(|lease| (lease.lease_number, lease.unspent_units())).collect();
        assert_eq!(forfeited, [(1, 0)]);
    }

    async fn idle_leases_and_leases_of_a_replica_are_listed(store) {
        let key = key(&store, Some(credits(5, None, 0))).await;
        let asked_at = store.read().await.unwrap().load_database_time().await.unwrap();
        let lease = Lease {
            lease_number: 1,
            redis_generation: 7,
            granted: 1,
            spent: 0,
            opened_at: asked_at,
            topped_up_at: asked_at,
            topped_up_by: "rep_a".into(),
            withheld_at: None,
            closed: false,
            region: String::new(),
        };
        commit_with(&store, async |tx| tx.upsert_lease(&key.id, &lease).await).await.unwrap();

        let mut reader = store.read().await.unwrap();
        let found = async |reader: &mut store::Reader, idle, replica| {
            !reader.list_idle_leases(idle, replica, None).await.unwrap().is_empty()
        };

        assert!(!found(&mut reader, 60_000, None).await);
        assert!(found(&mut reader, -60_000, None).await);
        assert!(found(&mut reader, 60_000, Some("rep_a")).await);
        assert!(!found(&mut reader, 60_000, Some("rep_b")).await);
    }

    async fn active_leases_are_touched_and_reported_spend_never_decreases(store) {
        let key = key(&store, Some(credits(5, None, 0))).await;
        let long_ago = Timestamp(1);
        let lease = |lease_number, withheld_at| Lease {
            lease_number,
            redis_generation: 7,
            granted: 100,
            spent: 40,
            opened_at: long_ago,
            topped_up_at: long_ago,
            topped_up_by: "rep_a".into(),
            withheld_at,
            closed: false,
            region: String::new(),
        };

        commit_with(&store, async |tx| {
            for lease in [lease(1, None), lease(2, None), lease(3, Some(NOON))] {
                tx.upsert_lease(&key.id, &lease).await?;
            }
            let entry = |epoch, spent| (key.id.clone(), epoch, spent);
            tx.touch_leases(&[entry(1, 50), entry(2, 30), entry(3, 50), entry(4, 50)]).await
        })
        .await
        .unwrap();

        let account = store.read().await.unwrap().find_account(&key.id).await.unwrap().unwrap();
        let known = |lease: &Lease| (lease.spent, lease.topped_up_at > long_ago);
        let known: Vec<_> = account.leases.iter().map(known).collect();
        assert_eq!(known, [(50, true), (40, true), (40, false)]);
    }

    async fn upsert_lease_keeps_concurrent_reports(store) {
        let key = withheld_lease(&store).await;
        let reported = [(key.clone(), 1, 70)];
        let known = store.read().await.unwrap().list_leases(&key).await.unwrap().remove(0);
        commit_with(&store, async |tx| tx.report_final_spends("rep_a", &reported).await).await.unwrap();

        commit_with(&store, async |tx| tx.upsert_lease(&key, &known).await).await.unwrap();

        let kept = store.read().await.unwrap().list_leases(&key).await.unwrap().remove(0);
        assert_eq!((known.spent, kept.spent), (40, 70));
    }

    async fn replicas_are_listed_in_order_while_alive(store) {
        let register = async |id: &str, within| {
            let live =
                commit_with(&store, async |tx| tx.register_replica(id, "eu", 1, within).await);
            let live = live.await.unwrap();
            assert!(live.iter().all(|(_, region)| region == "eu"), "{live:?}");
            live.into_iter().map(|(id, _)| id).collect::<Vec<_>>()
        };

        assert_eq!(register("rep_a", 60_000).await, ["rep_a"]);
        assert_eq!(register("rep_b", 60_000).await, ["rep_a", "rep_b"]);
        assert_eq!(register("rep_a", 60_000).await, ["rep_a", "rep_b"]);
        commit_with(&store, async |tx| tx.delete_replica("rep_a").await).await.unwrap();
        assert_eq!(register("rep_b", 60_000).await, ["rep_b"]);
        assert_eq!(register("rep_b", -60_000).await, [""; 0]);
    }

    async fn lease_is_fully_reported_when_every_replica_has_reported(store) {
        let first = withheld_lease(&store).await;
        register(&store, "rep_a").await;
        register(&store, "rep_b").await;
        let proven = async |key: &KeyId| {
            let keys = std::slice::from_ref(key);
            !store.read().await.unwrap().list_withheld_of_keys(keys, true).await.unwrap().is_empty()
        };
        let report = async |key: &KeyId, replica: &str| {
            let spent = [(key.clone(), 1, 50)];
            commit_with(&store, async |tx| tx.report_final_spends(replica, &spent).await).await.unwrap();
        };

        report(&first, "rep_a").await;
        assert!(!proven(&first).await, "rep_b may have spent from it");
        // Times do not matter: as if a clock had stepped back, or forward.
        for step in [
            "UPDATE replicas SET seen_at = 1 WHERE id = 'rep_b'",
            "UPDATE replicas SET seen_at = 9223372036854775807 WHERE id = 'rep_b'",
            "UPDATE purses SET opened_at = 9223372036854775807",
        ] {
            execute(&store, step).await;
            assert!(!proven(&first).await, "{step}");
        }
        deregister_silent(&store, "UPDATE replicas SET silent_seen_at = seen_at WHERE id = 'rep_b'").await;
        let second = withheld_lease(&store).await;
        report(&second, "rep_a").await;

        assert!(!proven(&first).await, "the replica was deregistered later");
        assert!(proven(&second).await, "the replica was deregistered before");
        register(&store, "rep_b").await;
        assert!(!proven(&second).await, "the replica is registered again");
        for key in [&first, &second] {
            report(key, "rep_b").await;
            assert!(proven(key).await);
        }
    }

    async fn replica_gets_no_lease_when_deregistered(store) {
        let key = key(&store, None).await;
        commit_with(&store, async |tx| tx.set_credits(&key.id, Some(&credits(5, None, 0))).await).await.unwrap();
        let learns = async || {
            let found = store.read().await.unwrap().list_keys_to_spend(std::slice::from_ref(&key.hash), "rep_a").await.unwrap();
            let version = found[0].clone().key.credits.unwrap().last_lease_number;
            let held = commit_with(&store, async |tx| tx.lock_registration("rep_a").await).await.unwrap();
            assert_eq!(version != 0, held, "both queries agree");
            held
        };
        let version = store.read().await.unwrap().find_account(&key.id).await.unwrap().unwrap();
        assert!(version.credits.last_lease_number > 0);

        assert!(!learns().await, "not registered yet");
        register(&store, "rep_a").await;
        assert!(learns().await);
        commit_with(&store, async |tx| tx.end_silent_registrations(-60_000).await).await.unwrap();
        assert!(!learns().await, "silent");
        commit_with(&store, async |tx| tx.count_out_replicas().await).await.unwrap();
        assert!(!learns().await, "counted out");
        register(&store, "rep_a").await;
        assert!(learns().await);
    }

    async fn replica_row_is_kept_while_a_lease_needs_its_report(store) {
        let lease = withheld_lease(&store).await;
        register(&store, "rep_a").await;
        deregister_silent(&store, "UPDATE replicas SET silent_seen_at = seen_at").await;
        let prune = async || {
            execute(&store, "UPDATE replicas SET silent_seen_at = 1, seen_at = 1").await;
            commit_with(&store, async |tx| tx.prune_replicas().await).await.unwrap();
            store.read().await.unwrap().list_replicas(10).await.unwrap().len()
        };

        assert_eq!(prune().await, 1);
        let later = withheld_lease(&store).await;
        commit_with(&store, async |tx| tx.delete_lease(&lease, 1).await).await.unwrap();
        assert_eq!(prune().await, 0);
        assert_eq!(store.read().await.unwrap().list_leases(&later).await.unwrap().len(), 1);
    }

    async fn credits_are_returned_to_many_accounts_at_once(store) {
        let keys = [credits(5, None, 0), credits(i64::MAX - 1, None, 0)];
        let [one, full] = [key(&store, Some(keys[0])).await, key(&store, Some(keys[1])).await];
        let [unlimited, deleted] = [key(&store, None).await, key(&store, Some(keys[0])).await];
        commit_with(&store, async |tx| tx.delete_key(&deleted.id, NOON).await).await.unwrap();
        let all = [&one, &full, &unlimited, &deleted].map(|key| (key.id.clone(), 60));

        commit_with(&store, async |tx| {
            for (key, _) in &all {
                tx.upsert_lease(key, &lease_of(1, 100, 40)).await?;
            }
            tx.lock_accounts(&all.clone().map(|(key, _)| key)).await?;
            tx.return_credits(&all).await?;
            tx.delete_withheld(&all.clone().map(|(key, _)| (key, 1))).await
        })
        .await
        .unwrap();

        let mut reader = store.read().await.unwrap();
        let account = reader.find_account(&one.id).await.unwrap().unwrap();
        assert_eq!((account.credits.balance, account.leases.len()), (65, 0));
        let account = reader.find_account(&full.id).await.unwrap().unwrap();
        assert_eq!(account.credits.balance, i64::MAX);
        assert!(reader.find_account(&unlimited.id).await.unwrap().is_none());
        assert!(reader.list_withheld(None).await.unwrap().is_empty());
        drop(reader);
        let mut tx = store.begin().await.unwrap();
        let account = tx.lock_account_with_deleted(&deleted.id).await.unwrap().unwrap();
        assert_eq!(account.credits.balance, 65, "the balance if the key were restored");
    }

    async fn unreported_leases_are_listed_once_in_pages(store) {
        let keys = [
            withheld_lease(&store).await,
            withheld_lease(&store).await,
            withheld_lease(&store).await,
        ];
        let mut reader = store.read().await.unwrap();
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let page = reader.list_unreported_leases("rep_a", after.as_ref(), 2).await.unwrap();
            let Some(last) = page.last() else { break };
            after = Some(last.clone());
            found.extend(page.into_iter().map(|lease| lease.key_id));
        }
        found.sort();
        let mut keys = keys.to_vec();
        keys.sort();
        assert_eq!(found, keys);
    }
}

fn lease_of(epoch: i64, granted: i64, spent: i64) -> Lease {
    Lease {
        lease_number: epoch,
        redis_generation: 7,
        granted,
        spent,
        opened_at: NOON,
        topped_up_at: NOON,
        topped_up_by: "rep_a".into(),
        withheld_at: Some(NOON),
        closed: false,
        region: String::new(),
    }
}

/// Stores a withheld lease with number 1. Returns its key.
async fn withheld_lease(store: &Store) -> KeyId {
    let key = key(store, Some(credits(5, None, 0))).await;
    commit_with(store, async |tx| tx.upsert_lease(&key.id, &lease_of(1, 100, 40)).await)
        .await
        .unwrap();
    key.id
}

async fn register(store: &Store, id: &str) {
    commit_with(store, async |tx| tx.register_replica(id, "", 1, 60_000).await).await.unwrap();
}

/// Stops counting the replicas that a condition calls silent.
async fn deregister_silent(store: &Store, silence: &'static str) {
    execute(store, silence).await;
    commit_with(store, async |tx| tx.count_out_replicas().await).await.unwrap();
}

on_both_stores! {
    async fn leases_of_several_keys_are_locked_and_written_together(store) {
        let (a, b) = (key(&store, Some(credits(5, None, 0))).await, key(&store, Some(credits(7, None, 0))).await);
        let unlimited = key(&store, None).await;
        let mut ids = vec![a.id.clone(), b.id.clone(), unlimited.id, KeyId::from("key_nowhere")];
        ids.sort();
        let withheld = Lease { withheld_at: Some(NOON), closed: true, ..lease_of(2, 9, 3) };
        let leases = [
            (a.id.clone(), lease_of(1, 100, 40)),
            (a.id.clone(), withheld.clone()),
            (b.id.clone(), Lease { withheld_at: None, ..lease_of(1, 8, 0) }),
        ];
        commit_with(&store, async |tx| tx.upsert_leases(&leases).await).await.unwrap();
        let reported = [(b.id.clone(), 1, 5)];
        commit_with(&store, async |tx| tx.touch_leases(&reported).await).await.unwrap();

        commit_with(&store, async |tx| {
            tx.upsert_leases(&[
                (b.id.clone(), Lease { granted: 20, withheld_at: None, ..lease_of(1, 8, 0) }),
                (a.id.clone(), Lease { granted: 150, spent: 90, ..lease_of(1, 100, 40) }),
            ])
            .await
        })
        .await
        .unwrap();

        let mut tx = store.begin().await.unwrap();
        let accounts: HashMap<_, _> = tx.lock_free_accounts(&ids).await.unwrap().into_iter().collect();
        assert_eq!(accounts.len(), 2);
        assert_eq!((accounts[&a.id].credits.balance, accounts[&b.id].credits.balance), (5, 7));
        assert_eq!(
            accounts[&a.id].leases,
            [Lease { granted: 150, spent: 90, ..lease_of(1, 100, 40) }, withheld]
        );
        let amounts: Vec<_> = accounts[&b.id].leases.iter().map(|it| (it.granted, it.spent)).collect();
        assert_eq!(amounts, [(20, 5)], "a reported spend is kept");
    }
}

#[tokio::test]
async fn accounts_that_are_locked_are_left_out() {
    let database = Database::create().await;
    let store = Store::connect(&database.url, 8).await.unwrap();
    store.migrate().await.unwrap();
    let (held, free) = (withheld_lease(&store).await, withheld_lease(&store).await);
    let mut holder = store.begin().await.unwrap();
    holder.lock_account(&held).await.unwrap();
    let mut keys = vec![held, free.clone()];
    keys.sort();

    let locked = store.begin().await.unwrap().lock_free_accounts(&keys).await.unwrap();

    assert_eq!(locked.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), [free]);
}

#[tokio::test]
async fn claim_accounts_skips_locked_accounts() {
    let database = Database::create().await;
    let store = Store::connect(&database.url, 8).await.unwrap();
    store.migrate().await.unwrap();
    let (held, free) = (withheld_lease(&store).await, withheld_lease(&store).await);
    let mut holder = store.begin().await.unwrap();
    holder.lock_account(&held).await.unwrap();

    let claimed = store.begin().await.unwrap().claim_accounts(&[held, free.clone()]).await.unwrap();

    assert_eq!(claimed, [free]);
}
