//! The navigation of a workspace, the search that leads to pages and actions, and the typeface.

use axum::body::Body;
use axum::http::Request;
use domain::{root_keys, users};
use serde_json::json;

use super::{Browser, EMAIL, PASSWORD, between, form_encode, redirect_path, workspace_path};
use crate::on_both_stacks;

/// A text that may be a full key, of no key.
const UNKNOWN_KEY: &str = "live_3xTw9ZbV5yUq1NpLkR7a2C";

const WORKSPACE_COOKIE: &str = "__Host-keyward-workspace";

/// The name of the workspace that the navigation of a page shows.
fn read_workspace(page: &str) -> &str {
    between(page, "<span class=\"hidden\">Workspace: </span><span>", "<")
}

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
                    "Observe: Overview, Analytics, Logs, Audit log",
                    "Settings: Root keys, Members, Imports, Workspace",
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

        let menu = between(&page, "<div class=\"account\">", "</div>");
        assert!(menu.contains(EMAIL), "{menu}");
        assert!(menu.contains("href=\"/dashboard/account\" aria-current=\"page\""), "{menu}");
        assert!(menu.contains("action=\"/dashboard/logout\"") && menu.contains("Sign out"), "{menu}");
    }

    async fn workspace_that_was_visited_last_is_shown_again(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let second = root_keys::create_workspace(&kw.app.context, "second").await.unwrap();
        let link = users::create_operator_invitation(&kw.app.context, &second).await.unwrap();
        owner.accept_invitation(link.expose(), EMAIL, PASSWORD).await;
        assert_eq!(owner.cookies[WORKSPACE_COOKIE], "ws_default");

        let visited = owner.get(&format!("/dashboard/{second}/logs")).await;
        let cookie = format!("{WORKSPACE_COOKIE}={second}; Path=/; Max-Age=31536000; Secure; HttpOnly; SameSite=Lax");
        assert_eq!(visited.headers["set-cookie"], cookie.as_str());
        // What a page loads by itself is no visit.
        let path = workspace_path("/logs");
        let polled = owner.request(Request::get(&path).header("hx-request", "true"), &path);
        let polled = owner.send(polled.body(Body::empty()).unwrap()).await;
        assert!(polled.status == 200 && !polled.headers.contains_key("set-cookie"));
        let missing = owner.get("/dashboard/ws_none").await;
        assert!(missing.status == 404 && !missing.headers.contains_key("set-cookie"));

        assert_eq!(redirect_path(&owner.get("/dashboard").await), format!("/dashboard/{second}"));
        for path in ["/dashboard/account", "/dashboard/ws_none"] {
            assert_eq!(read_workspace(&owner.get(path).await.text), "second", "{path}");
        }
    }

    async fn last_workspace_is_ignored_when_the_user_is_no_member(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let other = root_keys::create_workspace(&kw.app.context, "a workspace of others").await.unwrap();

        for workspace in [other.as_str(), "ws_none", ""] {
            owner.cookies.insert(WORKSPACE_COOKIE.into(), workspace.into());
            assert_eq!(redirect_path(&owner.get("/dashboard").await), workspace_path(""));
            assert_eq!(read_workspace(&owner.get("/dashboard/account").await.text), "default");
        }
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

    async fn search_lists_pages_and_the_actions_that_the_user_may_perform(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let mut viewer = owner.invite("grace@example.com", "viewer").await;
        let found = |page: &str| {
            let results = between(page, "id=\"found\"", "</main>");
            let names = results.split("<span>").skip(1).map(|rest| rest.split('<').next().unwrap());
            names.map(str::to_owned).collect::<Vec<_>>().join(", ")
        };

        for (text, of_owner, of_viewer) in [
            ("", "APIs, Keys, ", "APIs, Keys, "),
            ("ROOT key", "Root keys, Create root key", "Root keys"),
            ("create i", "Create identity, Create import", ""),
            ("explain", "Explain a request", "Explain a request"),
        ] {
            let path = workspace_path(&format!("/search?{}", form_encode(&[("q", text)])));
            let pages = [owner.get(&path).await.text, viewer.get(&path).await.text].map(|page| found(&page));
            if text.is_empty() {
                assert!(pages[0].starts_with(of_owner) && pages[1].starts_with(of_viewer), "{pages:?}");
                assert!(pages[0].contains("Create key") && !pages[1].contains("Create"), "{pages:?}");
            } else {
                assert_eq!(pages, [of_owner, of_viewer], "{text}");
            }
        }
    }

    async fn live_search_finds_objects_and_leads_to_a_full_key(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({ "name": "night job" })).await;
        let live = workspace_path("/search/live");

        let by_name = owner.post(&live, &[("q", "night")]).await;
        let by_key = owner.post(&live, &[("q", &key.key)]).await;
        let unknown = owner.post(&live, &[("q", UNKNOWN_KEY)]).await;

        assert_eq!(by_name.status, 200);
        assert!(by_name.text.contains(&format!("/keys/{}\"", key.id)), "{}", by_name.text);
        assert_eq!(by_key.status, 200);
        assert_eq!(by_key.text, "");
        assert_eq!(by_key.headers["hx-redirect"], workspace_path(&format!("/keys/{}", key.id)).as_str());
        assert_eq!(unknown.status, 200);
        assert!(unknown.text.contains("Key not found in this workspace."), "{}", unknown.text);
        assert!(!unknown.text.contains(UNKNOWN_KEY), "{}", unknown.text);
    }
}
