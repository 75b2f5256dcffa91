use domain::audit::{self, AuditFilter, StoredEntry};
use domain::root_keys::default_workspace;
use domain::{undo, workspaces};
use foundation::id::AuditId;
use foundation::secret::KeyHash;
use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::json::Fields as _;
use crate::support::{Keyward, NOON, Reply};

fn hash(key: &str) -> Value {
    json!({ "value": KeyHash::compute(key).to_base64(), "variant": "sha256_base64" })
}

/// A key of this API with these fields.
fn item(api: &str, mut fields: Value) -> Value {
    fields["apiId"] = json!(api);
    fields
}

async fn import(kw: &Keyward, keys: Value) -> Reply {
    kw.v1("migrations.createKeys", keys).await
}

/// Takes in one key; its id.
async fn taken(kw: &Keyward, api: &str, fields: Value) -> String {
    let reply = import(kw, json!([item(api, fields)])).await;
    reply.v1_body()["keyIds"][0].as_str().unwrap().to_owned()
}

/// The latest entry about a key that was created.
async fn last_entry(kw: &Keyward) -> StoredEntry {
    let filter =
        AuditFilter { event: Some("key.create".to_owned()), rows_max: 1, ..AuditFilter::default() };
    audit::list(&kw.app.context, &default_workspace(), &filter).await.unwrap().remove(0)
}

/// Fails unless nothing of this is taken in, for this reason; the message.
async fn refused(kw: &Keyward, api: &str, fields: Value, status: u16, code: &str) -> String {
    let before = kw.count_rows("keys").await;
    let good = item(api, json!({ "hash": hash("a good one") }));
    let message = import(kw, json!([good, item(api, fields)])).await.assert_v1_error(status, code);
    assert_eq!(kw.count_rows("keys").await, before, "{message}");
    message
}

on_both_stacks! {
    async fn a_key_verifies_with_all_that_came_with_it(kw) {
        kw.create_role("editor", ["docs.edit"]).await;
        kw.create_permission("docs.read").await;
        kw.verify_v1("old_key", json!({})).await.assert_v1_code("NOT_FOUND");
        let fields = json!({
            "hash": hash("old_key"), "start": "old_k", "prefix": "old", "name": "the old one", "externalId": "user_1",
            "meta": { "a": 1 }, "roles": ["editor"], "permissions": ["docs.read"], "expires": NOON.0 + 1000, "enabled": true,
            "remaining": 3, "refill": { "interval": "monthly", "amount": 9, "refillDay": 31.0 }, "environment": "test",
        });
        let api = kw.create_api().await;

        let id = taken(&kw, &api, fields).await;

        let verified = kw.verify_v1("old_key", json!({ "apiId": api })).await;
        let told = verified.assert_v1_code("VALID");
        told.assert_has(json!({
            "keyId": id, "name": "the old one", "remaining": 2, "environment": "test", "ownerId": "user_1",
            "meta": { "a": 1 }, "permissions": ["docs.edit", "docs.read"], "roles": ["editor"], "expires": NOON.0 + 1000,
        }));
        let known = kw.get_key_v1(&id).await;
        known.assert_has(json!({ "start": "old_k", "identity.externalId": "user_1" }));
        let refill = &known["refill"];
        assert_eq!((&refill["interval"], &refill["refillDay"]), (&json!("monthly"), &json!(31)));
    }

    async fn what_is_left_out_is_as_in_a_new_key(kw) {
        let api = kw.create_api().await;

        let id = taken(&kw, &api, json!({ "hash": hash("old_key") })).await;

        let told = kw.get_key_v1(&id).await;
        let fields: Vec<_> = told.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(fields, ["apiId", "createdAt", "enabled", "id", "permissions", "roles", "start", "workspaceId"]);
        assert_eq!((&told["start"], &told["enabled"]), (&json!(""), &json!(true)));
    }

    async fn ids_are_in_the_order_of_the_request_and_there_may_be_none(kw) {
        let (one, other) = (kw.create_api().await, kw.create_api().await);
        let names = ["c", "a", "d", "b"];
        let key = |(n, name): (usize, &&str)| {
            let api = if n % 2 == 0 { &one } else { &other };
            item(api, json!({ "hash": hash(name), "name": name }))
        };

        let reply = import(&kw, names.iter().enumerate().map(key).collect()).await;
        assert_eq!(*import(&kw, json!([])).await.v1_body(), json!({ "keyIds": [] }));

        let ids = reply.v1_body()["keyIds"].as_array().unwrap();
        assert_eq!(ids.len(), 4);
        for (n, id) in ids.iter().enumerate() {
            let told = kw.get_key_v1(id.as_str().unwrap()).await;
            told.assert_has(json!({ "name": names[n], "apiId": if n % 2 == 0 { &*one } else { &*other } }));
        }
    }

    async fn a_key_that_is_brought_itself_precedes_a_hash_and_is_kept_where_keys_are_kept(kw) {
        let (plain, keeping) = (kw.create_api().await, kw.create_api().await);
        kw.update_api(&keeping, |settings| settings.allows_recoverable_keys = true).await;

        let unkept = taken(&kw, &plain, json!({ "plaintext": "old_key_1", "hash": hash("another") })).await;
        let kept = taken(&kw, &keeping, json!({ "plaintext": "old_key_2", "start": "" })).await;

        kw.verify_v1("old_key_1", json!({})).await.assert_v1_code("VALID");
        kw.verify_v1("old_key_2", json!({})).await.assert_v1_code("VALID");
        kw.verify_v1("another", json!({})).await.assert_v1_code("NOT_FOUND");
        let told = async |id: &str| {
            let query = format!("keyId={id}&decrypt=true");
            kw.v1_get("keys.getKey", &query).await.v1_body().clone()
        };
        let (unkept, kept) = (told(&unkept).await, told(&kept).await);
        assert_eq!((&unkept["start"], unkept.get("plaintext")), (&json!("old_"), None));
        assert_eq!((&kept["start"], &kept["plaintext"]), (&json!(""), &json!("old_key_2")));
    }

    async fn a_limit_is_checked_by_every_verification(kw) {
        let api = kw.create_api().await;
        for (key, limit) in [
            ("first", json!({ "limit": 1, "refillRate": 9, "refillInterval": 60_000 })),
            ("second", json!({ "limit": 1, "duration": 60_000, "type": "fast", "async": true })),
        ] {
            taken(&kw, &api, json!({ "hash": hash(key), "ratelimit": limit })).await;

            let told = kw.verify_v1(key, json!({})).await;
            let standing = json!({ "limit": 1, "remaining": 0, "reset": NOON.0 + 60_000 });
            assert_eq!(told.assert_v1_code("VALID")["ratelimit"], standing);
            kw.verify_v1(key, json!({})).await.assert_v1_code("RATE_LIMITED");
        }
        let fields = json!({ "hash": hash("third"), "ratelimit": { "limit": 1 } });
        assert_eq!(refused(&kw, &api, fields, 400, "BAD_REQUEST").await, "1.ratelimit.duration: Required");
    }

    async fn an_owner_is_a_name_and_an_external_id_an_identity_that_keys_share(kw) {
        let api = kw.create_api().await;
        let keys = ["a", "b"].map(|key| { item(&api, json!({ "hash": hash(key), "externalId": "user_1" })) });
        import(&kw, json!(keys)).await.v1_body();
        taken(&kw, &api, json!({ "hash": hash("c"), "ownerId": "user_2" })).await;

        let identity = async |key: &str| {
            let verified = kw.verify_v1(key, json!({})).await;
            verified.assert_v1_code("VALID").get("identity").cloned()
        };

        assert!(identity("a").await.is_some());
        assert_eq!(identity("a").await, identity("b").await);
        assert_eq!(identity("c").await, None);
        assert_eq!(kw.verify_v1("c", json!({})).await.v1_body()["ownerId"], "user_2");
        assert_eq!(kw.count_rows("identities").await, 1);
    }

    async fn the_uses_of_a_key_come_back_at_midnight(kw) {
        let api = kw.create_api().await;
        let daily = json!({ "interval": "daily", "amount": 5 });
        taken(&kw, &api, json!({ "hash": hash("old_key"), "remaining": 1, "refill": daily })).await;
        kw.verify_v1("old_key", json!({})).await.assert_v1_code("VALID");
        kw.verify_v1("old_key", json!({})).await.assert_v1_code("USAGE_EXCEEDED");

        kw.clock.advance_ms(12 * 3_600_000);

        assert_eq!(kw.verify_v1("old_key", json!({})).await.assert_v1_code("VALID")["remaining"], 4);
    }

    async fn disabled_and_expired_keys_are_taken_in_as_such(kw) {
        let api = kw.create_api().await;
        taken(&kw, &api, json!({ "hash": hash("a"), "enabled": false })).await;
        taken(&kw, &api, json!({ "hash": hash("b"), "expires": 1 })).await;
        taken(&kw, &api, json!({ "hash": hash("c"), "expires": 0 })).await;

        kw.verify_v1("a", json!({})).await.assert_v1_code("DISABLED");
        kw.verify_v1("b", json!({})).await.assert_v1_code("EXPIRED");
        assert_eq!(kw.verify_v1("c", json!({})).await.assert_v1_code("VALID").get("expires"), None);
    }

    async fn one_fault_takes_in_nothing(kw) {
        let api = kw.create_api().await;
        let known = kw.create_key(json!({})).await;
        let daily = json!({ "interval": "daily", "amount": 5, "refillDay": 3 });
        let refill = json!({ "interval": "daily", "amount": 5 });
        for (fields, status, code, named) in [
            (json!({}), 400, "BAD_REQUEST", "1.hash: "),
            (json!({ "hash": { "value": "bm8=", "variant": "sha256_base64" } }), 400, "BAD_REQUEST", "1.hash: "),
            (json!({ "hash": hash("b"), "refill": refill }), 400, "BAD_REQUEST", "1.refill: "),
            (json!({ "hash": hash("b"), "remaining": 1, "refill": daily }), 400, "BAD_REQUEST", "1.refill: "),
            (json!({ "hash": hash(&known.key) }), 409, "CONFLICT", ""),
            (json!({ "hash": hash("a good one") }), 409, "CONFLICT", ""),
        ] {
            let message = refused(&kw, &api, fields, status, code).await;
            assert!(message.starts_with(named), "{message}");
        }
        let message = refused(&kw, "api_nowhere", json!({ "hash": hash("b") }), 404, "NOT_FOUND").await;
        assert!(message.contains("api_nowhere"), "{message}");
    }

    async fn roles_and_permissions_must_exist_and_all_that_do_not_are_named(kw) {
        let api = kw.create_api().await;
        kw.create_permission("docs.read").await;
        let fields = json!({
            "hash": hash("b"), "roles": ["editor"], "permissions": ["docs.read", "docs.edit"], "externalId": "user_1",
        });

        let message = refused(&kw, &api, fields, 412, "PRECONDITION_FAILED").await;

        assert!(message.contains("editor") && message.contains("docs.edit"), "{message}");
        assert!(!message.contains("docs.read"), "{message}");
        assert_eq!((kw.count_rows("permissions").await, kw.count_rows("identities").await), (1, 0));
    }

    async fn keys_themselves_take_the_right_to_encrypt_too(kw) {
        let (own, other) = (kw.create_api().await, kw.create_api().await);
        let (create, encrypt) = (format!("api.{own}.create_key"), format!("api.{own}.encrypt_key"));
        let ask = async |grants: &[&String], keys: Value| {
            let grants = grants.iter().map(|grant| (*grant).clone()).collect();
            let root_key = kw.create_root_key_with(grants).await;
            kw.v1_as(&root_key, "migrations.createKeys", keys).await
        };
        let hashed = json!([item(&own, json!({ "hash": hash("a") }))]);
        let plain = json!([item(&own, json!({ "plaintext": "b" }))]);
        let elsewhere = json!([item(&own, json!({ "hash": hash("c") })), item(&other, json!({ "hash": hash("d") }))]);

        for (grants, keys, lacking) in [
            (&[&encrypt][..], hashed.clone(), "create_key"),
            (&[&encrypt], plain.clone(), "create_key"),
            (&[&create], plain.clone(), "encrypt_key"),
            (&[&create, &encrypt], elsewhere, &*other),
        ] {
            ask(grants, keys).await.assert_v1_error_about(403, "INSUFFICIENT_PERMISSIONS", &[lacking]);
        }
        assert_eq!(kw.count_rows("keys").await, 0);
        ask(&[&create], hashed).await.v1_body();
        ask(&[&create, &encrypt], plain).await.v1_body();
    }

    async fn each_key_and_what_it_was_given_is_in_the_audit_log(kw) {
        kw.create_role("editor", []).await;
        kw.create_permission("docs.read").await;
        kw.create_permission("docs.edit").await;
        let given = json!({
            "name": "the old one", "meta": { "a": 1 }, "roles": ["editor"], "permissions": ["docs.read", "docs.edit"],
        });
        let mut fields = given.clone();
        fields["hash"] = hash("old_key");
        fields["remaining"] = json!(7);
        let api = kw.create_api().await;
        let before = kw.count_audit_entries().await;

        let id = taken(&kw, &api, fields).await;

        assert_eq!(kw.list_audit_events(&id).await, ["key.create"]);
        assert_eq!(kw.count_audit_entries().await, before + 1, "one entry, however many assignments");
        let entry = last_entry(&kw).await;
        let after: Value = serde_json::from_str(entry.after.as_deref().unwrap()).unwrap();
        assert_eq!((&after["name"], &after["meta"], &after["roles"]), (&given["name"], &given["meta"], &given["roles"]));
        assert_eq!(after["permissions"], json!(["docs.edit", "docs.read"]));
        assert_eq!((&after["enabled"], &after["credits"]), (&json!(true), &json!(7)));
    }

    async fn undoing_the_import_of_a_key_deletes_it(kw) {
        kw.create_permission("docs.read").await;
        let fields = json!({ "hash": hash("old_key"), "permissions": ["docs.read"] });
        taken(&kw, &kw.create_api().await, fields).await;
        kw.verify_v1("old_key", json!({})).await.assert_v1_code("VALID");
        let entry = last_entry(&kw).await;
        let context = &kw.app.context;
        let caller = workspaces::authorize_operator(context, &default_workspace()).await.unwrap();

        undo::undo(&kw.app.keys, &caller, &AuditId::from(entry.id.as_str())).await.unwrap();

        kw.verify_v1("old_key", json!({})).await.assert_v1_code("NOT_FOUND");
    }
}
