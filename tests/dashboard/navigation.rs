//! The navigation of a workspace, and the typeface.

use super::{Browser, EMAIL, between};
use crate::on_both_stacks;

/// The headings of the navigation, each with its entries.
fn read_navigation(page: &str) -> Vec<(String, Vec<String>)> {
    let navigation = between(page, "<nav aria-label=\"Main\">", "</nav>");
    navigation
        .split("<p id=\"nav-")
        .skip(1)
        .map(|group| {
            let entries = group.split("</svg>").skip(1);
            let entries = entries.map(|entry| entry.split('<').next().unwrap().to_owned());
            (between(group, "\">", "<").to_owned(), entries.collect())
        })
        .collect()
}

on_both_stacks! {
    async fn navigation_has_three_groups_and_marks_the_current_page(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;

        for (path, current) in [("/keys/new", Some("keys")), ("/audit", Some("audit")), ("/search", None)] {
            let page = owner.get(&format!("/dashboard/ws_default{path}")).await.text;

            let groups = read_navigation(&page);
            let named = |group: &(String, Vec<String>)| format!("{}: {}", group.0, group.1.join(", "));
            assert_eq!(
                groups.iter().map(named).collect::<Vec<_>>(),
                [
                    "Build: APIs, Keys, Identities, Permissions, Rate limits, Gateways",
                    "Observe: Overview, Analytics, Audit log",
                    "Settings: Root keys, Members, Imports",
                ]
            );
            let marked = between(&page, "<nav aria-label=\"Main\">", "</nav>");
            assert_eq!(marked.matches("aria-current").count(), usize::from(current.is_some()), "{path}");
            if let Some(current) = current {
                assert!(marked.contains(&format!("/ws_default/{current}\" aria-current=\"page\"")), "{path}");
            }
            assert!(page.contains("href=\"/dashboard/ws_default/search\""), "{path}");
        }
    }

    async fn account_menu_has_the_account_and_sign_out(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;

        let page = owner.get("/dashboard/account").await.text;

        let menu = between(&page, "<details class=\"menu account\">", "</details>");
        assert!(menu.contains(EMAIL), "{menu}");
        assert!(menu.contains("href=\"/dashboard/account\" aria-current=\"page\""), "{menu}");
        assert!(menu.contains("action=\"/dashboard/logout\"") && menu.contains("Sign out"), "{menu}");
    }

    async fn typeface_is_served_from_the_paths_in_the_style_sheet(kw) {
        let mut stranger = Browser::new(&kw);
        let page = stranger.get("/dashboard/login").await;
        assert!(page.headers["content-security-policy"].to_str().unwrap().contains("font-src 'self';"));
        let preloaded = between(&page.text, "rel=\"preload\" href=\"", "\"");
        let css = stranger.get(between(&page.text, "rel=\"stylesheet\" href=\"", "\"")).await.text;

        let fonts: Vec<&str> = css.split("url(\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();

        assert_eq!(fonts.len(), 2, "{fonts:?}");
        assert!(fonts.contains(&preloaded), "{fonts:?}");
        for font in fonts {
            let font = stranger.get(font).await;
            assert_eq!(font.status, 200);
            assert_eq!(font.headers["content-type"], "font/woff2");
            assert_eq!(font.headers["cache-control"], "public, max-age=31536000, immutable");
        }
    }
}
