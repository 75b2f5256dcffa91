//! Tests every operation of the table. A new operation needs no line here: its fields, permissions and bounds are read
//! from its row.

use api::{AccessRule, OperationEntry, example, v1, v2};
use axum::body::Body;
use domain::permission::Action;
use serde_json::{Value, json};

pub mod cases;

use crate::on_both_stacks;
use crate::support::json::{format_json, share_repeated};
use crate::support::{Keyward, Reply, post};
use cases::{cases, object_of};

/// Operations that ignore unknown fields.
const OPEN: [&str; 4] = [
    "analytics.getRatelimits",
    "analytics.getVerifications",
    "identities.createIdentity",
    "keys.rerollKey",
];

/// Sends a body unchanged.
async fn send(kw: &Keyward, row: &OperationEntry, root_key: &str, body: impl Into<Body>) -> Reply {
    let request = post(row.name)
        .header("authorization", format!("Bearer {root_key}"))
        .body(body.into())
        .unwrap();
    kw.send(request).await
}

/// Starts a server with everything that the examples refer to, once per operation: one operation may delete what the
/// next one needs.
async fn with_examples(kw: &Keyward) -> Keyward {
    let fresh = Keyward::start(kw.stack).await;
    fresh.create_examples().await;
    fresh
}

on_both_stacks! {
    async fn operation_accepts_published_example_and_audits_changes(kw) {
        for row in v2::operation_table().operations {
            let kw = with_examples(&kw).await;
            let before = kw.count_audit_entries().await;

            let reply = kw.v2(row.name, (row.example)()).await;

            assert_eq!(reply.status, 200, "{}: {}", row.name, reply.text);
            let written = kw.count_audit_entries().await - before;
            assert_eq!(written > 0, row.writes, "{} wrote {written} entries", row.name);
        }
    }

    async fn operation_returns_401_when_root_key_is_missing(kw) {
        for row in v2::operation_table().operations {
            let body = (row.example)().to_string();
            for (header, name) in [
                (None, "authentication_missing"),
                (Some("Basic abc"), "authentication_malformed"),
                (Some("Bearer"), "authentication_malformed"),
                (Some("Bearer "), "authentication_malformed"),
                (Some("Bearer two words"), "authentication_malformed"),
                (Some("bearer nobody_knows_this_key"), "authentication_malformed"),
                (Some("Bearer nobody_knows_this_key"), "root_key_not_found"),
            ] {
                let request = post(row.name);
                let request = match header {
                    Some(header) => request.header("authorization", header),
                    None => request,
                };
                let reply = kw.send(request.body(Body::from(body.clone())).unwrap()).await;
                assert_eq!(reply.assert_error(401, name)["title"], "Unauthorized", "{}", row.name);
            }
        }
    }

    async fn operation_returns_401_before_body_is_validated(kw) {
        for row in v2::operation_table().operations {
            let reply = send(&kw, &row, "nobody_knows_this_key", "{").await;
            reply.assert_error(401, "root_key_not_found");
        }
    }

    async fn operation_returns_401_when_key_is_not_a_root_key(kw) {
        let key = kw.create_key(json!({})).await;

        let reply = kw.v2_as(&key.key, "apis.createApi", json!({ "name": "mine now" })).await;

        reply.assert_error(401, "root_key_not_found");
    }

    async fn operation_returns_403_when_permission_is_missing(kw) {
        kw.create_examples().await;
        for row in v2::operation_table().operations {
            for needed in row.access.actions() {
                let others = Action::ALL.iter().filter(|action| *action != needed);
                let others: Vec<_> = others.map(|action| action.to_wildcard_tuple()).collect();
                let root_key = kw.create_root_key_with(others).await;

                let reply = kw.v2_as(&root_key, row.name, (row.example)()).await;

                match row.access {
                    AccessRule::NoRootKey => unreachable!("it needs something"),
                    AccessRule::Permission(_) => {
                        let error = reply.assert_error(403, "insufficient_permissions");
                        let detail = error["detail"].as_str().unwrap();
                        assert!(detail.contains(&needed.to_wildcard_tuple()), "{}: {detail}", row.name);
                    }
                    AccessRule::HiddenUnlessPermitted(_) => assert_absent(&row, &reply),
                }
            }
        }
    }

    async fn operation_returns_404_when_object_is_in_another_workspace(kw) {
        kw.create_examples().await;
        for row in v2::operation_table().operations {
            // A new workspace each time: an operation may create what is missing.
            let other_root_key = kw.create_other_workspace().await;
            let example = (row.example)().to_string();
            for known in [
                example::API,
                example::KEY_ID,
                example::KEY,
                example::NAMESPACE_ID,
                example::ROLE_ID,
            ] {
                if !example.contains(known) {
                    continue;
                }
                let unknown = format!("{}nobody", &known[..known.len() - 6]);

                let absent = send(&kw, &row, &other_root_key, example.replace(known, &unknown)).await;
                let foreign = send(&kw, &row, &other_root_key, example.clone()).await;

                let comparable = |reply: &Reply| {
                    let mut body = reply.body.clone();
                    body["meta"] = Value::Null;
                    (reply.status, body.to_string().replace(&unknown, known))
                };
                assert_eq!(comparable(&foreign), comparable(&absent), "{}", row.name);
            }
        }
    }

    async fn operation_returns_400_when_body_is_not_json(kw) {
        for row in v2::operation_table().operations {
            for body in ["", "{", "nonsense", "[1,2", "\u{feff}{}", "{\"a\":\"\\ud800\"}"] {
                let reply = send(&kw, &row, &kw.root_key, body).await;
                reply.assert_field_error("requestBody");
            }
            let bytes = vec![b'{', b'"', 0xff, 0xfe, b'"', b':', b'1', b'}'];
            send(&kw, &row, &kw.root_key, bytes).await.assert_field_error("requestBody");
        }
    }

    async fn operation_returns_400_when_body_is_not_a_request(kw) {
        for row in v2::operation_table().operations {
            let others = match object_of(&row).0 {
                "" => ["[]", "[{}]"],
                _ => ["{}", "{\"0\":{}}"],
            };
            for body in ["1", "null", "true", "\"text\""].into_iter().chain(others) {
                send(&kw, &row, &kw.root_key, body).await.assert_field_error("/type");
            }
        }
    }

    async fn operation_returns_400_when_media_type_is_wrong(kw) {
        for row in v2::operation_table().operations {
            let request = axum::http::Request::post(format!("/v2/{}", row.name))
                .header("authorization", format!("Bearer {}", kw.root_key))
                .header("content-type", "text/plain")
                .body(Body::from((row.example)().to_string()))
                .unwrap();

            let message = kw.send(request).await.assert_field_error("requestBody");

            assert!(message.contains("Content-Type"), "{message}");
        }
    }

    async fn operation_returns_413_when_body_is_too_large(kw) {
        for row in v2::operation_table().operations {
            let spaces = |bytes: usize| " ".repeat(bytes);
            let name = "request_body_too_large";

            let over = send(&kw, &row, &kw.root_key, spaces(row.body_max_bytes + 1)).await;
            let at = send(&kw, &row, &kw.root_key, spaces(row.body_max_bytes)).await;

            let detail = over.assert_error(413, name)["detail"].as_str().unwrap().to_owned();
            assert!(detail.contains(&row.body_max_bytes.to_string()), "{detail}");
            at.assert_field_error("requestBody");
        }
    }

    async fn operation_returns_400_when_body_is_nested_too_deeply(kw) {
        for row in v2::operation_table().operations {
            for levels in [65, 10_000] {
                let deep = format!("{{\"x\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
                let message = send(&kw, &row, &kw.root_key, deep).await.assert_field_error("requestBody");
                assert!(message.contains("64"), "{message}");
            }
        }
    }

    async fn operation_returns_400_when_field_is_unknown(kw) {
        kw.create_examples().await;
        for row in v2::operation_table().operations {
            let (pointer, location) = object_of(&row);
            let mut body = (row.example)();
            body.pointer_mut(pointer).unwrap()["surprise"] = json!(1);

            let reply = kw.v2(row.name, body).await;

            if OPEN.contains(&row.name) {
                assert_eq!(reply.status, 200, "{}: {}", row.name, reply.text);
                continue;
            }
            let message = reply.assert_field_error(&format!("{location}/additionalProperties"));
            assert!(message.contains("surprise"), "{message}");
        }
    }

    async fn operation_enforces_both_sides_of_every_bound(kw) {
        for row in v2::operation_table().operations {
            let kw = with_examples(&kw).await;
            for case in cases(&row) {
                let reply = kw.v2(row.name, case.body.clone()).await;
                let faults = reply.body["error"]["errors"].clone();
                let refused = faults
                    .as_array()
                    .is_some_and(|faults| faults.iter().any(|f| f["location"] == *case.location));
                assert!(reply.status.as_u16() < 500, "{}: {}", row.name, reply.text);
                assert_eq!(
                    refused, case.refused,
                    "{} {}: {} -> {}", row.name, case.location,
                    short(&case.body.to_string()), reply.text
                );
                if case.refused {
                    assert_eq!(reply.status, 400, "{}", reply.text);
                    let message = reply.assert_field_error(&case.location);
                    assert!(message.contains(&case.field), "{}: {message}", case.location);
                }
            }
        }
    }

    async fn operation_returns_405_when_method_is_wrong(kw) {
        for row in v2::operation_table().operations {
            let request = axum::http::Request::get(format!("/v2/{}", row.name));

            let reply = kw.send(request.body(Body::empty()).unwrap()).await;

            reply.assert_error(405, "method_not_allowed");
            assert_eq!(reply.headers["allow"], "POST");
        }
    }
}

/// Fails unless the reply is that for an object that never existed.
fn assert_absent(row: &OperationEntry, reply: &Reply) {
    if row.name == "keys.verifyKey" {
        assert_eq!(*reply.data(), json!({ "valid": false, "code": "NOT_FOUND" }));
    } else {
        assert_eq!(reply.status, 404, "{}: {}", row.name, reply.text);
    }
}

fn short(text: &str) -> String {
    text.chars().take(300).collect()
}

#[test]
fn every_operation_has_a_test() {
    let of_v1 = v1::operation_table().operations;
    for (version, rows) in [("v1", of_v1), ("v2", v2::operation_table().operations)] {
        let tests =
            [version, "rules"].map(|directory| read_tests(&format!("tests/{directory}"))).concat();
        for row in rows {
            assert!(
                tests.contains(&format!("{}\"", row.name)),
                "no test of {version} calls {}",
                row.name
            );
        }
    }
}

/// Returns the text of all tests below a directory.
fn read_tests(directory: &str) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        text += &match path.extension() {
            None => read_tests(path.to_str().unwrap()),
            Some(extension) if extension == "rs" => std::fs::read_to_string(&path).unwrap(),
            Some(_) => String::new(),
        };
    }
    text
}

#[test]
fn openapi_document_matches_snapshot() {
    let document = api::v2_document("http://127.0.0.1:3000");
    insta::assert_snapshot!("openapi_v2", format_json(&share_repeated(&json!(document))));
}

#[test]
fn error_codes_match_snapshot() {
    let lines: Vec<_> = foundation::error::Code::ALL
        .iter()
        .map(|code| format!("{} {} {}", code.status(), code.name(), code.title()))
        .collect();
    insta::assert_snapshot!("errors", lines.join("\n"));
}

#[test]
fn every_error_code_is_documented() {
    for code in foundation::error::Code::ALL {
        let section = ::dashboard::error_section(*code);
        assert!(section.is_some_and(|text| text.len() > 40), "{}", code.name());
    }
}
