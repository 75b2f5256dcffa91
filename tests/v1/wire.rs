//! How version 1 speaks, whatever the operation.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::Reply;

/// The headers that every answer has.
#[track_caller]
fn has_headers(reply: &Reply) {
    let id = reply.headers["unkey-request-id"].to_str().unwrap();
    assert!(
        id.starts_with("req_") && id.chars().skip(4).all(|c| c.is_ascii_alphanumeric()),
        "{id}"
    );
    assert_eq!(reply.headers["access-control-allow-origin"], "*");
    assert_eq!(reply.headers["unkey-version"], env!("CARGO_PKG_VERSION"));
}

on_both_stacks! {
    async fn an_answer_is_what_was_asked_for_and_nothing_around_it(kw) {
        let api = kw.v1("apis.createApi", json!({ "name": "payments" })).await;

        let fields: Vec<_> = api.v1_body().as_object().unwrap().keys().collect();
        assert_eq!(fields, ["apiId", "name"]);
        has_headers(&api);
        let latency = api.headers["unkey-latency"].to_str().unwrap();
        let number = latency.strip_prefix("service=").and_then(|rest| rest.strip_suffix("ms"));
        assert!(number.is_some_and(|n| n.parse::<f64>().is_ok_and(|ms| ms >= 0.0)), "{latency}");
    }

    async fn an_error_is_a_code_a_page_a_message_and_the_request(kw) {
        let reply = kw.v1_get("apis.getApi", "apiId=api_nowhere").await;

        reply.assert_v1_error_about(404, "NOT_FOUND", &["api_nowhere"]);
        has_headers(&reply);
        let error = reply.body["error"].as_object().unwrap();
        let fields: Vec<_> = error.keys().collect();
        assert_eq!(fields, ["code", "docs", "message", "requestId"]);
        assert_eq!(error["docs"], "http://docs.test/errors/api_not_found");
    }

    async fn the_scheme_of_the_root_key_may_be_left_out(kw) {
        for header in [kw.root_key.clone(), format!("Bearer {}", kw.root_key)] {
            let request = Request::get("/v1/permissions.listRoles").header("authorization", header);
            assert_eq!(*kw.send(request.body(Body::empty()).unwrap()).await.v1_body(), json!([]));
        }
    }

    async fn faults_are_worded_as_programs_know_them(kw) {
        let name = |fields: Value| kw.v1("apis.createApi", fields);

        assert_eq!(name(json!({})).await.assert_v1_error(400, "BAD_REQUEST"), "name: Required");
        let short = name(json!({ "name": "ab" })).await.assert_v1_error(400, "BAD_REQUEST");
        let number = name(json!({ "name": 5 })).await.assert_v1_error(400, "BAD_REQUEST");
        let null = name(json!({ "name": null })).await.assert_v1_error(400, "BAD_REQUEST");
        let list = json!({ "keyId": "key_1", "permissions": [] });
        let empty = kw.v1("keys.setPermissions", list).await.assert_v1_error(400, "BAD_REQUEST");
        let key = json!({ "apiId": "api_1", "byteLength": 15.5, "refill": { "interval": "yearly", "amount": 1 } });
        let several = kw.v1("keys.createKey", key).await.assert_v1_error(400, "BAD_REQUEST");

        assert_eq!(short, "name: String must contain at least 3 character(s)");
        assert_eq!(number, "name: Expected string, received number");
        assert_eq!(null, "name: Expected string, received null");
        assert_eq!(empty, "permissions: Array must contain at least 1 element(s)");
        assert_eq!(several, "byteLength: Expected integer, received float");
    }

    async fn a_query_is_read_as_its_fields_are_meant(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({})).await;

        // Clients write what they do not mean.
        for decrypt in ["", "&decrypt=", "&decrypt=false", "&decrypt=0"] {
            let query = format!("keyId={}{decrypt}", key.id);
            let reader = kw.create_root_key_with(vec!["api.*.read_key".into()]).await;
            kw.v1_get_as(&reader, "keys.getKey", &query).await.v1_body();
        }
        let limit = |limit: &str| format!("apiId={api}&limit={limit}");
        assert_eq!(
            kw.v1_get("apis.listKeys", &limit("many")).await.assert_v1_error(400, "BAD_REQUEST"),
            "limit: Expected number, received string",
        );
        assert_eq!(
            kw.v1_get("apis.listKeys", &limit("101")).await.assert_v1_error(400, "BAD_REQUEST"),
            "limit: Number must be less than or equal to 100",
        );
        kw.v1_get("apis.listKeys", &limit("100")).await.v1_body();
        kw.v1_get("apis.listKeys", &limit("1.0")).await.v1_body();
    }

    async fn an_answer_that_is_to_be_pretty_has_a_line_for_each_value(kw) {
        let made = kw.v1("apis.createApi", json!({ "name": "payments" })).await;
        let api = &made.v1_body()["apiId"].as_str().unwrap();
        for (flag, is_pretty) in [("", false), ("&pretty", true), ("&pretty=1", true), ("&prettier", false)] {
            let reply = kw.v1_get("apis.getApi", &format!("apiId={api}{flag}")).await;

            assert_eq!(reply.v1_body()["id"], *api);
            assert_eq!(reply.text.starts_with("{\n  \"id\": "), is_pretty, "{}", reply.text);
        }
        let refused = kw.v1_get("apis.getApi", "apiId=nobody&pretty").await;
        refused.assert_v1_error(404, "NOT_FOUND");
        assert!(refused.text.starts_with("{\n  \"error\": {\n    "), "{}", refused.text);
    }

    async fn a_content_type_is_asked_of_a_body_only(kw) {
        let get = Request::get("/v1/permissions.listRoles")
            .header("authorization", format!("Bearer {}", kw.root_key))
            .header("content-type", "application/octet-stream");
        kw.send(get.body(Body::empty()).unwrap()).await.v1_body();

        for (content_type, accepted) in [
            ("application/json; charset=utf-8", true),
            ("application/vnd.api+json", true),
            ("text/plain", false),
        ] {
            let post = Request::post("/v1/apis.createApi")
                .header("authorization", format!("Bearer {}", kw.root_key))
                .header("content-type", content_type);
            let reply = kw.send(post.body(Body::from(r#"{"name":"abc"}"#)).unwrap()).await;
            assert_eq!(reply.status == 200, accepted, "{content_type}: {}", reply.text);
        }
    }

    async fn a_path_that_is_none_is_told_in_json(kw) {
        for path in ["/v1/keys.fly", "/v1/", "/v1/apis.createApi/"] {
            let reply = kw.send(Request::get(path).body(Body::empty()).unwrap()).await;
            reply.assert_v1_error(404, "NOT_FOUND");
            has_headers(&reply);
        }
    }

    async fn a_page_of_a_browser_may_ask(kw) {
        let request = Request::options("/v1/keys.verifyKey")
            .header("origin", "https://example.com")
            .header("access-control-request-headers", "content-type,authorization");

        let reply = kw.send(request.body(Body::empty()).unwrap()).await;

        assert_eq!(reply.status, 204);
        assert_eq!(reply.headers["access-control-allow-origin"], "*");
        let methods = reply.headers["access-control-allow-methods"].to_str().unwrap();
        assert!(methods.contains("GET") && methods.contains("POST"), "{methods}");
        let headers = &reply.headers["access-control-allow-headers"];
        assert_eq!(headers, "content-type,authorization");
    }

    async fn head_is_answered_as_get_is(kw) {
        let head = Request::head("/v1/permissions.listRoles").header("authorization", format!("Bearer {}", kw.root_key));
        assert_eq!(kw.send(head.body(Body::empty()).unwrap()).await.status, 200);
    }

    async fn it_says_that_it_is_alive(kw) {
        let reply = kw.send(Request::get("/v1/liveness").body(Body::empty()).unwrap()).await;

        let services = &reply.v1_body()["services"];
        assert!(reply.body["status"].is_string());
        for name in ["metrics", "logger", "ratelimit", "usagelimit"] {
            assert!(services[name].is_string(), "{}", reply.text);
        }
    }
}
