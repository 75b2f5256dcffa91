//! The pages to which the errors of the API link.

use axum::http::HeaderValue;
use foundation::error::Code;

use super::{Browser, between};
use crate::on_both_stacks;

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

    async fn an_unknown_error_has_no_page(kw) {
        let reply = Browser::new(&kw).get("/errors/no_such_error").await;

        assert_eq!(reply.status, 404, "{}", reply.text);
        assert!(reply.text.contains("/errors/not_found"), "{}", reply.text);
    }
}
