//! Tests replicas while accounts are locked.

use std::sync::atomic::{AtomicBool, Ordering};

use sqlx::Executor as _;

use super::*;
use crate::faults::limited;
use crate::stage::begin_transaction;

/// The database's time in milliseconds.
const NOW: &str = "CAST(EXTRACT(EPOCH FROM now()) * 1000 AS BIGINT)";

#[test]
fn stopping_replica_deregisters_when_an_account_is_locked() {
    // The locked row is an open transaction, which delays what replicas of other tests may conclude.
    let _turn = acquire_turn();
    let (database, redis) = (database(), Redis::start());
    let mut replicas = replicas(&database, &[&redis, &redis]);
    let (id, key) = create_key(&replicas[0], 1_000);
    assert_valid(&verify(&replicas[0], &key));
    assert!(sql(&database, LEASED) > 0);
    let registered = || sql(&database, "SELECT COUNT(*) FROM replicas");
    wait_until("both replicas are registered", || registered() == 2);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let lock = format!("SELECT 1 FROM keys WHERE id = '{id}' FOR UPDATE");
    let _somebody = runtime.block_on(async {
        let mut connection = database.connect().await;
        connection.execute("BEGIN").await.unwrap();
        connection.execute(AssertSqlSafe(lock)).await.unwrap();
        connection
    });

    let stopping = replicas.swap_remove(0);
    stopping.signal("TERM");
    let began = Stopwatch::new();
    let status = stopping.wait();

    assert_eq!(status, Some(0));
    assert!(began.elapsed() < Duration::from_secs(12), "it took {:?}", began.elapsed());
    assert_eq!(registered(), 1, "other replicas would wait for its report");
}

#[test]
fn withheld_credits_return_when_their_locked_account_is_unlocked() {
    let _turn = acquire_turn();
    let (database, redis) = (database(), Redis::start());
    let replicas = replicas(&database, &[&redis]);
    let withheld = || sql(&database, "SELECT COUNT(*) FROM purses WHERE withheld_at IS NOT NULL");
    let reported = || sql(&database, "SELECT COUNT(*) FROM purse_accounts");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    // The first round may end in a sweep over all leases, which is rarer than the pass that is tested; the second one not too.
    for _ in 0..2 {
        let (id, key) = create_key(&replicas[0], 1_000);
        assert_valid(&verify(&replicas[0], &key));
        let lock = format!("SELECT 1 FROM keys WHERE id = '{id}' FOR UPDATE");
        let lose = format!("UPDATE purses SET withheld_at = {NOW} WHERE key_id = '{id}'");
        let mut somebody = runtime.block_on(begin_transaction(&database, &[&lock]));
        sql(&database, &lose);
        wait_until("the replica reports", || reported() > 0);
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(withheld(), 1, "its account is locked");

        runtime.block_on(somebody.execute("COMMIT")).unwrap();

        let unlocked = Stopwatch::new();
        while withheld() > 0 {
            assert!(unlocked.elapsed() < Duration::from_millis(1_500), "still withheld");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

const LOCKED: usize = 20;

/// Verifies keys with credits, the first [`LOCKED`] of them all the time while their accounts are locked. Returns how often
/// those were rejected with 503, and how many of the others are valid.
fn verify_beside_locked_accounts(
    database: &Database,
    replica: &Server,
    keys: &[(String, String)],
) -> (usize, usize) {
    let (locked, others) = keys.split_at(LOCKED);
    let ids: Vec<_> = locked.iter().map(|(id, _)| format!("'{id}'")).collect();
    let lock = format!("SELECT 1 FROM keys WHERE id IN ({}) FOR UPDATE", ids.join(", "));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let other_session = runtime.block_on(begin_transaction(database, &[&lock]));
    let is_over = AtomicBool::new(false);
    let (refused, valid) = std::thread::scope(|scope| {
        let is_over = &is_over;
        let ask = |key: &String| {
            let key = key.clone();
            move || {
                let mut refused = 0;
                while !is_over.load(Ordering::Relaxed) {
                    refused += usize::from(verify(replica, &key).0 == 503);
                    std::thread::sleep(Duration::from_millis(5));
                }
                refused
            }
        };
        let asking: Vec<_> = locked.iter().map(|(_, key)| scope.spawn(ask(key))).collect();
        let valid = others.iter().filter(|(_, key)| {
            std::thread::sleep(Duration::from_millis(100));
            verify(replica, key).1["data"]["valid"] == true
        });
        let valid = valid.count();
        is_over.store(true, Ordering::Relaxed);
        (asking.into_iter().map(|it| it.join().unwrap()).sum::<usize>(), valid)
    });
    drop(other_session);
    (refused, valid)
}

#[test]
fn verify_returns_valid_when_accounts_of_many_other_keys_are_locked() {
    let _turn = acquire_turn();
    let (database, redis) = (database(), Redis::start());
    let replicas = replicas(&database, &[&redis]);
    let keys: Vec<_> = (0..LOCKED + 20).map(|_| create_key(&replicas[0], 1_000)).collect();

    let (refused, valid) = verify_beside_locked_accounts(&database, &replicas[0], &keys);

    assert!(refused > 0, "the other accounts were locked");
    assert_eq!(valid, 20);
}

#[test]
fn verify_returns_valid_without_redis_when_accounts_of_many_other_keys_are_locked() {
    let _turn = acquire_turn();
    let (database, mut redis) = (database(), Redis::start());
    // With the timeout of Redis that is the default, so that a debit has 50 ms.
    let replica = Server::start(replica_command(&database.url, &redis.url()));
    let keys: Vec<_> = (0..LOCKED + 20).map(|_| create_key(&replica, 1_000)).collect();
    for (_, key) in &keys {
        verify(&replica, key);
    }
    redis.kill();

    let (refused, valid) = verify_beside_locked_accounts(&database, &replica, &keys);

    assert!(refused > 0, "the other accounts were locked");
    // A deadline of milliseconds is sometimes missed; if each debit waited for the locked accounts, all would be rejected.
    assert!(valid >= 10, "{valid} of 20 other keys were valid");
}

#[test]
fn verify_never_returns_503_while_a_change_of_the_key_waits_for_another_replica() {
    let _turn = share_turn();
    let stage = Stage::new();
    let (reader, writer) = stage.pair();
    let healthy = stage.replica();
    stage.await_readers(3);
    // At most ten of the credits are leased at a time.
    let key = writer.create_key_with(&json!({ "credits": { "remaining": 100 } }));
    let window = writer.create_key_with(&limited());
    healthy.assert_code(&key, "VALID");

    reader.postgres.cut();
    writer.redis.cut();
    // The writer notices that it has no Redis.
    for _ in 0..8 {
        writer.verification_code(&window);
    }
    let increment = || {
        let request = json!({ "keyId": key.id, "operation": "increment", "value": 1 });
        writer.server.v2(ROOT_KEY, "keys.updateCredits", &request).0
    };
    let (refused, longest) = std::thread::scope(|scope| {
        let changing = scope.spawn(increment);
        let mut longest = Duration::ZERO;
        while !changing.is_finished() {
            let since = Stopwatch::new();
            assert_ne!(healthy.verification_code(&key), "503", "after {:?}", since.elapsed());
            longest = longest.max(since.elapsed());
        }
        (changing.join().unwrap(), longest)
    });

    assert_eq!(refused, 503, "the change waits for the reader in vain");
    assert!(longest > Duration::from_secs(1), "the account was not locked: {longest:?}");
}
