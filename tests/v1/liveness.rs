use axum::body::Body;
use axum::http::Request;
use domain::health::check_health;
use serde_json::json;

use crate::on_both_stacks;

on_both_stacks! {
    async fn anybody_is_told_how_each_service_is(kw) {
        // The counters are asked, as they are each second.
        check_health(&kw.app.context).await;

        for authorization in [None, Some("Bearer nobody_knows_this_key")] {
            let request = Request::get("/v1/liveness");
            let request = match authorization { Some(header) => request.header("authorization", header), None => request };

            let reply = kw.send(request.body(Body::empty()).unwrap()).await;

            let services = json!({ "metrics": "ok", "logger": "ok", "ratelimit": "ok", "usagelimit": "ok" });
            assert_eq!(*reply.v1_body(), json!({ "status": "ok", "services": services }));
        }
    }
}
