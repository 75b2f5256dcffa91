//! The order of lists: by name or by creation, in both directions, over pages.

use serde_json::json;

use super::{Browser, between, redirect_path, workspace_path};
use crate::on_both_stacks;
use crate::support::Keyward;

/// The number of rows to create: one page has 25.
const ROWS: usize = 27;

/// Returns the names of the rows of a list, page by page.
async fn names(browser: &mut Browser<'_>, path: &str) -> Vec<String> {
    let (mut names, mut path) = (Vec::new(), workspace_path(path));
    loop {
        let page = browser.get(&path).await.text;
        let rows = page.split("<tr><th scope=\"row\"><a href=\"").skip(1);
        names.extend(rows.map(|row| {
            let link = between(row, ">", "</a>").replace("<code class=\"break\">", "");
            link.replace("</code>", "")
        }));
        let Some((_, next)) = page.split_once("rel=\"next\" href=\"") else { return names };
        path = between(next, "", "\"").replace("&#38;", "&");
        assert!(names.len() <= 4 * ROWS, "{path}: the pages have no end");
    }
}

/// Tests a list by name after the creation of rows with these names.
async fn assert_is_by_name(browser: &mut Browser<'_>, path: &str, created: &[String]) {
    let page = browser.get(&workspace_path(path)).await.text;
    let head = between(&page, "aria-sort=\"ascending\"><a href=\"", "\"").replace("&#38;", "&");
    assert_eq!(head, workspace_path(&format!("{path}?order=descending")));
    let mut expected = created.to_vec();
    expected.sort_unstable();
    assert_eq!(names(browser, path).await, expected, "{path}");
    expected.reverse();
    assert_eq!(names(browser, &format!("{path}?order=descending")).await, expected, "{path}");
    let page = browser.get(&head).await.text;
    let back = between(&page, "aria-sort=\"descending\"><a href=\"", "\"");
    assert_eq!(back, workspace_path(path));
    // A search keeps the order.
    assert!(page.contains("<input type=\"hidden\" name=\"order\" value=\"descending\">"), "{page}");
    let text = format!("{}1", &created[0][..4]);
    expected.retain(|name| name.to_lowercase().contains(&text));
    let searched = format!("{path}?q={}&order=descending", text.to_uppercase().replace(' ', "+"));
    assert_eq!(names(browser, &searched).await, expected, "{path}");
}

/// Names in no order, one of which begins with a capital letter.
fn mixed_names() -> Vec<String> {
    let name = |number: usize| {
        format!("{} {:02}", if number == 5 { "Row" } else { "row" }, number * 7 % ROWS)
    };
    (0..ROWS).map(name).collect()
}

async fn create_all(kw: &Keyward, operation: &str, field: &str, names: &[String]) {
    for name in names {
        let mut request = json!({ field: name });
        if operation == "permissions.createPermission" {
            request["slug"] = name.replace(' ', "_").into();
        }
        kw.v2(operation, request).await.data();
    }
}

on_both_stacks! {
    async fn lists_are_by_name_in_both_directions(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let all = mixed_names();
        create_all(&kw, "permissions.createRole", "name", &all).await;
        assert_is_by_name(&mut owner, "/roles", &all).await;
        create_all(&kw, "apis.createApi", "name", &all).await;
        assert_is_by_name(&mut owner, "/apis", &all).await;
        for name in &all {
            owner.post(&workspace_path("/ratelimits"), &[("name", name)]).await;
        }
        assert_is_by_name(&mut owner, "/ratelimits", &all).await;
    }

    async fn gateways_and_overrides_are_by_name(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let mut all = mixed_names();
        let check = json!({ "namespace": "mail", "identifier": "any", "limit": 1, "duration": 60_000 });
        kw.v2("ratelimit.limit", check).await.data();
        for name in &all {
            kw.v2("gateways.createPolicy", json!({ "name": name.replace(' ', "-"), "apiIds": [api] })).await.data();
            let one = json!({ "namespace": "mail", "identifier": name, "limit": 1, "duration": 60_000 });
            kw.v2("ratelimit.setOverride", one).await.data();
        }
        let dashed: Vec<_> = all.iter().map(|name| name.replace(' ', "-")).collect();
        assert_is_by_name(&mut owner, "/gateways", &dashed).await;
        let list = owner.get(&workspace_path("/ratelimits")).await.text;
        let namespace = between(&list, "<tr><th scope=\"row\"><a href=\"/dashboard/ws_default", "\"").to_owned();
        all.sort_unstable();
        assert_eq!(names(&mut owner, &namespace).await, all);
    }

    async fn renaming_an_api_between_pages_repeats_no_other(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let all: Vec<_> = (0..ROWS).map(|number| format!("row {number:02}")).collect();
        create_all(&kw, "apis.createApi", "name", &all).await;
        let page = owner.get(&workspace_path("/apis")).await.text;
        let next = between(&page, "rel=\"next\" href=\"", "\"").replace("&#38;", "&");

        kw.execute_sql("UPDATE apis SET name = 'row 00' WHERE name = 'row 25'".to_owned()).await;

        let page = owner.get(&next).await.text;
        assert!(page.contains(">row 26</a>") && !page.contains(">row 24</a>"), "{page}");
    }

    async fn permissions_are_by_slug(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let all = mixed_names();
        create_all(&kw, "permissions.createPermission", "name", &all).await;
        let mut slugs: Vec<_> = all.iter().map(|name| name.replace(' ', "_")).collect();
        slugs.sort_unstable();
        assert_eq!(names(&mut owner, "/permissions").await, slugs);
        slugs.reverse();
        assert_eq!(names(&mut owner, "/permissions?order=descending").await, slugs);
    }

    async fn apis_of_one_name_are_each_listed_once(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let same = vec!["same".to_owned(); 2 * ROWS];
        create_all(&kw, "apis.createApi", "name", &same).await;
        create_all(&kw, "apis.createApi", "name", &["other".into()]).await;

        for (path, last) in [("/apis", "same"), ("/apis?order=descending", "other")] {
            let found = names(&mut owner, path).await;
            assert_eq!((found.len(), found[found.len() - 1].as_str()), (2 * ROWS + 1, last), "{path}");
        }
    }

    async fn imports_are_by_creation_in_both_directions(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let all = mixed_names();
        for name in &all {
            owner.post(&workspace_path("/imports"), &[("name", name), ("algorithm", "sha256")]).await;
            kw.clock.advance_ms(1);
        }
        let mut expected = all.clone();
        assert_eq!(names(&mut owner, "/imports?q=row&order=ascending").await, expected);
        expected.reverse();
        assert_eq!(names(&mut owner, "/imports?q=row").await, expected);
        let page = owner.get(&workspace_path("/imports?q=row")).await.text;
        let head = between(&page, "aria-sort=\"descending\"><a href=\"", "\"").replace("&#38;", "&");
        assert_eq!(head, workspace_path("/imports?q=row&order=ascending"));
        let page = owner.get(&head).await.text;
        assert!(page.contains("<input type=\"hidden\" name=\"order\" value=\"ascending\">"), "{page}");
    }

    async fn order_of_keys_and_identities_survives_a_filter(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        kw.create_key_in(&api, json!({ "externalId": "user_1" })).await;
        let field = |order: &str| format!("<input type=\"hidden\" name=\"order\" value=\"{order}\">");

        let page = owner.get(&workspace_path("/keys?order=ascending")).await.text;
        assert!(page.contains(&field("ascending")), "{page}");
        let filter = [("order", "ascending"), ("q", ""), ("api", api.as_str())];
        let filtered = redirect_path(&owner.post(&workspace_path("/keys/search"), &filter).await);
        let page = owner.get(&filtered).await.text;
        assert!(page.contains("aria-sort=\"ascending\"") && page.contains(&field("ascending")), "{page}");
        let page = owner.get(&workspace_path("/identities?order=descending")).await.text;
        assert!(page.contains(&field("descending")), "{page}");
    }

    async fn root_keys_are_by_creation_in_both_directions(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let all = mixed_names();
        for name in &all {
            owner.post(&workspace_path("/root-keys"), &[("name", name), ("permission", "api.*.verify_key")]).await;
            kw.clock.advance_ms(1);
        }
        let mut expected = all.clone();
        assert_eq!(names(&mut owner, "/root-keys?q=row&order=ascending").await, expected);
        expected.reverse();
        assert_eq!(names(&mut owner, "/root-keys?q=row").await, expected);
        let page = owner.get(&workspace_path("/root-keys")).await.text;
        assert!(page.contains("aria-sort=\"descending\""), "{page}");
    }
}
