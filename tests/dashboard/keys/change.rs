//! Making and changing keys.

use serde_json::{Map, Value, json};

use super::*;
use crate::on_both_stacks;
use crate::support::Keyward;

/// A form as it was shown.
struct Shown {
    was: String,
    meta: String,
}

async fn shown(owner: &mut Browser<'_>, key: &str) -> Shown {
    let page = owner.get(&workspace_path(&format!("/keys/{key}/edit"))).await;
    assert_eq!(page.status, 200, "{}", page.text);
    let (_, meta) = page.text.split_once("id=\"meta\"").expect("the field");
    let meta = between(meta, ">", "</textarea>").replace("&#34;", "\"");
    Shown { was: field(&page.text, "was"), meta }
}

/// Changes a key as a person would: these fields, and the others as they were shown.
async fn changed(
    owner: &mut Browser<'_>,
    key: &str,
    shown: &Shown,
    fields: &[(&str, &str)],
) -> Reply {
    let before: Value = serde_json::from_str(&shown.was).expect("the fields");
    let text = |name: &str| before[name].as_str().expect("a text").to_owned();
    let on = |name: &str| if before[name] == true { "on" } else { "" };
    let names = [
        ("name", "name"),
        ("external-id", "external_id"),
        ("expires", "expires"),
        ("expires-at", "expires_at"),
        ("refill", "refill"),
        ("refill-amount", "refill_amount"),
        ("refill-day", "refill_day"),
        ("roles", "roles"),
        ("permissions", "permissions"),
    ];
    let mut sent: Vec<(String, String)> = vec![("was".into(), shown.was.clone())];
    // A browser ends lines so.
    let lines = |text: String| text.replace('\n', "\r\n");
    sent.extend(names.map(|(name, field)| (name.to_owned(), lines(text(field)))));
    sent.push(("meta".into(), lines(shown.meta.clone())));
    sent.push(("enabled".into(), on("is_enabled").into()));
    for (at, limit) in before["limits"].as_array().expect("limits").iter().enumerate() {
        let columns = [
            ("name", "/name"),
            ("limit", "/limit"),
            ("duration", "/window/number"),
            ("duration-unit", "/window/unit"),
        ];
        for (name, field) in columns {
            let value = limit.pointer(field).and_then(Value::as_str).expect("a text").to_owned();
            sent.push((format!("limit-{name}"), value));
        }
        if limit["is_auto"] == true {
            sent.push(("limit-auto".into(), at.to_string()));
        }
    }
    sent.retain(|(name, _)| fields.iter().all(|(other, _)| other != name));
    sent.extend(fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let sent: Vec<_> = sent.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    owner.post(&workspace_path(&format!("/keys/{key}/edit")), &sent).await
}

async fn a_full_key(kw: &Keyward) -> String {
    kw.create_role("reader", ["docs.read"]).await;
    let fields = json!({
        "name": "full", "externalId": "user_1", "meta": { "plan": "pro", "seats": [1, 2] },
        "roles": ["reader"], "permissions": ["docs.write"], "expires": kw.clock.now().0 + 86_400_123,
        "credits": { "remaining": 10, "refill": { "interval": "monthly", "amount": 10, "refillDay": 5 } },
        "ratelimits": [
            { "name": "requests", "limit": 5, "duration": 90_000, "autoApply": true },
            { "name": "exports", "limit": 2, "duration": 3_600_000, "autoApply": false },
        ],
    });
    kw.create_permission("docs.write").await;
    kw.create_key(fields).await.id
}

on_both_stacks! {
    async fn a_key_is_made_with_all_that_the_form_asks_and_shown_once(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        kw.create_role("reader", ["docs.read"]).await;
        kw.create_permission("docs.write").await;
        assert!(owner.get(&workspace_path(&format!("/keys/new?api={api}"))).await.text.contains("Create key"));

        let fields = [
            ("api", api.as_str()), ("name", "made here"), ("external-id", "user_9"),
            ("prefix", "live"), ("bytes", "24"), ("expires", "7"), ("enabled", "on"),
            ("remaining", "100"), ("refill", "monthly"), ("refill-amount", "50"), ("refill-day", "31"),
            ("limit-name", "requests"), ("limit-limit", "2"), ("limit-duration", "1"),
            ("limit-duration-unit", "min"), ("limit-auto", "0"), ("limit-name", ""), ("limit-limit", ""),
            ("limit-duration", "1"), ("limit-duration-unit", "min"),
            ("roles", "reader\r\n"), ("permissions", "docs.write"), ("meta", "{\"plan\": \"pro\"}"),
        ];
        let page = owner.post(&workspace_path("/keys"), &fields).await;
        let (key, id) = (secret(&page), id(&page));

        assert!(key.starts_with("live_"));
        let told = kw.get_key(&id).await;
        assert_eq!(told["name"], "made here");
        assert_eq!(told["identity"]["externalId"], "user_9");
        assert_eq!(told["expires"], kw.clock.now().0 + 7 * 86_400_000);
        assert_eq!(told["meta"], json!({ "plan": "pro" }));
        assert_eq!(told["permissions"], json!(["docs.read", "docs.write"]));
        let credits = json!({
            "remaining": 100, "refill": { "interval": "monthly", "amount": 50, "refillDay": 31 },
        });
        assert_eq!(told["credits"], credits);
        let limits = told["ratelimits"].as_array().expect("limits");
        assert_eq!((limits.len(), &limits[0]["duration"]), (1, &json!(60_000)));
        for expected in ["VALID", "VALID", "RATE_LIMITED"] {
            kw.verify(&key).await.assert_code(expected);
        }
        assert!(!owner.get(&workspace_path(&format!("/keys/{id}"))).await.text.contains(&key));
    }

    async fn edit_form_keeps_metadata_that_only_version_1_accepts(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let meta: Value = (0..101).map(|n| (format!("f{n}"), json!(n))).collect::<Map<_, _>>().into();
        let key = kw.create_key_v1(&kw.create_api().await, json!({ "meta": meta })).await.id;
        let was = shown(&mut owner, &key).await;

        changed(&mut owner, &key, &was, &[("name", "renamed")]).await;

        let told = kw.get_key(&key).await;
        assert_eq!((&told["name"], &told["meta"]), (&json!("renamed"), &meta));
    }

    async fn a_form_left_as_it_is_makes_a_bare_key(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;

        let made = owner.post(&workspace_path("/keys"), &[("api", api.as_str()), ("enabled", "on")]).await;
        let off = owner.post(&workspace_path("/keys"), &[("api", api.as_str())]).await;

        kw.verify(&secret(&made)).await.assert_code("VALID");
        kw.verify(&secret(&off)).await.assert_code("DISABLED");
    }

    async fn what_is_wrong_is_told_at_its_field_and_what_was_filled_in_is_kept(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let rows = kw.count_rows("keys").await;

        for (name, value) in [
            ("prefix", "a-b"), ("bytes", "15"), ("bytes", "256"), ("bytes", "many"),
            ("external-id", "a b"), ("remaining", "-1"), ("remaining", "some"), ("meta", "[1]"),
            ("meta", "{"), ("roles", "nobody"), ("permissions", "no permission"),
        ] {
            let fields = [("api", api.as_str()), ("name", "<script>kept"), (name, value)];
            let refused = owner.post(&workspace_path("/keys"), &fields).await;
            assert_eq!(refused.status, 422, "{name}");
            assert!(refused.text.contains("&#60;script&#62;kept"), "{name}");
            assert!(!refused.text.contains("<script>kept"), "{name}");
            assert!(refused.text.contains("aria-invalid"), "{name}: {}", refused.text);
        }
        let fields = [
            ("api", api.as_str()), ("limit-name", "ab"), ("limit-limit", "0"), ("limit-duration", "1"),
            ("limit-duration-unit", "ms"), ("expires", "at"), ("expires-at", "2030-01-01T00:00"),
        ];
        let refused = owner.post(&workspace_path("/keys"), &fields).await;
        assert_eq!(refused.status, 422);
        assert!(refused.text.contains("value=\"2030-01-01T00:00\""), "{}", refused.text);
        for told in [
            ">Rate limit 1: name must have 3 to 128 characters</a>",
            ">Rate limit 1: limit must be a whole number of at least 1</a>",
            ">Rate limit 1: window must be at least 1 second</a>",
            "id=\"limit-name-0-error\"><p>Must have 3 to 128 characters.</p>",
        ] {
            assert!(refused.text.contains(told), "{told}: {}", refused.text);
        }
        let when = [("api", api.as_str()), ("expires", "at"), ("expires-at", "soon")];
        assert_eq!(owner.post(&workspace_path("/keys"), &when).await.status, 422);
        assert_eq!(kw.count_rows("keys").await, rows);
    }

    async fn all_errors_are_beside_their_fields_and_the_summary_leads_to_them(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let long = "n".repeat(256);
        let fields = [
            ("api", api.as_str()), ("name", long.as_str()), ("external-id", "a b"), ("prefix", "a-b"), ("bytes", "15"),
            ("expires", "at"), ("expires-at", "soon"), ("remaining", "-1"), ("refill", "monthly"),
            ("refill-amount", "0"), ("refill-day", "32"), ("permissions", "a b"), ("meta", "[1]"),
            ("limit-name", ""), ("limit-limit", ""), ("limit-duration", "1"), ("limit-duration-unit", "min"),
            ("limit-name", "ab"), ("limit-limit", "0"), ("limit-duration", "1"), ("limit-duration-unit", "ms"),
        ];
        let page = owner.post(&workspace_path("/keys"), &fields).await;
        assert_eq!(page.status, 422);

        let summary = between(&page.text, "id=\"faults\"", "</div>");
        let ids = [
            "name", "externalId", "prefix", "bytes", "expires", "remaining", "refill-amount", "refill-day",
            "permissions", "meta", "limit-name-1", "limit-limit-1", "limit-duration-1",
        ];
        for id in ids {
            assert!(summary.contains(&format!("href=\"#{id}\"")), "{id}: {summary}");
            for unique in [format!(" id=\"{id}\""), format!(" id=\"{id}-error\"")] {
                assert_eq!(page.text.matches(&unique).count(), 1, "{unique}");
            }
            assert!(page.text.contains(&format!("{id}-error\" aria-invalid=\"true\"")), "{id}: {}", page.text);
        }
        assert_eq!(summary.matches("<a href").count(), ids.len(), "{summary}");
        assert_eq!(summary.matches("<p>").count(), ids.len(), "{summary}");
    }

    async fn rare_sections_are_open_if_they_hold_something(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let open = |page: &str| {
            let sections = page.split("<details class=\"panel\"").skip(1);
            let open = sections.filter(|section| section.split('>').next().unwrap().ends_with(" open"));
            let titles = open.map(|section| between(section, "<h2>", "</h2>").to_owned());
            titles.collect::<Vec<_>>()
        };

        let empty = owner.get(&workspace_path(&format!("/keys/new?api={api}"))).await.text;
        assert_eq!(open(&empty), [""; 0]);
        for (name, value, title) in [
            ("prefix", "a-b", "Key format"), ("bytes", "24", "Key format"), ("recoverable", "on", "Key format"),
            ("roles", "nobody", "Roles and permissions"), ("permission", "a b", "Roles and permissions"),
            ("meta", "{}", "Metadata"),
        ] {
            let fields = [("api", api.as_str()), ("external-id", "a b"), (name, value)];
            let refused = owner.post(&workspace_path("/keys"), &fields).await;
            assert_eq!((refused.status.as_u16(), open(&refused.text)), (422, vec![title.to_owned()]), "{name}");
        }
        let key = a_full_key(&kw).await;
        let page = owner.get(&workspace_path(&format!("/keys/{key}/edit"))).await.text;
        assert_eq!(open(&page), ["Roles and permissions", "Metadata"]);
    }

    async fn roles_and_permissions_are_checked_or_typed(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        kw.create_role("reader", ["docs.read"]).await;
        kw.create_role(HOSTILE_NAME, ["docs.list"]).await;
        kw.create_permission("docs.write").await;

        let page = owner.get(&workspace_path(&format!("/keys/new?api={api}"))).await.text;
        for option in ["name=\"role\" value=\"reader\">", "name=\"permission\" value=\"docs.write\">"] {
            assert!(page.contains(option), "{option}: {page}");
        }
        assert!(!page.contains(HOSTILE_NAME) && !page.contains("<textarea id=\"roles\""));
        let fields = [
            ("api", api.as_str()), ("enabled", "on"), ("role", "reader"), ("roles", " reader \r\n\r\n"),
            ("permission", "docs.write"),
        ];
        let made = id(&owner.post(&workspace_path("/keys"), &fields).await);
        let key = kw.get_key(&made).await;
        assert_eq!((&key["roles"], &key["permissions"]), (&json!(["reader"]), &json!(["docs.read", "docs.write"])));

        let path = workspace_path(&format!("/keys/{made}/edit"));
        let page = owner.get(&path).await.text;
        assert!(page.contains("name=\"role\" value=\"reader\" checked>"), "{page}");
        let was = field(&page, "was");
        let unchecked = [("was", was.as_str()), ("enabled", "on"), ("permission", "docs.write")];
        assert_eq!(owner.post(&path, &unchecked).await.status, 303);
        assert_eq!(kw.get_key(&made).await["permissions"], json!(["docs.write"]));
        // What is typed and unknown stays in its field.
        let unknown = [("was", was.as_str()), ("enabled", "on"), ("role", "reader"), ("roles", "nobody")];
        let refused = owner.post(&path, &unknown).await;
        assert_eq!(refused.status, 422);
        assert!(refused.text.contains("value=\"reader\" checked>"), "{}", refused.text);
        assert!(refused.text.contains(">nobody</textarea>") && refused.text.contains("roles-hint roles-error"));
    }

    async fn another_limit_is_asked_for_without_making_a_key(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let fields = [
            ("api", api.as_str()), ("add", "limit"), ("name", "kept"), ("limit-name", "requests"),
            ("limit-limit", "5"), ("limit-duration", "1"), ("limit-duration-unit", "h"),
        ];

        let page = owner.post(&workspace_path("/keys"), &fields).await;

        assert_eq!(page.status, 200);
        assert_eq!(page.text.matches("name=\"limit-name\"").count(), 2, "{}", page.text);
        assert!(page.text.contains("value=\"kept\"") && page.text.contains("value=\"requests\""));
        assert_eq!(kw.count_rows("keys").await, 0);
    }

    async fn a_recoverable_key_is_offered_where_the_api_lets(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let path = workspace_path(&format!("/keys/new?api={api}"));
        assert!(!owner.get(&path).await.text.contains("name=\"recoverable\""));

        kw.update_api(&api, |settings| settings.allows_recoverable_keys = true).await;
        assert!(owner.get(&path).await.text.contains("name=\"recoverable\""));
        let fields = [("api", api.as_str()), ("recoverable", "on"), ("enabled", "on")];
        let made = id(&owner.post(&workspace_path("/keys"), &fields).await);

        let told = kw.v2("keys.getKey", json!({ "keyId": made, "decrypt": true })).await;
        assert!(told.data()["plaintext"].is_string());
        assert!(owner.get(&workspace_path(&format!("/keys/{made}"))).await.text.contains(">Show key</button>"));
    }

    async fn a_form_that_nobody_has_changed_changes_nothing(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let key = a_full_key(&kw).await;
        let before = kw.get_key(&key).await;

        let was = shown(&mut owner, &key).await;
        let sent = changed(&mut owner, &key, &was, &[]).await;

        assert_eq!(to(&sent), workspace_path(&format!("/keys/{key}?notice=key-unchanged")));
        assert_eq!(kw.get_key(&key).await, before);
        assert!(!kw.list_audit_events(&key).await.contains(&"key.update".to_owned()));
    }

    async fn only_what_is_changed_is_changed(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let key = a_full_key(&kw).await;
        let was = shown(&mut owner, &key).await;
        // Another person is faster.
        kw.update_key(&key, json!({ "externalId": "user_2", "meta": { "plan": "free" } })).await.data();

        let sent = changed(&mut owner, &key, &was, &[("name", "renamed"), ("roles", "")]).await;

        assert_eq!(to(&sent), workspace_path(&format!("/keys/{key}?notice=key-updated")));
        let told = kw.get_key(&key).await;
        assert_eq!(told["name"], "renamed");
        assert_eq!(told["identity"]["externalId"], "user_2");
        assert_eq!(told["meta"], json!({ "plan": "free" }));
        assert_eq!(told["permissions"], json!(["docs.write"]));
        assert_eq!(told["credits"]["remaining"], 10);
        assert_eq!(told["ratelimits"].as_array().expect("limits").len(), 2);
    }

    async fn each_field_can_be_changed_and_cleared(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let key = a_full_key(&kw).await;
        let was = shown(&mut owner, &key).await;

        let fields = [
            ("name", ""), ("external-id", ""), ("expires", ""), ("meta", ""), ("permissions", ""),
            ("refill", ""), ("limit-name", "requests"), ("limit-limit", "7"), ("limit-duration", "2"),
            ("limit-duration-unit", "min"), ("limit-auto", "0"), ("enabled", ""),
        ];
        let sent = changed(&mut owner, &key, &was, &fields).await;

        assert_eq!(to(&sent), workspace_path(&format!("/keys/{key}?notice=key-updated")));
        let told = kw.get_key(&key).await;
        for field in ["name", "identity", "expires", "meta"] {
            assert_eq!(told.get(field), None, "{field}");
        }
        assert_eq!(told["enabled"], false);
        assert_eq!(told["permissions"], json!(["docs.read"]));
        assert_eq!(told["credits"], json!({ "remaining": 10 }));
        let limits = told["ratelimits"].as_array().expect("limits");
        assert_eq!((limits.len(), &limits[0]["limit"], &limits[0]["duration"]), (1, &json!(7), &json!(120_000)));
    }

    async fn a_change_that_is_wrong_is_told_and_kept(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let key = a_full_key(&kw).await;
        let was = shown(&mut owner, &key).await;

        let refused = changed(&mut owner, &key, &was, &[("meta", "[]"), ("name", "not saved")]).await;
        let misnamed = changed(&mut owner, &key, &was, &[("roles", "nobody")]).await;
        let torn = changed(&mut owner, &key, &was, &[("was", "{")]).await;

        assert_eq!((refused.status.as_u16(), torn.status.as_u16()), (422, 422));
        assert_eq!(misnamed.status, 422);
        assert!(misnamed.text.contains("role nobody does not exist; create it first"));
        assert!(refused.text.contains("value=\"not saved\""));
        assert_eq!(field(&refused.text, "was"), was.was);
        assert_eq!(kw.get_key(&key).await["name"], "full");
    }
}
