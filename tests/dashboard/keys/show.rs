//! One key's page.

use foundation::config::Deployment;
use serde_json::json;

use super::*;
use crate::support::{Keyward, Stack};
use crate::{on_both_stacks, on_every_event_store};

#[tokio::test]
async fn a_gauge_says_so_when_its_counters_are_away() {
    let kw = Keyward::start_with(Stack::Replica, |settings| {
        if let Deployment::Replica { redis_url, .. } = &mut settings.deployment {
            *redis_url = "redis://127.0.0.1:1".into();
        }
    })
    .await;
    let mut owner = Browser::sign_in_owner(&kw).await;
    let limit = json!([{ "name": "requests", "limit": 3, "duration": 60_000, "autoApply": true }]);
    let key = kw.create_key(json!({ "ratelimits": limit, "credits": { "remaining": 7 } })).await;

    let page = owner.get(&workspace_path(&format!("/keys/{}", key.id))).await.text;

    assert!(page.contains("3 in a window of 1 minute; usage unavailable"), "{page}");
    assert!(!page.contains("<meter") && page.contains("<strong>7</strong>"), "{page}");
}

on_both_stacks! {
    async fn a_key_tells_all_there_is_to_know_of_it_as_text(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        kw.create_role("<b>reader", ["docs.read", "docs.list"]).await;
        kw.create_role("lister", ["docs.list"]).await;
        let key = kw.create_key(json!({
            "name": "<script>key", "externalId": "user_1", "meta": { "a": "<script>meta" },
            "roles": ["<b>reader", "lister"], "permissions": ["docs.read"],
        })).await;

        let page = owner.get(&workspace_path(&format!("/keys/{}", key.id))).await.text;

        assert!(page.contains("&#60;script&#62;key") && !page.contains("<script>key"), "{page}");
        assert!(page.contains("&#60;script&#62;meta") && !page.contains("<script>meta"), "{page}");
        assert!(page.contains("href=\"/dashboard/ws_default/identity?externalId=user_1\""), "{page}");
        assert!(page.contains("<p>Active</p>"), "{page}");
        assert!(page.contains("Direct, Role &#60;b&#62;reader"), "{page}");
        assert!(page.contains("Role &#60;b&#62;reader, Role lister"), "{page}");
        assert!(page.contains("Unlimited"), "{page}");
    }

    async fn a_gauge_tells_what_is_used_and_takes_nothing(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let key = kw.create_key(json!({
            "externalId": "user_1",
            "ratelimits": [{ "name": "requests", "limit": 3, "duration": 60_000, "autoApply": true }],
        })).await;
        let identity = kw.get_key(&key.id).await["identity"]["id"].as_str().unwrap().to_owned();
        kw.set_identity_limits(&identity, &[("shared", 10, 3_600_000, true), ("requests", 1, 1_000, true)]).await;
        let path = workspace_path(&format!("/keys/{}", key.id));
        assert!(owner.get(&path).await.text.contains("0 of 3 used in a window of 1 minute"));

        kw.verify(&key.key).await.assert_code("VALID");
        kw.verify(&key.key).await.assert_code("VALID");
        for _ in 0..5 {
            let page = owner.get(&path).await.text;
            assert!(page.contains("2 of 3 used in a window of 1 minute"), "{page}");
            assert!(page.contains("2 of 10 used in a window of 1 hour"), "{page}");
            assert!(page.contains("<meter min=\"0\" max=\"3\""), "{page}");
            assert_eq!(page.matches("<meter").count(), 2, "{page}");
        }

        kw.verify(&key.key).await.assert_code("VALID");
        kw.verify(&key.key).await.assert_code("RATE_LIMITED");
        let page = owner.get(&path).await.text;
        assert!(page.contains("3 of 3 used") && page.contains(">Exceeded<"), "{page}");
        // Of the window before counts what it still covers.
        kw.clock.advance_ms(60_000);
        assert!(owner.get(&path).await.text.contains("3 of 3 used"));
        kw.clock.advance_ms(30_000);
        assert!(owner.get(&path).await.text.contains("1 of 3 used"));
        kw.clock.advance_ms(90_000);
        assert!(owner.get(&path).await.text.contains("0 of 3 used"));
    }

    async fn a_key_tells_why_it_is_refused(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let soon = kw.clock.now().0 + 1_000;
        let off = kw.create_key(json!({ "enabled": false })).await.id;
        let over = kw.create_key(json!({ "expires": soon })).await.id;
        let spent = kw.create_key(json!({ "credits": { "remaining": 0 } })).await.id;
        let waits = kw.create_key(json!({ "credits": { "remaining": 0, "refill": { "interval": "daily", "amount": 5 } } })).await.id;
        let gone = kw.create_key(json!({ "externalId": "user_1" })).await.id;
        kw.v2("identities.deleteIdentity", json!({ "identity": "user_1" })).await.data();
        kw.clock.advance_ms(1_001);

        for (key, told) in [
            (off, "The key is disabled"),
            (over, "The key expired just now"),
            (spent, "Credits exhausted. Add credits to use the key again."),
            (waits, "The next refill is in 12 hours"),
            (gone, "The identity of this key was deleted"),
        ] {
            let page = owner.get(&workspace_path(&format!("/keys/{key}"))).await.text;
            assert!(page.contains(told), "{told}: {page}");
        }
    }

    async fn credits_tell_what_is_left_and_when_more_come(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let refill = json!({ "interval": "monthly", "amount": 50, "refillDay": 31 });
        let key = kw.create_key(json!({ "credits": { "remaining": 20, "refill": refill } })).await;
        kw.verify(&key.key).await.assert_code("VALID");

        let page = owner.get(&workspace_path(&format!("/keys/{}", key.id))).await.text;

        assert!(page.contains("<strong>19</strong>"), "{page}");
        assert!(page.contains("to 50 monthly, on day 31"), "{page}");
        assert!(page.contains("datetime=\"2026-03-31T00:00:00Z\""), "{page}");
    }
}

on_every_event_store! {
    async fn the_last_verifications_are_told_the_latest_first_and_25_at_most(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let key = kw.create_key(json!({})).await;
        let other = kw.create_key(json!({})).await;
        kw.verify(&other.key).await.assert_code("VALID");
        let mut requests = Vec::new();
        for number in 0..27 {
            // Far apart, so that some are found only further back.
            kw.clock.advance_ms(number * number * 10_000);
            let verified = kw.verify_with(&key.key, json!({ "tags": ["path=/a", "<script>"] })).await;
            requests.push(verified.body["meta"]["requestId"].as_str().unwrap().to_owned());
        }
        kw.update_key(&key.id, json!({ "enabled": false })).await.data();
        kw.verify(&key.key).await.assert_code("DISABLED");
        kw.write_events().await;
        owner.sign_in(EMAIL, PASSWORD).await;

        let page = owner.get(&workspace_path(&format!("/keys/{}", key.id))).await.text;

        assert!(page.contains("The key is disabled") && page.contains("DISABLED"), "{page}");
        assert!(page.contains("path=/a") && !page.contains("<script>,"), "{page}");
        assert_eq!(page.matches("<tr><th scope=\"row\"><a href=\"/dashboard/ws_default/keys/why?request=req_").count(), 25, "{page}");
        let place = |request: &String| page.find(request.as_str());
        assert!(place(&requests[26]) < place(&requests[25]));
        assert_eq!([place(&requests[3]).is_some(), place(&requests[2]).is_some()], [true, false]);
    }
}

on_both_stacks! {
    async fn a_key_whose_events_cannot_be_read_has_its_page(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let key = kw.create_key(json!({ "name": "without events" })).await;
        kw.write_events().await;
        kw.change_events("DROP TABLE verifications").await;

        let page = owner.get(&workspace_path(&format!("/keys/{}", key.id))).await;

        assert_eq!(page.status, 200);
        assert!(page.text.contains("Failed to load verifications"), "{}", page.text);
    }
}
