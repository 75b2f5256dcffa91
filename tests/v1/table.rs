//! Walks every operation of version 1, as `crate::table` does of version 2.

use api::{AccessRule, HttpMethod, OperationEntry, example, v1};
use axum::body::Body;
use axum::http::Request;
use domain::permission::Action;
use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::json::{format_json, share_repeated};
use crate::support::version::query;
use crate::support::{Keyward, Reply};
use crate::table::cases::{cases, object_of};

/// Asks an operation as its clients do.
async fn ask(kw: &Keyward, row: &OperationEntry, root_key: &str, request: &Value) -> Reply {
    match row.method {
        HttpMethod::Post => kw.v1_as(root_key, row.name, request.clone()).await,
        HttpMethod::Get => kw.v1_get_as(root_key, row.name, &query(request)).await,
    }
}

/// A server with everything that the examples name, once for each operation.
async fn planted(kw: &Keyward) -> Keyward {
    let fresh = Keyward::start(kw.stack).await;
    fresh.create_examples().await;
    fresh
}

/// Those that need a root key.
fn guarded() -> Vec<OperationEntry> {
    v1::operation_table()
        .operations
        .into_iter()
        .filter(|row| row.access != AccessRule::NoRootKey)
        .collect()
}

on_both_stacks! {
    async fn the_published_example_is_accepted_and_a_change_is_audited(kw) {
        for row in v1::operation_table().operations {
            let kw = planted(&kw).await;
            let before = kw.count_audit_entries().await;

            let reply = ask(&kw, &row, &kw.root_key, &(row.example)()).await;

            assert_eq!(reply.status, row.status, "{}: {}", row.name, reply.text);
            assert_eq!(reply.headers["content-type"], "application/json", "{}", row.name);
            let written = kw.count_audit_entries().await - before;
            assert_eq!(written > 0, row.writes, "{} wrote {written} entries", row.name);
        }
    }

    async fn no_operation_answers_without_a_root_key(kw) {
        for row in guarded() {
            let request = (row.example)();
            for header in [None, Some(""), Some("Bearer"), Some("Bearer two words"), Some("nobody")] {
                let (method, path) = match row.method {
                    HttpMethod::Post => ("POST", format!("/v1/{}", row.name)),
                    HttpMethod::Get => ("GET", format!("/v1/{}?{}", row.name, query(&request))),
                };
                let builder = Request::builder().method(method).uri(path);
                let builder = builder.header("content-type", "application/json");
                let builder = match header { Some(header) => builder.header("authorization", header), None => builder };
                kw.send(builder.body(Body::from(request.to_string())).unwrap()).await.assert_v1_error(401, "UNAUTHORIZED");
            }
        }
    }

    async fn a_stranger_learns_nothing_about_the_request(kw) {
        for row in guarded() {
            ask(&kw, &row, "nobody_knows_this_key", &json!({})).await.assert_v1_error(401, "UNAUTHORIZED");
        }
    }

    async fn a_root_key_without_the_permission_is_refused(kw) {
        kw.create_examples().await;
        for row in guarded() {
            for needed in row.access.actions() {
                let others = Action::ALL.iter().filter(|action| *action != needed);
                let others: Vec<_> = others.map(|action| action.to_wildcard_tuple()).collect();
                let root_key = kw.create_root_key_with(others).await;

                let reply = ask(&kw, &row, &root_key, &(row.example)()).await;

                if matches!(row.access, AccessRule::HiddenUnlessPermitted(_)) {
                    reply.assert_v1_error(404, "NOT_FOUND");
                    continue;
                }
                let message = reply.assert_v1_error(403, "INSUFFICIENT_PERMISSIONS");
                assert!(message.contains(&needed.to_wildcard_tuple()), "{}: {message}", row.name);
            }
        }
    }

    async fn a_foreign_workspace_is_answered_as_if_there_was_nothing(kw) {
        kw.create_examples().await;
        for row in guarded() {
            // A new one each time: an operation may make what it misses.
            let stranger = kw.create_other_workspace().await;
            let example = (row.example)().to_string();
            for known in [
                example::API, example::KEY_ID, example::KEY, example::NAMESPACE_ID,
                example::ROLE_ID, example::PERMISSION_ID, example::IDENTITY_ID,
            ] {
                if !example.contains(known) {
                    continue;
                }
                let unknown = format!("{}nobody", &known[..known.len() - 6]);
                let request = |text: &str| serde_json::from_str::<Value>(text).unwrap();
                let absent = request(&example.replace(known, &unknown));

                let absent = ask(&kw, &row, &stranger, &absent).await;
                let foreign = ask(&kw, &row, &stranger, &request(&example)).await;

                let told = |reply: &Reply| {
                    let mut body = reply.body.clone();
                    body["error"]["requestId"] = Value::Null;
                    (reply.status, body.to_string().replace(&unknown, known))
                };
                assert_eq!(told(&foreign), told(&absent), "{}", row.name);
            }
        }
    }

    async fn what_is_no_json_is_refused(kw) {
        for row in v1::operation_table().operations.into_iter().filter(|row| row.method == HttpMethod::Post) {
            for body in ["", "{", "nonsense", "[1,2", "{\"a\":1}}"] {
                let request = Request::post(format!("/v1/{}", row.name))
                    .header("content-type", "application/json")
                    .header("authorization", format!("Bearer {}", kw.root_key));
                let reply = kw.send(request.body(Body::from(body)).unwrap()).await;
                let message = reply.assert_v1_error(400, "BAD_REQUEST");
                assert_eq!(message, "Malformed JSON in request body", "{}: {body}", row.name);
            }
        }
    }

    async fn a_field_that_does_not_exist_is_passed_over(kw) {
        for row in v1::operation_table().operations {
            let kw = planted(&kw).await;
            let mut request = (row.example)();
            request.pointer_mut(object_of(&row).0).unwrap()["surprise"] = json!(1);

            let reply = ask(&kw, &row, &kw.root_key, &request).await;

            assert_eq!(reply.status, row.status, "{}: {}", row.name, reply.text);
        }
    }

    async fn both_sides_of_every_bound_are_kept(kw) {
        for row in v1::operation_table().operations {
            let kw = planted(&kw).await;
            for case in cases(&row) {
                // A query holds texts only, and no empty ones in a list.
                let is_told = |end| case.location.ends_with(end);
                if row.method == HttpMethod::Get && (is_told("/type") || is_told("/items/minLength")) {
                    continue;
                }
                // A key is bounded by the body alone.
                if case.body.to_string().len() > row.body_max_bytes {
                    continue;
                }
                let reply = ask(&kw, &row, &kw.root_key, &case.body).await;
                // Of several faults the first is told: what is missing beside the field may be.
                let top = case.path.split('.').next().unwrap_or_default();
                let named = if case.refused { top.to_owned() } else { format!("{}: ", case.path) };
                let message = reply.body["error"]["message"].as_str().unwrap_or_default();
                let refused = reply.status == 400 && message.starts_with(&named);
                assert!(reply.status.as_u16() < 500, "{}: {}", row.name, reply.text);
                assert_eq!(
                    refused, case.refused, "{} {}: {:.300} -> {}",
                    row.name, case.location, case.body.to_string(), reply.text
                );
            }
        }
    }

    async fn another_method_is_told_the_right_one(kw) {
        for row in v1::operation_table().operations {
            let request = Request::delete(format!("/v1/{}", row.name));

            let reply = kw.send(request.body(Body::empty()).unwrap()).await;

            reply.assert_v1_error(405, "METHOD_NOT_ALLOWED");
            assert_eq!(reply.headers["allow"], row.method.as_str());
        }
    }
}

#[test]
fn the_openapi_document_is_the_accepted_one() {
    let document = api::v1_document("http://127.0.0.1:3000");
    insta::assert_snapshot!("openapi_v1", format_json(&share_repeated(&json!(document))));
}
