//! The address of the list of keys while the user types a search.

use serde_json::json;

use super::*;
use crate::on_both_stacks;

/// A text that may be a key, and is none.
const UNKNOWN_KEY: &str = "live_3xTw9ZbV5yUq1NpLkR7a2C";

on_both_stacks! {
    async fn live_search_replaces_the_address_by_that_of_the_list_without_what_may_be_a_key(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        kw.create_key_in(&api, json!({ "name": "night & day" })).await;
        let live = workspace_path("/keys/search/live");
        let padded = format!(" {UNKNOWN_KEY} ");
        owner.get(&workspace_path("/keys")).await;

        for (text, state, expected) in [
            ("night &", "active", "/keys?q=night+%26&state=active"),
            ("night", "", "/keys?q=night"),
            ("", "", "/keys"),
            (UNKNOWN_KEY, "active", "/keys?state=active"),
            (padded.as_str(), "", "/keys"),
        ] {
            let page = owner.post(&live, &[("q", text), ("api", ""), ("state", state)]).await;
            assert_eq!(page.status, 200, "{}", page.text);
            assert_eq!(page.headers["hx-replace-url"].to_str().unwrap(), workspace_path(expected));
            let listed = owner.get(&workspace_path(expected)).await.text;
            assert!(listed.contains("night &#38; day"), "{expected}: {listed}");
        }
    }
}
