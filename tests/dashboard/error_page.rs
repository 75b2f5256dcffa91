//! The pages to which the errors of the API link, and where the error of a form leads back to.

use axum::body::Body;
use axum::http::HeaderValue;
use foundation::error::Code;
use serde_json::json;

use super::audit::entry;
use super::{Browser, between, redirect_path, workspace_path};
use crate::on_both_stacks;

/// Submits an expired form from a page, follows the link back to the form, and returns the path of that page.
async fn open_form(owner: &mut Browser<'_>, address: &str, referrer: &str) -> String {
    let form = owner.form(address).header("origin", "https://keyward.test");
    let form = form.header("referer", format!("https://keyward.test{referrer}"));
    let page = owner.send(form.body(Body::from("csrf=old")).unwrap()).await;
    assert_eq!(page.status, 403, "{address}");
    let (before, _) = page.text.split_once("\">Back to the form").expect("a link");
    let mut path = before.rsplit_once("href=\"").expect("a path").1.to_owned();
    let mut reply = owner.get(&path).await;
    if reply.status == 303 {
        path = redirect_path(&reply);
        reply = owner.get(&path).await;
    }
    assert_eq!(reply.status, 200, "{address}: {path}");
    path
}

on_both_stacks! {
    async fn every_error_has_a_page_in_the_style_of_the_dashboard_without_a_session(kw) {
        let mut stranger = Browser::new(&kw);
        let login = stranger.get("/dashboard/login").await;
        let css = between(&login.text, "rel=\"stylesheet\" href=\"", "\"");

        for code in Code::ALL {
            let name = code.name();
            let page = stranger.get(&format!("/errors/{name}")).await;

            assert_eq!(page.status, 200, "{name}");
            assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
            assert_eq!(page.headers.get("content-security-policy"), login.headers.get("content-security-policy"));
            assert_eq!(page.headers.get("x-frame-options"), Some(&HeaderValue::from_static("DENY")));
            assert!(!page.headers.contains_key("set-cookie"), "{name}");
            assert!(page.text.contains(css), "{name}");
            assert!(page.text.contains(&format!("<title>{name} · Errors · Keyward</title>")), "{name}");
            assert!(page.text.contains(&format!("Status {} · {}", code.status(), code.title())), "{name}");
            let text = between(&page.text, "<div class=\"prose\">", "</div>");
            assert!(text.starts_with("<p>") && !text.contains('`') && !text.contains("**"), "{name}: {text}");
        }
    }

    async fn error_of_a_form_that_was_shown_again_leads_back_to_it(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let key = format!("/keys/{}", kw.create_key(json!({})).await.id);
        let fields = [("name", "old"), ("algorithm", "sha256")];
        let import = redirect_path(&owner.post(&workspace_path("/imports"), &fields).await);
        let import = between(&import, "/ws_default", "?").to_owned();
        let entry = entry(&mut owner, "key.create").await;
        let entry = between(&entry, "/ws_default", "?").to_owned();

        let nested = [(&key, "/credits", "/credits"), (&key, "/enabled", ""), (&import, "/preview", ""), (&entry, "/undo", "")];
        let nested = nested.map(|(parent, tail, page)| (format!("{parent}{tail}"), format!("{parent}{page}")));
        let others = [
            ("/keys/bulk", "/keys"), ("/keys/bulk/do", "/keys"), ("/keys/bulk/undo", "/keys"),
            ("/members/invite", "/members"),
            ("/members/user_1/role", "/members"), ("/invitations/inv_1/withdraw", "/members"),
            ("/get-started/api", "/get-started"), ("/get-started/root-key", "/get-started"),
            ("/get-started/key", "/get-started"), ("/get-started/verify", "/get-started"),
            ("/apis", "/apis/new"), ("/gateways", "/gateways/new"), ("/identities", "/new-identity"),
            ("/imports", "/imports/new"), ("/keys", "/keys/new"), ("/permissions", "/permissions/new"),
            ("/ratelimits", "/ratelimits/new"), ("/roles", "/roles/new"), ("/root-keys", "/root-keys/new"),
        ];
        let others = others.map(|(address, page)| (address.to_owned(), page.to_owned()));
        for (address, page) in nested.into_iter().chain(others) {
            let address = workspace_path(&address);
            let found = open_form(&mut owner, &address, &address).await;
            assert_eq!(found, workspace_path(&page), "{address}");
        }
        for rest in ["/password", "/sessions/end-others", "/sessions/ses_1/end", "/oidc/unlink"] {
            let address = format!("/dashboard/account{rest}");
            assert_eq!(open_form(&mut owner, &address, &address).await, "/dashboard/account", "{rest}");
        }
        // The form of a list is sent to another address.
        let (list, bulk) = (workspace_path("/keys"), workspace_path("/keys/bulk"));
        assert_eq!(open_form(&mut owner, &bulk, &list).await, list);
    }

    async fn an_unknown_error_has_no_page(kw) {
        let reply = Browser::new(&kw).get("/errors/no_such_error").await;

        assert_eq!(reply.status, 404, "{}", reply.text);
        assert!(reply.text.contains("/errors/not_found"), "{}", reply.text);
    }
}
