//! Tests requests after Postgres has closed its connections, as it does when it restarts or fails over.

use axum::body::Body;
use axum::http::Request;
use futures_util::future::join_all;
use serde_json::json;

use crate::support::{Keyward, Stack};

/// Opens every connection for requests, and lets Postgres close all of them but one.
async fn lose_idle_connections(kw: &Keyward) {
    let connections_max = kw.app.context.settings.database_connections_max;
    drop(join_all((0..connections_max).map(|_| kw.store().read())).await);
    // A process ends a moment after its signal.
    let sql = "SELECT pg_terminate_backend(pid), pg_sleep(0.02) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    kw.execute_sql(sql.into()).await;
}

#[tokio::test]
async fn lost_idle_connections_fail_no_request() {
    let kw = Keyward::start(Stack::Replica).await;
    let api = kw.create_api().await;
    let policy = json!({ "name": "edge", "apiIds": [api] });
    let secret = kw.v2("gateways.createPolicy", policy).await.text_of("secret");
    let key = kw.create_key_in(&api, json!({})).await;
    // So few credits that a lease holds what one verification needs.
    let metered = kw.create_key_in(&api, json!({ "credits": { "remaining": 5 } })).await;
    kw.verify(&metered.key).await.assert_code("VALID");

    lose_idle_connections(&kw).await;
    kw.verify(&metered.key).await.assert_code("VALID");
    lose_idle_connections(&kw).await;
    let limit = json!({ "namespace": "new", "identifier": "user", "limit": 1, "duration": 60_000 });
    kw.v2("ratelimit.limit", limit).await.data();
    lose_idle_connections(&kw).await;
    kw.create_api().await;
    lose_idle_connections(&kw).await;
    let request = Request::get("/gateway/edge")
        .header("keyward-gateway-secret", secret)
        .header("authorization", format!("Bearer {}", key.key));
    let reply = kw.send(request.body(Body::empty()).unwrap()).await;

    assert_eq!(reply.status, 200, "{reply}");
}
