//! Signed assertions, as an upstream verifies them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use domain::signing_keys::{self, PUBLISHED_BEFORE_USE_MS, RETIRED_PUBLISHED_MS};
use foundation::error::{Error, Refusal};
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{Gateway, header};
use crate::on_both_stacks;
use crate::support::assertion::{VerifiedAssertion, verify_assertion};
use crate::support::{Keyward, Reply, Stack};

const JWKS: &str = "/.well-known/jwks.json";

async fn get(kw: &Keyward, path: &str) -> Reply {
    kw.send(Request::get(path).body(Body::empty()).unwrap()).await
}

fn key_ids(jwks: &Reply) -> Vec<String> {
    let keys = jwks.body["keys"].as_array().unwrap();
    keys.iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect()
}

/// Verifies an assertion for the policy `edge`.
fn verify(kw: &Keyward, token: &str, jwks: &str) -> Result<VerifiedAssertion, String> {
    let issuer = &kw.app.context.settings.public_url;
    verify_assertion(token, jwks, (issuer, "edge"), kw.clock.now())
}

fn signed() -> Value {
    json!({ "identityHeaders": { "signed": true } })
}

async fn rotate(kw: &Keyward, is_forced: bool) -> foundation::error::Result<(String, String)> {
    let rotated = signing_keys::rotate_as_operator(&kw.app.context, is_forced).await?;
    let retired = rotated.retired.unwrap().key.id;
    Ok((rotated.current.key.id.to_string(), retired.to_string()))
}

on_both_stacks! {
    async fn assertion_is_verified_by_the_published_key(kw) {
        let gateway = Gateway::create(&kw, signed()).await;
        kw.create_role("editor", ["documents.read", "documents.write"]).await;
        let key = gateway.create_key(json!({ "externalId": "user_1", "roles": ["editor"] })).await;

        let reply = gateway.ask_for("GET", "/", &key.key).await;

        let token = header(&reply, "keyward-assertion").unwrap();
        let jwks = get(&kw, JWKS).await.text;
        let claims = verify(&kw, token, &jwks).unwrap();
        let policy = kw.v2("gateways.getPolicy", json!({ "policyId": "edge" })).await;
        let now = kw.clock.now().0 / 1000;
        assert_eq!(claims, VerifiedAssertion {
            audiences: vec!["edge".to_owned(), policy.text_of("policyId")],
            subject: "user_1".to_owned(),
            scope: "documents.read documents.write".to_owned(),
            id: header(&reply, "keyward-request-id").unwrap().to_owned(),
            issued_at: now,
            not_before: now,
            expires_at: now + 60,
        });
        let issuer = kw.app.context.settings.public_url.clone();
        let for_other = verify_assertion(token, &jwks, (&issuer, "other"), kw.clock.now());
        assert!(for_other.is_err(), "{for_other:?}");
        let of_other = verify_assertion(token, &jwks, ("https://other.example", "edge"), kw.clock.now());
        assert!(of_other.is_err(), "{of_other:?}");
        let (head, signature) = token.rsplit_once('.').unwrap();
        let changed = format!("{head}.{}", signature.chars().rev().collect::<String>());
        assert!(verify(&kw, &changed, &jwks).is_err());
        kw.clock.advance_ms(59_999);
        assert!(verify(&kw, token, &jwks).is_ok());
        kw.clock.advance_ms(1);
        assert!(verify(&kw, token, &jwks).is_err());
    }

    async fn audience_is_the_id_alone_when_the_name_is_like_an_id(kw) {
        let mut gateway = Gateway::create(&kw, signed()).await;
        let key = gateway.create_key(json!({})).await.key;
        let policy = kw.v2("gateways.getPolicy", json!({ "policyId": "edge" })).await.text_of("policyId");
        kw.execute_sql("UPDATE gateway_policies SET name = 'gwp_other'".into()).await;
        gateway.target = format!("/gateway/{policy}");

        let reply = gateway.ask_for("GET", "/", &key).await;

        let token = header(&reply, "keyward-assertion").unwrap();
        let jwks = get(&kw, JWKS).await.text;
        let issuer = kw.app.context.settings.public_url.clone();
        let verify = |audience: &str| verify_assertion(token, &jwks, (&issuer, audience), kw.clock.now());
        assert_eq!(verify(&policy).unwrap().audiences, [policy.as_str()]);
        assert!(verify("gwp_other").is_err());
    }

    async fn subject_is_the_key_when_it_has_no_external_id(kw) {
        let gateway = Gateway::create(&kw, signed()).await;
        let key = gateway.create_key(json!({})).await;

        let reply = gateway.ask_for("GET", "/", &key.key).await;

        let token = header(&reply, "keyward-assertion").unwrap();
        let claims = verify(&kw, token, &get(&kw, JWKS).await.text).unwrap();
        assert_eq!((claims.subject.as_str(), claims.scope.as_str()), (key.id.as_str(), ""));
    }

    async fn assertion_is_empty_when_the_policy_does_not_sign(kw) {
        let gateway = Gateway::create(&kw, json!({})).await;
        let key = gateway.create_key(json!({})).await.key;

        let reply = gateway.ask_for("GET", "/", &key).await;
        assert_eq!(header(&reply, "keyward-assertion"), Some(""));
        let jwks = get(&kw, JWKS).await;
        assert_eq!((jwks.body, header(&reply, "cache-control")), (json!({ "keys": [] }), Some("no-store")));

        let change = json!({ "policyId": "edge", "identityHeaders": { "signed": true } });
        kw.v2("gateways.updatePolicy", change).await.data();
        let reply = gateway.ask_for("GET", "/", &key).await;
        let token = header(&reply, "keyward-assertion").unwrap();
        assert!(verify(&kw, token, &get(&kw, JWKS).await.text).is_ok());
        assert_eq!(header(&gateway.ask(&[]).await, "keyward-assertion"), None);
    }

    async fn assertion_is_omitted_when_it_is_too_long(kw) {
        let gateway = Gateway::create(&kw, signed()).await;
        let with_scope = async |chars: usize| {
            let name = format!("p{chars}");
            let mut permissions = Vec::new();
            for at in 0..chars / 100 {
                let permission = format!("{name}.{at}.{}", "a".repeat(100 - name.len() - 4));
                kw.create_permission(&permission).await;
                permissions.push(permission);
            }
            let key = gateway.create_key(json!({ "permissions": permissions })).await.key;
            gateway.ask_for("GET", "/", &key).await
        };

        let fitting = with_scope(2500).await;
        let token = header(&fitting, "keyward-assertion").unwrap();
        assert!(verify(&kw, token, &get(&kw, JWKS).await.text).is_ok());
        assert_eq!(header(&fitting, "keyward-omitted"), Some(""));
        let too_long = with_scope(3000).await;
        assert_eq!(too_long.status, 200);
        assert_eq!(header(&too_long, "keyward-assertion"), Some(""));
        assert_eq!(header(&too_long, "keyward-omitted"), Some("keyward-assertion"));
    }

    async fn key_set_has_the_public_keys_alone(kw) {
        Gateway::create(&kw, signed()).await;

        let jwks = get(&kw, JWKS).await;

        for (name, value) in [
            ("content-type", "application/jwk-set+json"),
            ("cache-control", "public, max-age=300"),
            ("access-control-allow-origin", "*"),
        ] {
            assert_eq!(header(&jwks, name), Some(value), "{name}");
        }
        let keys = jwks.body["keys"].as_array().unwrap();
        assert_eq!(keys.len(), 2, "the current one and the next");
        for key in keys {
            let fields: Vec<_> = key.as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(fields, ["alg", "crv", "kid", "kty", "use", "x"]);
        }
        assert_eq!(kw.send(Request::post(JWKS).body(Body::empty()).unwrap()).await.status, 405);
    }

    async fn next_key_signs_when_verifiers_must_know_it(kw) {
        let gateway = Gateway::create(&kw, signed()).await;
        let key = gateway.create_key(json!({})).await.key;
        // The first two keys are published together, so the first rotation need not wait.
        let first = get(&kw, JWKS).await;
        let (current, _) = rotate(&kw, false).await.unwrap();
        assert!(key_ids(&first).contains(&current));
        let before = get(&kw, JWKS).await;
        kw.clock.advance_ms(PUBLISHED_BEFORE_USE_MS - 1);
        let Err(Error::PreconditionFailed(refusal)) = rotate(&kw, false).await else {
            panic!("the next key was used too early");
        };
        assert_eq!(refusal, Refusal::SigningKeyTooNew(1));
        let of_old = gateway.ask_for("GET", "/", &key).await;
        kw.clock.advance_ms(1);

        let (current, retired) = rotate(&kw, false).await.unwrap();

        let of_new = gateway.ask_for("GET", "/", &key).await;
        let after = get(&kw, JWKS).await;
        for reply in [&of_old, &of_new] {
            let token = header(reply, "keyward-assertion").unwrap();
            for jwks in [&before, &after] {
                verify(&kw, token, &jwks.text).unwrap();
            }
        }
        assert!(key_ids(&before).contains(&current));
        assert_eq!(key_ids(&after).len(), 4);
        // Without waiting, only if forced.
        assert!(rotate(&kw, false).await.is_err());
        assert_eq!(rotate(&kw, true).await.unwrap().1, current);
        assert_eq!(key_ids(&get(&kw, JWKS).await).len(), 5);
        kw.clock.advance_ms(RETIRED_PUBLISHED_MS - 1);
        assert!(key_ids(&get(&kw, JWKS).await).contains(&retired));
        kw.clock.advance_ms(1);
        assert_eq!(key_ids(&get(&kw, JWKS).await).len(), 2);
        assert_eq!(signing_keys::list(&kw.app.context).await.unwrap().len(), 2);
        kw.clock.advance_ms(1);
        rotate(&kw, false).await.unwrap();
        assert_eq!(kw.app.context.store.read().await.unwrap().list_signing_keys().await.unwrap().len(), 3);
        let event = kw.app.context.store.read().await.unwrap().list_audit_entries(
            &domain::root_keys::default_workspace(),
            &domain::audit::AuditFilter {
                event: Some("signingKey.rotate".to_owned()), rows_max: 10, ..Default::default()
            },
        ).await.unwrap();
        assert_eq!(event.len(), 4);
    }
}

#[tokio::test]
async fn signing_policy_is_refused_when_the_server_has_no_master_key() {
    for stack in [Stack::Embedded, Stack::Replica] {
        let kw = Keyward::start_with(stack, |settings| settings.master_keys = None).await;
        let api = kw.create_api().await;
        let mut request = json!({ "name": "edge", "apiIds": [api] });
        kw.v2("gateways.createPolicy", request.clone()).await.data();
        request["name"] = json!("signing");
        request["identityHeaders"] = json!({ "signed": true });

        let refused = kw.v2("gateways.createPolicy", request).await;

        assert_eq!(refused.status, 412, "{}", refused.text);
        let detail = refused.body["error"]["detail"].as_str().unwrap();
        assert!(detail.contains("identityHeaders.signed"), "{detail}");
        assert!(detail.contains("KEYWARD_MASTER_KEY"), "{detail}");
    }
}

#[tokio::test]
async fn keys_are_created_once_when_replicas_need_them_at_once() {
    let kw = Keyward::start(Stack::Replica).await;
    let replicas = [kw.replica().await, kw.replica().await];
    let api = kw.create_api().await;
    let create = |at: usize| {
        let mut policy = signed();
        policy["name"] = json!(format!("policy-{at}"));
        policy["apiIds"] = json!([api]);
        replicas[at % 2].v2_as(&kw.root_key, "gateways.createPolicy", policy)
    };

    for created in join_all((0..8).map(create)).await {
        created.data();
    }

    let published = key_ids(&get(&kw, JWKS).await);
    assert_eq!(published.len(), 2, "{published:?}");
    for replica in &replicas {
        assert_eq!(key_ids(&get(replica, JWKS).await), published);
    }
}

/// A verifier that never fetches the key set again accepts every assertion until the next but one rotation.
#[tokio::test]
async fn every_assertion_is_valid_when_keys_are_rotated_under_load() {
    let kw = Keyward::start(Stack::Replica).await;
    let other = kw.replica().await;
    let gateway = Gateway::create(&kw, signed()).await;
    let key = gateway.create_key(json!({})).await.key;
    let fetched_before = get(&other, JWKS).await.text;
    kw.clock.advance_ms(PUBLISHED_BEFORE_USE_MS);
    let (is_done, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    let ask = async |replica: &Keyward| {
        let gateway = gateway.on(replica);
        let mut signers = Vec::new();
        while !is_done.load(Ordering::Relaxed) {
            let reply = gateway.ask_for("GET", "/", &key).await;
            let token = header(&reply, "keyward-assertion").unwrap();
            verify(replica, token, &fetched_before).unwrap();
            signers.push(key_id(token));
            asked.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
        signers.dedup();
        signers
    };
    let rotate = async || {
        wait_for(&asked, 100).await;
        let rotated = rotate(&other, false).await.unwrap();
        // The replica that rotates signs with the new key at once, the other one within a second.
        let reply = gateway.on(&other).ask_for("GET", "/", &key).await;
        assert_eq!(key_id(header(&reply, "keyward-assertion").unwrap()), rotated.0);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let reply = gateway.ask_for("GET", "/", &key).await;
        assert_eq!(key_id(header(&reply, "keyward-assertion").unwrap()), rotated.0);
        wait_for(&asked, asked.load(Ordering::Relaxed) + 100).await;
        is_done.store(true, Ordering::Relaxed);
        rotated
    };

    let (rotated, one, two) = tokio::join!(rotate(), ask(&kw), ask(&other));

    let expected = [rotated.1, rotated.0];
    assert_eq!((one, two), (expected.to_vec(), expected.to_vec()));
}

async fn wait_for(count: &AtomicUsize, min: usize) {
    while count.load(Ordering::Relaxed) < min {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns the key that a token names.
fn key_id(token: &str) -> String {
    use base64::Engine as _;
    let header = token.split('.').next().unwrap();
    let header = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(header).unwrap();
    let header: Value = serde_json::from_slice(&header).unwrap();
    assert_eq!((&header["alg"], &header["typ"]), (&json!("EdDSA"), &json!("JWT")));
    header["kid"].as_str().unwrap().to_owned()
}
