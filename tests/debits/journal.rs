//! Tests which debits of an embedded server are written to its journal, and which of its balances are reported.

use std::time::Duration;

use axum::http::StatusCode;
use foundation::id::KeyId;
use foundation::model::Credits;
use serde_json::json;
use tokio::time::sleep;

use super::{embedded, remaining};

#[tokio::test]
async fn peeks_and_rejected_debits_are_not_written() {
    let kw = embedded().await;
    let key = kw.create_key(json!({ "credits": { "remaining": 10 } })).await;
    kw.verify(&key.key).await.assert_code("VALID");

    for _ in 0..20 {
        for (cost, code) in [(0, "VALID"), (10, "USAGE_EXCEEDED")] {
            let cost = json!({ "credits": { "cost": cost } });
            let reply = kw.verify_with(&key.key, cost).await;
            assert_eq!(reply.assert_code(code)["credits"], 9);
        }
    }

    // Another transaction may have folded the row of the first verification.
    let rows = kw.count_rows("debits").await;
    assert!(rows <= 1, "{rows} rows");
    assert_eq!(remaining(&kw, &key).await, 9);
}

/// A peek may share a commit with a change of the balance that it reports.
#[tokio::test]
async fn balance_is_not_reported_when_the_commit_that_changed_it_failed() {
    const BROKEN: i64 = 7;
    let kw = embedded().await;
    let key = kw.create_key(json!({ "credits": { "remaining": 10 } })).await;
    let id = KeyId::from(key.id.as_str());
    // SQLite checks it at the commit.
    let table = "CREATE TABLE unmet
        (workspace TEXT REFERENCES workspaces (id) DEFERRABLE INITIALLY DEFERRED)";
    kw.execute_sql(table.into()).await;
    let trigger = format!(
        "CREATE TRIGGER breaks_commit AFTER UPDATE OF credits ON keys WHEN new.credits = {BROKEN}
        BEGIN INSERT INTO unmet VALUES ('ws_nowhere'); END"
    );
    kw.execute_sql(trigger).await;
    let broken =
        Credits { balance: BROKEN, last_lease_number: 1, refill: None, refilled_period: 0 };
    let peek = async || kw.verify_with(&key.key, json!({ "credits": { "cost": 0 } })).await;
    assert_eq!(peek().await.assert_code("VALID")["credits"], 10);

    // On a busy machine, the change may be committed before the peek joins it.
    for _ in 0..20 {
        let holder = kw.store().begin().await.unwrap();
        let change = async {
            let mut tx = kw.store().begin().await.unwrap();
            tx.update_balance(&id, &broken).await.unwrap();
            tx.commit().await
        };
        let release = async {
            // Both wait for the writer by then.
            sleep(Duration::from_millis(50)).await;
            holder.commit().await
        };

        let (changed, reply, released) = tokio::join!(biased; change, peek(), release);

        assert!(changed.is_err() && released.is_ok());
        if reply.status == StatusCode::SERVICE_UNAVAILABLE {
            assert_eq!(remaining(&kw, &key).await, 10);
            return;
        }
        assert_eq!(reply.assert_code("VALID")["credits"], 10);
    }
    panic!("they never shared a commit");
}
