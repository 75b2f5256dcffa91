use api::example;
use domain::migrations;
use domain::root_keys::default_workspace;
use foundation::model::Algorithm;
use foundation::secret::KeyHash;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::json::Fields as _;
use crate::support::{Keyward, NOON, Reply};

/// A key as `prefixed-api-key` makes them, and its hash there.
const PREFIXED: &str = "my_company_BRTRKFsL_51FwqftsmMDHHbJAMEXXHCgG";

fn prefixed_hash() -> String {
    KeyHash::compute("51FwqftsmMDHHbJAMEXXHCgG").to_hex()
}

fn hash(key: &str) -> String {
    KeyHash::compute(key).to_base64()
}

async fn migration(kw: &Keyward, algorithm: Algorithm) -> String {
    let made =
        migrations::create_as_operator(&kw.app.context, &default_workspace(), algorithm, None)
            .await;
    made.unwrap().id.as_str().to_owned()
}

/// Takes in the hash of [`PREFIXED`]. Returns the ids of the migration and of the key.
async fn migrate_prefixed(kw: &Keyward) -> (String, String) {
    let (migration, api) = (migration(kw, Algorithm::PrefixedApiKey).await, kw.create_api().await);
    let reply = migrate(kw, &migration, &api, json!([{ "hash": prefixed_hash() }])).await;
    (migration, reply.data()["migrated"][0]["keyId"].as_str().unwrap().to_owned())
}

async fn migrate(kw: &Keyward, migration: &str, api: &str, keys: Value) -> Reply {
    let request = json!({ "migrationId": migration, "apiId": api, "keys": keys });
    kw.v2("keys.migrateKeys", request).await
}

on_both_stacks! {
    async fn a_fault_within_an_item_is_told_with_its_place(kw) {
        kw.create_examples().await;
        let refill = json!({ "interval": "monthly", "amount": 1 });
        let request = json!({
            "migrationId": example::MIGRATION_ID, "apiId": example::API,
            "keys": [{ "hash": "abc" }, { "hash": "abd", "credits": { "remaining": 1, "refill": refill } }],
        });

        let reply = kw.v2("keys.migrateKeys", request).await;

        let refill = "/properties/keys/items/properties/credits/properties/refill";
        let message = reply.assert_field_error(&format!("{refill}/properties/refillDay"));
        assert!(message.starts_with("keys[1].credits.refill.refillDay"), "{message}");
    }

    async fn a_key_whose_hash_was_taken_in_verifies_with_all_that_came_with_it(kw) {
        kw.verify("old_key_1").await.assert_code("NOT_FOUND");
        let (migration, api) = (migration(&kw, Algorithm::Sha256).await, kw.create_api().await);
        let key = json!({
            "hash": hash("old_key_1"), "name": "old", "externalId": "user 1 ü", "meta": { "a": 1 },
            "roles": ["editor"], "permissions": ["docs.read"], "expires": NOON.0 + 1000,
            "credits": { "remaining": 2, "refill": { "interval": "monthly", "amount": 9, "refillDay": 31 } },
            "ratelimits": [{ "name": "one", "limit": 5, "duration": 60_000, "autoApply": true }],
        });

        let reply = migrate(&kw, &migration, &api, json!([key])).await;

        reply.data().assert_has(json!({ "failed": [], "migrated.0.hash": hash("old_key_1") }));
        let id = reply.data()["migrated"][0]["keyId"].as_str().unwrap();
        let verified = kw.verify_with("old_key_1", json!({ "permissions": "docs.read" })).await;
        verified.assert_code("VALID").assert_has(json!({ "credits": 1, "ratelimits.0.remaining": 4 }));
        let told = kw.get_key(id).await;
        told.assert_has(json!({ "start": "", "name": "old", "roles": ["editor"], "meta": { "a": 1 } }));
        told.assert_has(json!({ "identity.externalId": "user 1 ü", "expires": NOON.0 + 1000 }));
        assert_eq!(told["credits"]["refill"], json!({ "interval": "monthly", "amount": 9, "refillDay": 31 }));
    }

    async fn what_is_left_out_is_as_in_a_new_key(kw) {
        let (migration, api) = (migration(&kw, Algorithm::Sha256).await, kw.create_api().await);
        let keys = json!([
            { "hash": hash("plain") },
            { "hash": hash("disabled"), "enabled": false },
            { "hash": hash("unlimited"), "credits": { "remaining": null } },
        ]);

        migrate(&kw, &migration, &api, keys).await.data();

        kw.verify("plain").await.assert_code("VALID");
        kw.verify("disabled").await.assert_code("DISABLED");
        kw.verify("unlimited").await.assert_code("VALID").assert_has(json!({ "credits": null }));
    }

    async fn a_hash_may_be_written_in_hex(kw) {
        let (migration, api) = (migration(&kw, Algorithm::Sha256).await, kw.create_api().await);
        let hex = KeyHash::compute("old_key").to_hex().to_uppercase();

        assert_eq!(migrate(&kw, &migration, &api, json!([{ "hash": hex }])).await.data()["migrated"][0]["hash"], hex);

        kw.verify("old_key").await.assert_code("VALID");
        let again = migrate(&kw, &migration, &api, json!([{ "hash": hash("old_key") }])).await;
        assert_eq!(again.data()["failed"], json!([hash("old_key")]));
    }

    async fn hashes_that_are_known_or_come_twice_fail_and_the_others_do_not(kw) {
        let (migration, api) = (migration(&kw, Algorithm::Sha256).await, kw.create_api().await);
        let (known, deleted) = (kw.create_key(json!({})).await, kw.create_key(json!({})).await);
        kw.v2("keys.deleteKey", json!({ "keyId": deleted.id })).await.data();
        let keys = json!([
            { "hash": hash(&known.key) }, { "hash": hash("a") }, { "hash": hash(&deleted.key) },
            { "hash": hash("b"), "permissions": ["docs.read"] },
            { "hash": hash("a"), "permissions": ["docs.write"] },
        ]);

        let reply = migrate(&kw, &migration, &api, keys).await;

        assert_eq!(reply.data()["failed"], json!([hash(&known.key), hash(&deleted.key), hash("a")]));
        assert_eq!(reply.data()["migrated"].as_array().unwrap().len(), 2);
        kw.verify("a").await.assert_code("VALID");
        kw.verify_with("b", json!({ "permissions": "docs.read" })).await.assert_code("VALID");
        kw.verify_with("a", json!({ "permissions": "docs.write" })).await.assert_code("INSUFFICIENT_PERMISSIONS");
    }

    async fn the_same_keys_at_once_come_in_once(kw) {
        let (migration, api) = (migration(&kw, Algorithm::Sha256).await, kw.create_api().await);
        let keys: Vec<_> = (0..20).map(|n| json!({
            "hash": hash(&format!("key {n}")), "externalId": "user_1", "roles": ["editor"], "permissions": ["docs.read"],
        })).collect();

        let replies = join_all((0..4).map(|_| migrate(&kw, &migration, &api, json!(keys)))).await;

        let count = |field: &str| {
            let lists = replies.iter().map(|reply| reply.data()[field].as_array().unwrap().len());
            lists.sum::<usize>()
        };
        assert_eq!((count("migrated"), count("failed")), (20, 60));
        assert_eq!((kw.count_rows("keys").await, kw.count_rows("identities").await), (20, 1));
        kw.verify_with("key 7", json!({ "permissions": "docs.read" })).await.assert_code("VALID");
    }

    async fn the_rules_of_credits_hold_and_one_fault_takes_in_nothing(kw) {
        let (migration, api) = (migration(&kw, Algorithm::Sha256).await, kw.create_api().await);
        let refill = json!({ "interval": "monthly", "amount": 9 });
        let keys = json!([{ "hash": hash("a") }, { "hash": hash("b"), "credits": { "remaining": 1, "refill": refill } }]);
        migrate(&kw, &migration, &api, keys).await.assert_error(400, "invalid_input");
        assert_eq!(kw.count_rows("keys").await, 0);
    }

    async fn migrate_keys_rejects_the_environment_that_only_version_1_has(kw) {
        let (migration, api) = (migration(&kw, Algorithm::Sha256).await, kw.create_api().await);
        let keys = json!([{ "hash": hash("a"), "environment": "test" }]);
        migrate(&kw, &migration, &api, keys).await.assert_error(400, "invalid_input");
        assert_eq!(kw.count_rows("keys").await, 0);
    }

    async fn a_migration_or_an_api_that_is_not_there_is_not_found(kw) {
        let (migration, api) = (migration(&kw, Algorithm::Sha256).await, kw.create_api().await);
        let keys = json!([{ "hash": hash("a") }]);
        migrate(&kw, "mig_nowhere", &api, keys.clone()).await.assert_error(404, "migration_not_found");
        migrate(&kw, &migration, "api_nowhere", keys).await.assert_error(404, "api_not_found");
    }

    async fn import_has_one_audit_entry_however_many_keys(kw) {
        let (migration, api) = (migration(&kw, Algorithm::Sha256).await, kw.create_api().await);
        let key = json!({ "hash": hash("a"), "roles": ["editor"], "permissions": ["docs.read"] });

        let reply = migrate(&kw, &migration, &api, json!([key, { "hash": hash("b") }])).await;
        let again = migrate(&kw, &migration, &api, json!([{ "hash": hash("b") }])).await;
        assert_eq!(again.data()["migrated"], json!([]));

        for migrated in reply.data()["migrated"].as_array().unwrap() {
            let id = migrated["keyId"].as_str().unwrap();
            assert_eq!(kw.list_audit_events(id).await, [""; 0]);
        }
        let events = kw.list_audit_events(&migration).await;
        assert_eq!(events, ["migration.create", "migration.import"]);
        assert!(kw.list_audit_events("editor").await.contains(&"role.create".to_owned()));
    }

    async fn a_prefixed_key_becomes_our_own_when_it_is_first_shown(kw) {
        let (migration, id) = migrate_prefixed(&kw).await;
        kw.verify(PREFIXED).await.assert_code("NOT_FOUND");

        let shown = kw.verify_with(PREFIXED, json!({ "migrationId": migration })).await;

        shown.assert_code("VALID").assert_has(json!({ "keyId": id }));
        kw.verify(PREFIXED).await.assert_code("VALID");
        assert_eq!(kw.get_key(&id).await["start"], "my_company_BRTR");
        assert_eq!(kw.list_audit_events(&id).await, ["key.migrate"]);
        let rerolled = kw.v2("keys.rerollKey", json!({ "keyId": id, "expiration": 0 })).await;
        assert!(rerolled.text_of("key").starts_with("my_company_"));
    }

    async fn a_prefixed_key_that_many_show_at_once_is_valid_for_all(kw) {
        let (migration, _) = migrate_prefixed(&kw).await;
        let shows = (0..8).map(|_| kw.verify_with(PREFIXED, json!({ "migrationId": migration })));
        for reply in join_all(shows).await {
            reply.assert_code("VALID");
        }
    }

    async fn a_prefixed_key_is_unknown_in_any_other_migration_or_form(kw) {
        let (waits, other, plain) = (
            migration(&kw, Algorithm::PrefixedApiKey).await,
            migration(&kw, Algorithm::PrefixedApiKey).await,
            migration(&kw, Algorithm::Sha256).await,
        );
        let api = kw.create_api().await;
        migrate(&kw, &waits, &api, json!([{ "hash": prefixed_hash() }])).await.data();
        let show = async |key: &str, migration: &str| { kw.verify_with(key, json!({ "migrationId": migration })).await };

        show(PREFIXED, &other).await.assert_code("NOT_FOUND");
        show(PREFIXED, &plain).await.assert_code("NOT_FOUND");
        show(PREFIXED, "mig_nowhere").await.assert_code("NOT_FOUND");
        show("my_company_BRTRKFsL_wrong", &waits).await.assert_code("NOT_FOUND");
        let too_short = show("company_51FwqftsmMDHHbJAMEXXHCgG", &waits).await;
        too_short.assert_error_about(400, "key_malformed", &["prefix_short_long"]);
        let stranger = kw.create_other_workspace().await;
        let request = json!({ "key": PREFIXED, "migrationId": waits });
        kw.v2_as(&stranger, "keys.verifyKey", request).await.assert_code("NOT_FOUND");
        show(PREFIXED, &waits).await.assert_code("VALID");
    }

    async fn a_prefix_of_any_letters_hides_the_secret_as_any_other_does(kw) {
        let (migration, id) = migrate_prefixed(&kw).await;
        let key = PREFIXED.replace("my_company", "schlüssel_🔑🔑🔑🔑🔑🔑🔑🔑");
        kw.verify_with(&key, json!({ "migrationId": migration })).await.assert_code("VALID");

        let rerolled = kw.v2("keys.rerollKey", json!({ "keyId": id, "expiration": 0 })).await;

        let start = "schlüssel_🔑🔑🔑🔑🔑🔑🔑🔑_";
        assert_eq!(kw.get_key(&id).await["start"], format!("{start}BRTR"));
        let told = kw.get_key(&rerolled.text_of("keyId")).await;
        let shown = told["start"].as_str().unwrap();
        assert!(rerolled.text_of("key").starts_with(shown));
        assert_eq!(shown.strip_prefix(start).unwrap().len(), 4);
    }

    async fn a_prefixed_key_with_nul_in_it_was_never_issued(kw) {
        let (migration, id) = migrate_prefixed(&kw).await;
        for key in [format!("\0{PREFIXED}"), PREFIXED.replace("BRTRKFsL", "\0")] {
            kw.verify_with(&key, json!({ "migrationId": migration })).await.assert_code("NOT_FOUND");
        }
        assert_eq!(kw.get_key(&id).await["start"], "");
    }

    async fn who_may_not_verify_adopts_nothing(kw) {
        let (migration, id) = migrate_prefixed(&kw).await;
        let root_key = kw.create_root_key(["api.api_other.verify_key"]).await;
        let request = json!({ "key": PREFIXED, "migrationId": migration });
        kw.v2_as(&root_key, "keys.verifyKey", request).await.assert_code("NOT_FOUND");
        assert_eq!(kw.get_key(&id).await["start"], "");
    }
}
