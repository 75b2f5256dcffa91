//! What is around an operation: its path, its media type, its content encoding.

use axum::body::Body;
use axum::http::Request;
use serde_json::json;

use crate::on_both_stacks;
use crate::support::post;

on_both_stacks! {
    async fn a_path_that_is_none_is_told_in_json(kw) {
        for path in ["/v2/keys.fly", "/v2/keys.createkey", "/v2/keys.createKey/", "/v2/", "/", "/v3/x"] {
            let request = Request::post(path)
                .header("authorization", format!("Bearer {}", kw.root_key))
                .header("content-type", "application/json")
                .body(Body::from("{}"))
                .unwrap();

            let reply = kw.send(request).await;

            assert_eq!(reply.assert_error(404, "not_found")["title"], "Not Found", "{path}");
            assert_eq!(reply.headers["content-type"], "application/json");
        }
    }

    async fn answers_are_json_whether_good_or_bad(kw) {
        let good = kw.v2("apis.createApi", json!({ "name": "payments" })).await;
        let bad = kw.v2("apis.createApi", json!({ "name": "" })).await;

        assert_eq!((good.status.as_u16(), bad.status.as_u16()), (200, 400));
        for reply in [good, bad] {
            assert_eq!(reply.headers["content-type"], "application/json");
        }
    }

    async fn a_media_type_may_have_parameters_and_any_letter_case(kw) {
        for media_type in ["application/json; charset=utf-8", "Application/JSON;x=y"] {
            let request = post("apis.createApi");
            let (mut head, ()) = request.body(()).unwrap().into_parts();
            head.headers.insert("content-type", media_type.parse().unwrap());
            let bearer = format!("Bearer {}", kw.root_key);
            head.headers.insert("authorization", bearer.parse().unwrap());
            let body = Body::from(json!({ "name": "payments" }).to_string());

            kw.send(Request::from_parts(head, body)).await.data();
        }
    }

    async fn body_is_rejected_when_it_is_compressed(kw) {
        let send = async |encodings: &[&str]| {
            let (mut head, ()) = post("apis.createApi").body(()).unwrap().into_parts();
            let bearer = format!("Bearer {}", kw.root_key);
            head.headers.insert("authorization", bearer.parse().unwrap());
            head.headers.insert("content-type", "application/json".parse().unwrap());
            for encoding in encodings {
                head.headers.append("content-encoding", encoding.parse().unwrap());
            }
            let body = Body::from(json!({ "name": "payments" }).to_string());
            kw.send(Request::from_parts(head, body)).await
        };

        for encodings in [&["identity"][..], &["Identity, identity"], &[""]] {
            send(encodings).await.data();
        }
        for encodings in [&["gzip"][..], &["identity, br"], &["identity", "zstd"], &["gzi"]] {
            let rejected = send(encodings).await;
            let error = rejected.assert_error(400, "invalid_input");
            let fault = &error["errors"][0];
            assert_eq!(fault["location"], "requestBody", "{fault}");
            assert!(fault["message"].as_str().unwrap().contains("Content-Encoding"), "{fault}");
            assert!(fault["fix"].as_str().unwrap().contains("without compression"), "{fault}");
        }
    }
}
