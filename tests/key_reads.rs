//! Tests reads of keys that are not cached, which share statements.

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt as _};
use serde_json::json;

use crate::on_both_stacks;
use crate::support::json::Fields as _;
use crate::support::{Keyward, Stack};

on_both_stacks! {
    async fn each_caller_gets_the_key_that_it_asks_for(kw) {
        let api = kw.create_api().await;
        let create = |number: usize| {
            let fields = json!({ "name": format!("key {number}") });
            kw.create_key_in(&api, fields)
        };
        // Not all at once: on a busy machine, some would wait too long for a connection.
        let keys: Vec<_> = stream::iter(0..300).map(create).buffered(8).collect().await;
        let unknown = |number: usize| format!("{}{number}", keys[number].key);

        // Every third is unknown, and every key is asked for twice.
        let asked = (0..600).map(|number| number % 300);
        let replies = join_all(asked.map(async |number| match number % 3 {
            0 => (number, kw.verify(&unknown(number)).await),
            _ => (number, kw.verify(&keys[number].key).await),
        }));

        for (number, reply) in replies.await {
            if number % 3 == 0 {
                reply.assert_code("NOT_FOUND");
            } else {
                let name = format!("key {number}");
                reply.assert_code("VALID").assert_has(json!({ "keyId": keys[number].id, "name": name }));
            }
        }
    }
}

#[tokio::test]
async fn lost_idle_connections_fail_no_verification() {
    let kw = Keyward::start(Stack::Replica).await;
    let api = kw.create_api().await;
    let keys = join_all((0..8).map(|_| kw.create_key_in(&api, json!({})))).await;

    let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    kw.execute_sql(sql.into()).await;

    for reply in join_all(keys.iter().map(|key| kw.verify(&key.key))).await {
        reply.assert_code("VALID");
    }
}
