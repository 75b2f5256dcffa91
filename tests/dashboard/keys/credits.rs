//! Changing the credits of a key.

use serde_json::{Value, json};

use super::*;
use crate::on_both_stacks;

on_both_stacks! {
    async fn credits_are_set_added_and_taken_away_and_the_page_tells_who_did_it(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let key = kw.create_key(json!({ "credits": { "remaining": 10 } })).await.id;
        let path = workspace_path(&format!("/keys/{key}/credits"));
        let left = async || kw.get_key(&key).await["credits"]["remaining"].clone();

        for (operation, value, expected) in
            [("increment", "5", json!(15)), ("decrement", "20", json!(0)), ("set", "3", json!(3)), ("unlimited", "", Value::Null)]
        {
            let sent = owner.post(&path, &[("operation", operation), ("value", value)]).await;
            assert_eq!(to(&sent), workspace_path(&format!("/keys/{key}?notice=key-credits")));
            assert_eq!(left().await, expected, "{operation}");
        }
        for (operation, value, field) in [
            // Nothing can be added to unlimited credits.
            ("increment", "5", "operation"),
            ("set", "-1", "value"),
            ("set", "many", "value"),
            ("double", "1", "operation"),
        ] {
            let refused = owner.post(&path, &[("operation", operation), ("value", value)]).await;
            assert_eq!(refused.status, 422, "{operation} {value}");
            assert!(refused.text.contains("id=\"faults\""), "{operation} {value}: {}", refused.text);
            let fields = ["operation", "value"];
            let found = fields.map(|field| refused.text.contains(&format!("id=\"{field}-error\"")));
            assert_eq!(found, fields.map(|other| other == field), "{operation} {value}: {}", refused.text);
            assert!(refused.text.contains(&format!("name=\"value\" inputmode=\"numeric\" autocomplete=\"off\" value=\"{value}\"")), "{}", refused.text);
        }

        let page = owner.get(&workspace_path(&format!("/keys/{key}"))).await.text;
        for told in ["Key created: credits set to 10", "5 credits added", "20 credits removed", "credits set to 3", "set to unlimited", "ada@example.com"] {
            assert!(page.contains(told), "{told}: {page}");
        }
    }

    async fn credits_have_a_page_of_their_own_with_the_operation_that_fits(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let mut viewer = owner.invite("eve@example.com", "viewer").await;
        let limited = kw.create_key(json!({ "credits": { "remaining": 1_234 } })).await.id;
        let unlimited = kw.create_key(json!({})).await.id;

        for (key, remaining, selected) in [
            (&limited, "<strong>1,234</strong> remaining", None),
            (&unlimited, "Unlimited", Some("<option value=\"set\" selected>")),
        ] {
            let path = workspace_path(&format!("/keys/{key}"));
            let link = format!("href=\"{path}/credits\">Change credits</a>");
            assert!(owner.get(&path).await.text.contains(&link));
            assert!(!viewer.get(&path).await.text.contains("Change credits"));
            let page = owner.get(&format!("{path}/credits")).await;
            assert_eq!(page.status, 200, "{}", page.text);
            assert!(page.text.contains(remaining), "{}", page.text);
            assert_eq!(page.text.contains(" selected>"), selected.is_some(), "{}", page.text);
            assert!(selected.is_none_or(|option| page.text.contains(option)), "{}", page.text);
            let edit = owner.get(&format!("{path}/edit")).await.text;
            assert!(!edit.contains("name=\"operation\"") && edit.contains("on the page of the key"), "{edit}");
        }
    }
}
