//! The first steps in a workspace: from nothing to a verified key.

use domain::last_used;
use serde_json::json;

use super::{Browser, ESCAPED_NAME, HOSTILE_NAME, between, redirect_path, workspace_path};
use crate::on_both_stacks;
use crate::support::{Keyward, Reply, Stack};

fn at(rest: &str) -> String {
    workspace_path(&format!("/get-started{rest}"))
}

/// The secret that a page shows.
#[track_caller]
fn secret(page: &Reply) -> String {
    assert_eq!(page.status, 200, "{}", page.text);
    between(&page.text, "<code id=\"secret\">", "<").to_owned()
}

/// What verifying a key on the page returns.
async fn verify(user: &mut Browser<'_>, key: &str) -> Reply {
    user.post(&at("/verify"), &[("key", key)]).await
}

#[track_caller]
fn code(page: &Reply) -> &str {
    assert_eq!(page.status, 200, "{}", page.text);
    let outcome = between(&page.text, "id=\"outcome\"", "</div>");
    between(between(outcome, "<span class=\"badge", "/span>"), "\">", "<")
}

/// The next page that looks for the event of a verification.
fn next_path(page: &Reply) -> String {
    between(&page.text, "id=\"recent\" hx-get=\"", "\"").replace("&#38;", "&")
}

async fn completed(user: &mut Browser<'_>) -> String {
    let page = user.get(&workspace_path("")).await.text;
    match page.contains(" steps done</span>") {
        true => between(&page, "Get started</h2><span class=\"muted\">", " steps done").to_owned(),
        false => "all".to_owned(),
    }
}

on_both_stacks! {
    async fn the_first_steps_lead_to_a_verified_key(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        assert_eq!(completed(&mut owner).await, "0 of 4");

        let created = redirect_path(&owner.post(&at("/api"), &[("name", HOSTILE_NAME)]).await);
        let page = owner.get(&created).await.text;
        assert!(page.contains("API created.") && page.contains("1 of 4 steps done"), "{page}");
        let api = between(&page, "name=\"api\" value=\"", "\"").to_owned();
        let root_key = owner.post(&at("/root-key"), &[("api", api.as_str())]).await;
        let root_key = secret(&root_key);
        let page = owner.post(&at("/key"), &[("api", api.as_str())]).await;
        let key = secret(&page);

        assert!(page.text.contains(&format!("required maxlength=\"512\" autocomplete=\"off\" autocapitalize=\"off\" spellcheck=\"false\" value=\"{key}\"")));
        assert!(page.text.contains("3 of 4 steps done"), "{}", page.text);
        for snippet in ["serverURL: ", "server_url=", "WithServerURL(", "curl "] {
            let snippet = between(&page.text, snippet, "</code>");
            assert!(snippet.contains("https://keyward.test") && snippet.contains(&key), "{snippet}");
        }
        assert_eq!(code(&verify(&mut owner, &key).await), "VALID");
        kw.write_events().await;
        assert_eq!(completed(&mut owner).await, "all");
        assert!(owner.get(&at("")).await.text.contains("All steps are done."));

        // The root key verifies keys of the API, and nothing else.
        kw.v2_as(&root_key, "keys.verifyKey", json!({ "key": key })).await.assert_code("VALID");
        let other = kw.create_key(json!({})).await.key;
        kw.v2_as(&root_key, "keys.verifyKey", json!({ "key": other })).await.assert_code("NOT_FOUND");
        assert_eq!(kw.v2_as(&root_key, "apis.getApi", json!({ "apiId": api })).await.status, 403);
        let names = owner.get(&workspace_path("/root-keys")).await.text;
        assert!(names.contains(&format!("{ESCAPED_NAME} service")), "{names}");
        assert_eq!(kw.list_audit_events(&api).await, ["api.create"]);
        assert_eq!(kw.list_audit_events("First key").await, ["key.create"]);
    }

    async fn a_verification_on_the_page_is_as_any_other(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let fields = json!({
            "credits": { "remaining": 5 },
            "ratelimits": [{ "name": "requests", "limit": 2, "duration": 60_000, "autoApply": true }],
        });
        let key = kw.create_key(fields).await;

        let first = verify(&mut owner, &key.key).await;
        assert_eq!(code(&first), "VALID");
        assert!(first.text.contains("Remaining credits: 4"), "{}", first.text);
        let reply = kw.verify(&key.key).await;
        assert_eq!((reply.data()["code"].as_str(), reply.data()["credits"].as_i64()), (Some("VALID"), Some(3)));
        let refused = verify(&mut owner, &key.key).await;
        assert_eq!(code(&refused), "RATE_LIMITED");
        assert!(refused.text.contains("Wait until the window resets"), "{}", refused.text);

        // The event appears as soon as it is written.
        let waiting = owner.get(&next_path(&refused)).await;
        assert!(waiting.text.contains("The event appears after about a second."));
        let next = next_path(&waiting);
        kw.write_events().await;
        let page = owner.get(&next).await.text;
        assert!(!page.contains("id=\"recent\" hx-get") && !page.contains("appears after"), "{page}");
        let recent = between(&page, "<h3>Recent verifications", "</table>");
        assert_eq!(recent.matches("<tr><th scope=\"row\"><a href=\"/dashboard/ws_default/keys/why?request=req_").count(), 3, "{recent}");
        assert_eq!(recent.matches("<span class=\"badge\">New</span>").count(), 1);
        let metrics = owner.get("/metrics").await.text;
        for counted in ["{code=\"VALID\"} 2\n", "{code=\"RATE_LIMITED\"} 1\n"] {
            assert!(metrics.contains(&format!("keyward_verifications_total{counted}")), "{metrics}");
        }
    }

    async fn a_page_stops_looking_for_an_event(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let id = kw.create_key(json!({})).await.id;

        for (attempt, looks) in [("0", true), ("9", true), ("10", false), ("11", false), ("x", false)] {
            let path = at(&format!("?key={id}&request=req_none&attempt={attempt}"));
            let page = owner.get(&path).await;
            assert_eq!(page.text.contains("id=\"recent\" hx-get"), looks, "{attempt}");
            // Otherwise a browser without JavaScript would not load it again.
            let is_own = page.text.contains(&format!("attempt={attempt}#recent"));
            assert!(page.text.contains("#recent\">Refresh") && !is_own, "{attempt}");
        }
        assert_eq!(owner.get(&at("?key=key_none")).await.status, 404);
    }

    async fn invalid_fields_are_shown_with_their_bounds(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;

        let short = owner.post(&at("/api"), &[("name", "<b")]).await;
        assert_eq!(short.status, 422);
        assert!(short.text.contains("Name must have 3 to 256 characters"), "{}", short.text);
        assert!(short.text.contains("value=\"&#60;b\"") && short.text.contains("aria-invalid"));
        for path in ["/root-key", "/key"] {
            assert_eq!(owner.post(&at(path), &[]).await.status, 400, "{path}");
            assert_eq!(owner.post(&at(path), &[("api", "api_none")]).await.status, 404, "{path}");
        }
        kw.create_key(json!({})).await;
        for (length, status) in [(0, 422), (1, 200), (512, 200), (513, 422)] {
            let page = verify(&mut owner, &"k".repeat(length)).await;
            assert_eq!(page.status, status, "{length}");
            match status {
                200 => assert_eq!(code(&page), "NOT_FOUND"),
                _ => assert!(page.text.contains("Key must have 1 to 512 characters"), "{length}"),
            }
        }
    }

    async fn a_key_of_another_workspace_is_not_found(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let stranger = kw.create_other_workspace().await;
        let api = kw.v2_as(&stranger, "apis.createApi", json!({ "name": "theirs" })).await.text_of("apiId");
        let key = kw.v2_as(&stranger, "keys.createKey", json!({ "apiId": api })).await;

        assert_eq!(code(&verify(&mut owner, &key.text_of("key")).await), "NOT_FOUND");
        let id = key.text_of("keyId");
        assert_eq!(owner.get(&at(&format!("?key={id}"))).await.status, 404);
        for path in ["/root-key", "/key"] {
            assert_eq!(owner.post(&at(path), &[("api", api.as_str())]).await.status, 404, "{path}");
        }
    }

    async fn a_viewer_takes_no_steps(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({})).await;
        let mut viewer = owner.invite("view@example.com", "viewer").await;

        let page = viewer.get(&at("")).await;
        assert_eq!((page.status.as_u16(), page.text.matches("Ask an owner or admin.").count()), (200, 3));
        assert!(!page.text.contains("/get-started/"), "{}", page.text);
        let before = kw.count_audit_entries().await;
        for (path, field, value) in [
            ("/api", "name", "an API"),
            ("/root-key", "api", api.as_str()),
            ("/key", "api", api.as_str()),
            ("/verify", "key", key.key.as_str()),
        ] {
            assert_eq!(viewer.post(&at(path), &[(field, value)]).await.status, 403, "{path}");
        }
        assert_eq!(kw.count_audit_entries().await, before);
    }

    async fn a_root_key_with_every_permission_counts_when_it_is_used(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        kw.create_root_key(["api.*.create_api", "ratelimit.*.limit"]).await;
        assert_eq!(completed(&mut owner).await, "0 of 4");

        kw.create_api().await;
        last_used::flush(&kw.app.last_used).await.unwrap();

        assert_eq!(completed(&mut owner).await, "2 of 4");
    }
}

#[tokio::test]
async fn overview_works_when_events_cannot_be_read() {
    let kw = Keyward::start(Stack::Embedded).await;
    let mut owner = Browser::sign_in_owner(&kw).await;
    kw.change_events("DROP TABLE verification_totals").await;

    let page = owner.get(&workspace_path("")).await;
    assert_eq!(page.status, 200);
    assert!(!page.text.contains("steps done"), "{}", page.text);
    assert_eq!(owner.get(&at("")).await.status, 200);
}
