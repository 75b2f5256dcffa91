//! What holds for every page: where forms may come from, headers, bounds, error pages.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use domain::app::App;
use foundation::clock::Clock;
use foundation::config::Config;
use futures_util::stream;
use http_body_util::BodyExt as _;
use keyward::http::HttpService;

use super::{Browser, EMAIL, PASSWORD, between, form_encode, workspace_path};
use crate::on_both_stacks;
use crate::support::{Keyward, NOON, Stack};

/// Every page that is asked for by GET, and every act.
const PAGES: [&str; 12] = [
    "/dashboard/login",
    "/dashboard/join/none",
    "/dashboard/account",
    "/dashboard/ws_default",
    "/dashboard/ws_default/get-started",
    "/dashboard/ws_default/analytics",
    "/dashboard/ws_default/root-keys",
    "/dashboard/ws_default/root-keys/new",
    "/dashboard/ws_default/members",
    "/dashboard/ws_default/workspace",
    "/dashboard/nothing/here",
    "/dashboard",
];
const ACTS: [&str; 16] = [
    "/dashboard/login",
    "/dashboard/logout",
    "/dashboard/join/none",
    "/dashboard/account/password",
    "/dashboard/account/sessions/ses_1/end",
    "/dashboard/account/sessions/end-others",
    "/dashboard/ws_default/root-keys",
    "/dashboard/ws_default/root-keys/key_1/revoke",
    "/dashboard/ws_default/root-keys/key_1/rotate",
    "/dashboard/ws_default/get-started/api",
    "/dashboard/ws_default/get-started/root-key",
    "/dashboard/ws_default/get-started/key",
    "/dashboard/ws_default/get-started/verify",
    "/dashboard/ws_default/members/invite",
    "/dashboard/ws_default/members/user_1/remove",
    "/dashboard/ws_default/workspace",
];

on_both_stacks! {
    async fn every_page_says_what_a_browser_may_do_with_it(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;

        for path in PAGES {
            let page = owner.get(path).await;

            let header = |name: &str| page.headers[name].to_str().unwrap().to_owned();
            let policy = header("content-security-policy");
            assert!(policy.starts_with("default-src 'none';"), "{path}");
            assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"), "{path}");
            assert_eq!(header("x-content-type-options"), "nosniff", "{path}");
            assert_eq!(header("referrer-policy"), "same-origin", "{path}");
            assert_eq!(header("cross-origin-opener-policy"), "same-origin", "{path}");
            assert_eq!(header("cache-control"), "no-store", "{path}");
            assert!(page.headers.contains_key("permissions-policy"), "{path}");
            assert!(header("x-request-id").starts_with("req_"), "{path}");
            assert!(!page.text.contains("<style") && !page.text.contains(" style="), "{path}");
            assert!(!page.text.contains("<script>") && !page.text.contains(" onclick="), "{path}");
        }
    }

    async fn a_form_from_another_page_changes_nothing(kw) {
        let owner = Browser::sign_in_owner(&kw).await;
        let before = kw.count_audit_entries().await;

        for path in ACTS {
            let fields = [("csrf", owner.csrf.as_str()), ("role", "owner")];
            let sent = |pairs: &[(&str, &str)]| {
                let form = pairs.iter().fold(owner.form(path), |form, (name, value)| {
                    form.header(*name, *value)
                });
                form.body(Body::from(form_encode(&fields))).unwrap()
            };
            let here = "https://keyward.test";
            for pairs in [
                &[][..],
                &[("origin", "null")],
                &[("origin", "https://evil.test")],
                &[("sec-fetch-site", "cross-site")],
                &[("origin", here), ("sec-fetch-site", "same-site")],
            ] {
                let refused = kw.send(sent(pairs)).await;
                assert_eq!(refused.status, 403, "{path} {pairs:?}");
                assert!(!refused.headers.contains_key("set-cookie"), "{path} {pairs:?}");
            }
        }

        assert_eq!(kw.count_audit_entries().await, before);
    }

    async fn a_form_without_the_token_of_its_page_changes_nothing(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let before = kw.count_audit_entries().await;

        for path in ACTS {
            for token in ["", "x", &"0".repeat(64)] {
                owner.csrf = token.to_owned();
                let refused = owner.post(path, &[("role", "owner")]).await;
                assert_eq!(refused.status, 403, "{path}");
                assert!(refused.text.contains("The form has expired"), "{path}");
            }
        }

        assert_eq!(kw.count_audit_entries().await, before);
    }

    async fn form_changes_nothing_when_its_session_ends_before_it_has_arrived(kw) {
        let owner = Browser::sign_in_owner(&kw).await;
        let session = owner.load_session().await;
        let before = kw.count_audit_entries().await;
        let (app, csrf) = (kw.app.clone(), owner.csrf.clone());
        let slow_body = stream::once(async move {
            let mut tx = app.context.store.begin().await.unwrap();
            assert!(tx.delete_session(&session.user.id, &session.session.id).await.unwrap());
            app.context.commit(tx).await.unwrap();
            Ok::<_, Infallible>(form_encode(&[("csrf", csrf.as_str()), ("name", "payments")]))
        });
        let form = owner.form(&workspace_path("/apis")).header("origin", "https://keyward.test");

        let late = kw.send(form.body(Body::from_stream(slow_body)).unwrap()).await;

        assert_eq!((late.status.as_u16(), &late.headers["location"]), (303, &"/dashboard/login".parse().unwrap()));
        assert_eq!((kw.count_audit_entries().await, kw.count_rows("apis").await), (before, 0));
    }

    async fn the_token_of_one_visitor_is_worth_nothing_to_another(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let mut stranger = Browser::new(&kw);
        stranger.get("/dashboard/login").await;

        owner.csrf = stranger.csrf.clone();

        assert_eq!(owner.post(&workspace_path("/members/invite"), &[("role", "owner")]).await.status, 403);
    }

    async fn nothing_changes_by_get(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let before = kw.count_audit_entries().await;

        for path in ACTS.iter().chain(&PAGES) {
            owner.get(&format!("{path}?role=owner&csrf={}", owner.csrf)).await;
        }

        assert_eq!(kw.count_audit_entries().await, before);
        assert!(owner.is_signed_in().await);
    }

    async fn who_is_not_signed_in_is_sent_to_sign_in(kw) {
        let mut stranger = Browser::new(&kw);

        for path in PAGES.iter().filter(|path| path.contains("ws_default") || path.ends_with("account")) {
            let sent = stranger.get(path).await;
            assert_eq!(sent.status, 303, "{path}");
            let login = format!("/dashboard/login?{}", form_encode(&[("next", *path)]));
            assert_eq!(sent.headers["location"], login, "{path}");
        }
        assert_eq!(stranger.get("/dashboard").await.headers["location"], "/dashboard/login");
    }

    async fn sign_in_leads_to_the_page_that_was_requested(kw) {
        Browser::sign_in_owner(&kw).await;
        let mut visitor = Browser::new(&kw);
        let path = workspace_path("/apis?q=a+b");
        let fields = |next| [("email", EMAIL), ("password", PASSWORD), ("next", next)];

        let sent = visitor.get(&format!("{path}&notice=api-created")).await;
        let login = format!("/dashboard/login?{}", form_encode(&[("next", path.as_str())]));
        assert_eq!(sent.headers["location"], login);
        let form = visitor.get(&login).await.text;
        let field = format!("name=\"next\" value=\"{path}\"");
        assert!(form.contains(&field), "{form}");
        let wrong = [("email", EMAIL), ("password", "wrong"), ("next", path.as_str())];
        let wrong = visitor.post("/dashboard/login", &wrong).await;
        assert!(wrong.status == 422 && wrong.text.contains(&field), "{}", wrong.text);
        let signed_in = visitor.post("/dashboard/login", &fields(path.as_str())).await;
        assert_eq!((signed_in.status.as_u16(), signed_in.headers["location"].to_str().unwrap()), (303, path.as_str()));
        // The page to sign in leads there too, for example in another tab.
        assert_eq!(visitor.get(&login).await.headers["location"], path);

        for other in ["//evil.example", "https://evil.example/dashboard/", "/dashboard/account/oidc"] {
            let mut visitor = Browser::new(&kw);
            let form = visitor.get(&format!("/dashboard/login?{}", form_encode(&[("next", other)]))).await.text;
            assert!(!form.contains("name=\"next\""), "{form}");
            let signed_in = visitor.post("/dashboard/login", &fields(other)).await;
            assert_eq!((signed_in.status.as_u16(), signed_in.headers["location"].to_str().unwrap()), (303, "/dashboard"));
        }
    }

    async fn a_browser_at_the_root_is_sent_to_the_dashboard(kw) {
        let ask = async |method: &str, path: &str, accept: Option<&str>| {
            let request = Request::builder().method(method).uri(path);
            let request = accept.into_iter().fold(request, |request, accept| request.header("accept", accept));
            kw.send(request.body(Body::empty()).unwrap()).await
        };
        let page = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

        for (method, accept) in [("GET", page), ("HEAD", page), ("GET", "application/json, Text/HTML;q=0.5")] {
            let sent = ask(method, "/", Some(accept)).await;
            assert_eq!(sent.status, 302, "{method} {accept}");
            assert_eq!((&sent.headers["location"], &sent.headers["vary"]), (&"/dashboard".parse().unwrap(), &"accept".parse().unwrap()));
        }
        for (method, path, accept) in [
            ("GET", "/", None),
            ("GET", "/", Some("*/*")),
            ("GET", "/", Some("application/json")),
            ("GET", "/", Some("text/html-like")),
            ("POST", "/", Some(page)),
            ("GET", "/nothing", Some(page)),
            ("GET", "//", Some(page)),
        ] {
            let reply = ask(method, path, accept).await;
            assert_eq!(reply.status, 404, "{method} {path} {accept:?}");
            assert!(reply.text.contains("\"error\""), "{}", reply.text);
        }
    }

    async fn an_error_has_a_page_with_the_id_of_the_request(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;

        let absent = owner.get("/dashboard/nothing/here").await;
        assert_eq!(absent.status, 404);
        let wrong = owner.get("/dashboard/logout").await;
        assert_eq!(wrong.status, 405);
        assert_eq!(wrong.headers["allow"], "POST");
        let large = "x".repeat(129 * 1024);
        let large = owner.post("/dashboard/login", &[("email", &large)]).await;
        assert_eq!(large.status, 413);
        assert!(large.text.contains("larger than the maximum of 128 KiB"), "{}", large.text);
        for page in [absent, wrong, large] {
            let id = page.headers["x-request-id"].to_str().unwrap();
            assert!(page.text.contains(id) && page.text.contains("<h1>"), "{}", page.text);
        }
    }

    async fn an_error_of_a_user_has_the_navigation_of_the_workspace(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;

        for path in ["/dashboard/ws_default/keys/key_none", "/dashboard/ws_none/keys", "/dashboard/nothing?notice=api-updated"] {
            let page = owner.get(path).await;

            assert_eq!(page.status, 404, "{path}");
            assert!(page.text.contains("href=\"/dashboard/ws_default/keys\""), "{path}: {}", page.text);
            assert!(page.text.contains("<title>Page not found · Keyward</title>"), "{path}");
            assert!(page.text.contains("href=\"/dashboard\">Go to dashboard"), "{path}");
            assert!(!page.text.contains("aria-current") && !page.text.contains("Settings saved"), "{path}");
        }

        let of_stranger = Browser::new(&kw).get("/dashboard/nothing/here").await;
        assert_eq!(of_stranger.status, 404);
        assert!(!of_stranger.text.contains("ws_default"), "{}", of_stranger.text);
    }

    async fn an_expired_form_leads_back_to_its_page(kw) {
        let owner = Browser::sign_in_owner(&kw).await;
        let post = async |referrer: &'static str, origin: &'static str| {
            let form = owner.form("/dashboard/ws_default/apis").header("referer", referrer);
            let reply = kw.send(form.header("origin", origin).body(Body::from("csrf=old")).unwrap()).await;
            assert_eq!(reply.status, 403, "{referrer}");
            reply.text
        };

        let page = post("https://keyward.test/dashboard/ws_default/apis/new?a=1&b=2", "https://keyward.test").await;
        assert!(page.contains("<h1>Form expired</h1>"), "{page}");
        assert!(page.contains("href=\"/dashboard/ws_default/apis/new?a=1&#38;b=2\">Back to the form"), "{page}");
        for (referrer, origin) in [
            ("https://keyward.test/elsewhere", "https://keyward.test"),
            ("https://evil.test/dashboard/ws_default/members", "https://evil.test"),
        ] {
            let page = post(referrer, origin).await;
            assert!(!page.contains("Back to the form"), "{page}");
            assert!(page.contains("Go to dashboard"), "{page}");
        }
    }

    async fn what_no_database_can_hold_is_as_good_as_absent(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;

        for path in ["/root-keys/key_%00", "%00", "/root-keys/%ff", "/root-keys/new%00"] {
            assert!(owner.get(&workspace_path(path)).await.status.is_client_error(), "{path}");
        }
        for path in ["/root-keys?q=%00&from=%00", "/root-keys/new?find-api=%00&on-api=%00&add=api+%00"] {
            assert_eq!(owner.get(&workspace_path(path)).await.status, 200, "{path}");
        }
        for (name, value) in [("name", "a\0b"), ("permission", "api.\0.read_api")] {
            let fields = [("permission", "api.*.read_api"), (name, value)];
            let told = owner.post(&workspace_path("/root-keys"), &fields).await;
            assert!(told.status.as_u16() < 500, "{name}");
        }
        let email = "a\0@example.com";
        let told = owner.post("/dashboard/login", &[("email", email), ("password", "\0")]).await;
        assert_eq!(told.status, 422);
    }

    async fn a_method_that_no_page_has_is_refused(kw) {
        let request = Request::delete("/dashboard/account").body(Body::empty()).unwrap();

        let refused = kw.send(request).await;

        assert_eq!(refused.status, 405);
        assert_eq!(refused.headers["allow"], "GET, HEAD, POST");
        assert!(refused.headers.contains_key("content-security-policy"));
    }

    async fn assets_are_kept_for_good_under_the_hash_of_their_content(kw) {
        let mut stranger = Browser::new(&kw);
        let page = stranger.get("/dashboard/login").await;
        let css = between(&page.text, "rel=\"stylesheet\" href=\"", "\"");

        let asset = stranger.get(css).await;
        let other = stranger.get(&css.replace(between(css, "assets/", "/"), "0123456789abcdef")).await;

        assert_eq!(asset.status, 200);
        assert_eq!(asset.headers["content-type"], "text/css; charset=utf-8");
        assert_eq!(asset.headers["cache-control"], "public, max-age=31536000, immutable");
        assert_eq!(other.status, 404);
    }

    async fn who_keeps_no_cookies_is_told_what_they_need(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        owner.post("/dashboard/logout", &[]).await;
        let mut forgetful = Browser::new(&kw);
        forgetful.get("/dashboard/login").await;
        forgetful.cookies.clear();

        let refused =
            forgetful.post("/dashboard/login", &[("email", EMAIL), ("password", PASSWORD)]).await;

        assert_eq!(refused.status, 400);
        assert!(refused.text.contains("require https"), "{}", refused.text);
    }
}

#[tokio::test]
async fn while_the_database_is_away_a_page_says_so() {
    let settings = Config::default().validate().unwrap();
    // Its store is not open, as that of a replica whose Postgres is away.
    let (app, _announcements) = App::new(settings, Clock::fixed_at(NOON)).unwrap();
    let paths = HttpService::new(Arc::new(app));
    let request = Request::get("/dashboard").header("cookie", "__Host-keyward-session=token");

    let answer = paths.answer(request.body(Body::empty()).unwrap()).await;

    assert_eq!(answer.status(), 503);
    assert!(answer.headers().contains_key("retry-after"));
    let page = answer.into_body().collect().await.unwrap().to_bytes();
    let page = String::from_utf8_lossy(&page);
    assert!(page.contains("Service unavailable") && page.contains("req_"), "{page}");
    assert!(page.contains("href=\"/dashboard\">Try again"), "{page}");
}

#[tokio::test]
async fn a_form_is_taken_where_the_public_address_is_another_than_the_servers_own() {
    let kw = Keyward::start_with(Stack::Embedded, |settings| {
        settings.public_url = "https://keys.example".into();
    })
    .await;
    let mut owner = Browser::sign_in_owner(&kw).await;
    let body = Body::from(form_encode(&[("csrf", owner.csrf.as_str())]));
    let form = owner.form("/dashboard/logout").header("origin", "https://keys.example");

    let out = owner.send(form.body(body).unwrap()).await;

    assert_eq!(out.status, 303);
    assert!(!owner.is_signed_in().await);
}
