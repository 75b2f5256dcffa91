//! Forms that create something once, and secrets that are shown once.

use axum::body::Body;
use axum::http::Request;
use domain::form_results;
use serde_json::json;

use super::{Browser, EMAIL, PASSWORD, between, redirect_path, workspace_path};
use crate::on_both_stacks;
use crate::support::{Keyward, Reply, Stack};

const WAS_SHOWN: &str = "This secret was shown. It cannot be shown again.";
const EXPIRED: &str = "This secret was not shown within 60 seconds.";
const NOT_HERE: &str = "A secret is shown once, in the browser session in which it was created.";
const DAY_MS: i64 = 86_400_000;

/// A form: its path in the workspace and its fields.
type SentForm = (String, Vec<(&'static str, String)>);

/// Returns a form for each page that shows a secret.
async fn secret_forms(owner: &mut Browser<'_>) -> Vec<SentForm> {
    let kw = owner.kw;
    let api = kw.create_api().await;
    let key = kw.create_key_in(&api, json!({})).await.id;
    let permission = [("permission", "api.*.create_api")];
    let page = owner.post(&workspace_path("/root-keys"), &permission).await;
    let root_key = between(&page.text, "href=\"/dashboard/ws_default/root-keys/key_", "\"");
    let policy = json!({ "name": "old", "apiIds": [api], "keyFrom": ["authorization:bearer"] });
    let policy = kw.v2("gateways.createPolicy", policy).await.text_of("policyId");
    let new_policy = [
        ("name", "edge"),
        ("api", api.as_str()),
        ("keyFrom", "authorization:bearer"),
        ("headers-mode", "all"),
        ("onFailure", "problem+json"),
    ];
    let grace = || vec![("grace", "900000".to_owned())];
    vec![
        ("/keys".into(), vec![("api", api.clone()), ("enabled", "on".into())]),
        ("/get-started/key".into(), vec![("api", api.clone())]),
        ("/get-started/root-key".into(), vec![("api", api.clone())]),
        (format!("/keys/{key}/reroll"), vec![("grace", "3600000".into())]),
        ("/root-keys".into(), vec![("permission", "api.*.create_api".into())]),
        (format!("/root-keys/key_{root_key}/rotate"), grace()),
        ("/members/invite".into(), vec![("role", "viewer".into())]),
        ("/gateways".into(), new_policy.map(|(name, value)| (name, value.to_owned())).to_vec()),
        (format!("/gateways/{policy}/rotate"), grace()),
    ]
}

/// Submits a form with a one-time token.
async fn submit(browser: &mut Browser<'_>, (path, fields): &SentForm, token: &str) -> Reply {
    let fields = fields.iter().map(|(name, value)| (*name, value.as_str()));
    let fields: Vec<_> = fields.chain([("form-token", token)]).collect();
    browser.submit(&workspace_path(path), &fields).await
}

/// Returns what the forms with secrets create.
async fn created(kw: &Keyward) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for (table, column) in [
        ("keys", "id"),
        ("root_keys", "id"),
        ("invitations", "id"),
        ("gateway_policies", "secret_hash"),
    ] {
        all.push(kw.list_texts(table, column).await);
    }
    all
}

/// Returns the secret that a page shows.
#[track_caller]
fn secret(page: &Reply) -> String {
    assert_eq!(page.status, 200, "{}", page.text);
    assert_eq!(page.headers["cache-control"], "no-store");
    let start = match page.text.contains("id=\"invitation-link\"") {
        true => "/dashboard/join/",
        false => "<code id=\"secret\">",
    };
    between(&page.text, start, "<").to_owned()
}

#[track_caller]
fn assert_not_shown(page: &Reply, reason: &str, secret: &str) {
    assert_eq!(page.status, 410, "{}", page.text);
    assert_eq!(page.headers["cache-control"], "no-store");
    assert!(page.text.contains(reason), "{}", page.text);
    assert!(secret.is_empty() || !page.text.contains(secret), "{}", page.text);
}

/// Returns another browser with the same cookies, in front of another server.
fn same_browser<'a>(kw: &'a Keyward, browser: &Browser<'_>) -> Browser<'a> {
    let (cookies, csrf) = (browser.cookies.clone(), browser.csrf.clone());
    Browser { kw, cookies, csrf, forwarded: None }
}

async fn assert_same_form_at_the_same_time_creates_once(kw: &Keyward, other: &Keyward) {
    let mut owner = Browser::sign_in_owner(kw).await;
    for form in secret_forms(&mut owner).await {
        let before = created(kw).await;
        let mut second = same_browser(other, &owner);

        let (one, two) =
            tokio::join!(submit(&mut owner, &form, "once"), submit(&mut second, &form, "once"));

        let (one, two) = (redirect_path(&one), redirect_path(&two));
        assert_eq!(one, two, "{form:?}");
        let after = created(kw).await;
        let changed = before.iter().zip(&after).filter(|(before, after)| before != after).count();
        assert_eq!(changed, 1, "{form:?}");
        let count = |all: &[Vec<String>]| all.iter().map(Vec::len).sum::<usize>();
        assert!(count(&after) - count(&before) <= 1, "{form:?}");
        let shown = secret(&second.get(&two).await);
        assert_not_shown(&owner.get(&one).await, WAS_SHOWN, &shown);
    }
}

#[tokio::test]
async fn same_form_at_two_replicas_creates_once_and_either_shows_the_secret() {
    let kw = Keyward::start(Stack::Replica).await;
    let other = kw.replica().await;
    assert_same_form_at_the_same_time_creates_once(&kw, &other).await;
}

on_both_stacks! {
    async fn same_form_at_the_same_time_creates_once(kw) {
        assert_same_form_at_the_same_time_creates_once(&kw, &kw).await;
    }

    async fn secret_is_shown_once_when_the_page_is_reloaded(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        for form in secret_forms(&mut owner).await {
            let before = created(&kw).await;
            let path = redirect_path(&submit(&mut owner, &form, "once").await);

            let shown = secret(&owner.get(&path).await);

            let after = created(&kw).await;
            assert_ne!(before, after, "{form:?}");
            assert!(shown.len() > 10 && !path.contains(&shown), "{path} {shown}");
            for _ in 0..2 {
                assert_not_shown(&owner.get(&path).await, WAS_SHOWN, &shown);
            }
            assert_eq!(after, created(&kw).await, "{form:?}");
        }
    }

    async fn form_that_is_sent_again_leads_to_its_first_result(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        for form in secret_forms(&mut owner).await {
            let first = redirect_path(&submit(&mut owner, &form, "once").await);
            let after = created(&kw).await;

            // The browser follows only the response to the second one.
            let second = redirect_path(&submit(&mut owner, &form, "once").await);
            let shown = secret(&owner.get(&second).await);
            let third = redirect_path(&submit(&mut owner, &form, "once").await);

            assert_eq!((&first, &first), (&second, &third), "{form:?}");
            assert_eq!(after, created(&kw).await, "{form:?}");
            assert_not_shown(&owner.get(&third).await, WAS_SHOWN, &shown);
        }
    }

    async fn other_form_creates_another_object(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let form = ("/keys".to_owned(), vec![("api", kw.create_api().await)]);

        let mut paths = Vec::new();
        for token in ["a", "b", "", ""] {
            paths.push(redirect_path(&submit(&mut owner, &form, token).await));
        }

        assert_eq!(kw.count_rows("keys").await, 4);
        paths.dedup();
        assert_eq!(paths.len(), 4, "{paths:?}");
    }

    async fn secret_is_shown_for_less_than_sixty_seconds(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        for form in secret_forms(&mut owner).await {
            let path = redirect_path(&submit(&mut owner, &form, "a").await);
            kw.clock.advance_ms(59_999);
            secret(&owner.get(&path).await);

            if form.0 == "/gateways" {
                continue; // The name is in use.
            }
            let path = redirect_path(&submit(&mut owner, &form, "b").await);
            kw.clock.advance_ms(60_000);
            for _ in 0..2 {
                assert_not_shown(&owner.get(&path).await, EXPIRED, "");
            }
        }
    }

    async fn secrets_are_deleted_after_a_minute_and_results_after_a_day(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let form = ("/keys".to_owned(), vec![("api", kw.create_api().await)]);
        let path = redirect_path(&submit(&mut owner, &form, "once").await);

        for (passed_ms, secrets, results) in
            [(60_000, 1, 1), (1, 0, 1), (DAY_MS - 60_001, 0, 1), (1, 0, 0)]
        {
            kw.clock.advance_ms(passed_ms);
            form_results::prune(&kw.app.context, 10).await.unwrap();
            assert_eq!(kw.count_rows("form_results WHERE sealed IS NOT NULL").await, secrets);
            assert_eq!(kw.count_rows("form_results").await, results, "{passed_ms}");
            if secrets == 0 && passed_ms == 1 && results == 1 {
                assert_not_shown(&owner.get(&path).await, EXPIRED, "");
            }
        }
    }

    async fn secret_is_sealed_and_shown_only_in_its_session(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let mut admin = owner.invite("adam@example.com", "admin").await;
        let mut elsewhere = Browser::new(&kw);
        elsewhere.sign_in(EMAIL, PASSWORD).await;
        let api = kw.create_api().await;
        let other_key = kw.create_key_in(&api, json!({})).await.id;
        let form = ("/keys".to_owned(), vec![("api", api)]);
        let path = redirect_path(&submit(&mut owner, &form, "once").await);
        let (_, form_id) = path.rsplit_once('/').unwrap();

        for visitor in [&mut admin, &mut elsewhere] {
            assert_not_shown(&visitor.get(&path).await, NOT_HERE, "");
        }
        let tampered = path.replace(form_id, &form_id.chars().rev().collect::<String>());
        let moved = workspace_path(&format!("/keys/{other_key}/secret/{form_id}"));
        for path in [&tampered, &moved] {
            assert_not_shown(&owner.get(path).await, NOT_HERE, "");
        }
        let mut forger = same_browser(&kw, &owner);
        forger.cookies.values_mut().for_each(|value| value.push('1'));
        assert!(redirect_path(&forger.get(&path).await).starts_with("/dashboard/login?next="));
        let head = owner.request(Request::head(path.as_str()), &path).body(Body::empty()).unwrap();
        assert_eq!(owner.send(head).await.status, 410);
        assert_eq!(kw.count_rows("form_results WHERE sealed IS NOT NULL").await, 1);
        let sealed = "form_results WHERE sealed LIKE";
        let shown = secret(&owner.get(&path).await);
        assert_eq!(kw.count_rows("form_results WHERE sealed IS NOT NULL").await, 0);

        // What is stored of another one does not contain it.
        let path = redirect_path(&submit(&mut owner, &form, "twice").await);
        let stored = kw.count_rows(format!("{sealed} '%\"%'").leak()).await;
        assert_eq!(stored, 0, "the secret is encrypted");
        assert_ne!(secret(&owner.get(&path).await), shown);
        owner.post("/dashboard/logout", &[]).await;
        assert_eq!(kw.count_rows("form_results WHERE created_id LIKE 'key_%'").await, 0);
    }

    async fn page_of_the_secret_of_a_withdrawn_invitation_shows_no_link(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let form = ("/members/invite".to_owned(), vec![("role", "viewer".to_owned())]);
        let path = redirect_path(&submit(&mut owner, &form, "once").await);
        let id = kw.list_texts("invitations", "id").await.pop().unwrap();

        owner.post(&workspace_path(&format!("/invitations/{id}/withdraw")), &[]).await;

        let page = owner.get(&path).await;
        assert_not_shown(&page, "This invitation was withdrawn or used.", "/dashboard/join/");
    }

    async fn form_without_a_secret_creates_once(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        for (path, fields, table) in [
            ("/apis", vec![("name", "payments")], "apis"),
            ("/imports", vec![("name", "elsewhere"), ("algorithm", "sha256")], "migrations"),
            ("/permissions", vec![("slug", "documents.read")], "permissions"),
            ("/roles", vec![("name", "reader")], "roles"),
            ("/identities", vec![("externalId", "user_1")], "identities"),
            ("/ratelimits", vec![("name", "requests")], "namespaces"),
        ] {
            let fields = fields.into_iter().map(|(name, value)| (name, value.to_owned()));
            let form = (path.to_owned(), fields.collect());
            let before = kw.count_rows(table).await;
            let mut again = same_browser(&kw, &owner);

            let (one, two) =
                tokio::join!(submit(&mut owner, &form, "once"), submit(&mut again, &form, "once"));
            let three = submit(&mut owner, &form, "once").await;

            let paths = [&one, &two, &three].map(redirect_path);
            assert_eq!((&paths[0], &paths[0]), (&paths[1], &paths[2]), "{path}");
            assert_eq!(owner.get(&paths[0]).await.status, 200, "{path}");
            assert_eq!(kw.count_rows(table).await, before + 1, "{path}");
        }
    }

    async fn credits_are_added_and_keys_are_imported_once(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({ "credits": { "remaining": 5 } })).await;
        let fields = vec![("operation", "increment".to_owned()), ("value", "10".to_owned())];
        let add = (format!("/keys/{}/credits", key.id), fields);
        let page = owner.post(&workspace_path("/imports"), &[("algorithm", "sha256")]).await;
        let path = redirect_path(&page);
        let import = between(&path, "/imports/", "?");
        let keys = format!("hash\n{}\n", "ab".repeat(32));
        let bring = (format!("/imports/{import}"), vec![("api", api), ("keys", keys)]);

        for _ in 0..2 {
            redirect_path(&submit(&mut owner, &add, "once").await);
        }
        let brought = submit(&mut owner, &bring, "once").await;
        let again = redirect_path(&submit(&mut owner, &bring, "once").await);

        let left = kw.v2("keys.getKey", json!({ "keyId": key.id })).await;
        assert_eq!(left.data()["credits"]["remaining"], 15);
        assert!(brought.status == 200 && brought.text.contains("Keys imported"), "{}", brought.text);
        assert!(again.ends_with(&format!("/imports/{import}?notice=import-repeated")), "{again}");
        assert!(owner.get(&again).await.text.contains("This form was sent before."));
        assert_eq!(kw.count_rows("keys").await, 2);
    }

    async fn every_form_that_creates_something_has_its_own_token(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let forms = secret_forms(&mut owner).await;
        let page = owner.post(&workspace_path("/imports"), &[("algorithm", "sha256")]).await;
        let import = redirect_path(&page);
        let api = kw.list_texts("apis", "id").await.remove(0);
        let rotations = forms.iter().map(|(path, _)| path.clone());
        let mut paths: Vec<_> = rotations.filter(|path| path.matches('/').count() > 2).collect();
        assert_eq!(paths.len(), 3);
        let key = between(&paths[0], "/keys/", "/").to_owned();
        paths.push(format!("/keys/{key}/credits"));
        paths.push(format!("/keys/new?api={api}"));
        paths.push(import.trim_start_matches(&workspace_path("")).to_owned());
        for path in [
            "/get-started", "/root-keys/new", "/members", "/gateways/new", "/apis/new", "/imports/new",
            "/permissions/new", "/roles/new", "/new-identity", "/ratelimits/new",
        ] {
            paths.push(path.to_owned());
        }

        let mut tokens = Vec::new();
        for path in paths.iter().chain(&paths) {
            let page = owner.get(&workspace_path(path)).await;
            assert_eq!(page.status, 200, "{path}");
            tokens.push(between(&page.text, "name=\"form-token\" value=\"", "\"").to_owned());
        }
        let count = tokens.len();
        tokens.sort();
        tokens.dedup();
        assert!(tokens.len() == count && tokens.iter().all(|token| token.len() > 20), "{tokens:?}");
    }
}
