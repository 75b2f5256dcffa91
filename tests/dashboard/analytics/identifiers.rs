//! The identifiers with the most limit checks.

use analytics::writer;
use serde_json::json;

use super::super::{
    Browser, EMAIL, ESCAPED_NAME, HOSTILE_NAME, PASSWORD, between, redirect_path, workspace_path,
};
use super::DAY_MS;
use crate::support::Keyward;
use crate::{on_both_stacks, on_every_event_store};

/// The rows of the table with this title, as texts.
fn rows(page: &str, title: &str) -> Vec<String> {
    let table = between(page, &format!("aria-label=\"{title}\"><table>"), "</table>").to_owned();
    let row = |row: &str| {
        let texts =
            row.split('<').filter_map(|tag| tag.split_once('>')).map(|(_, text)| text.trim());
        texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("|")
    };
    table.split("<tr><th scope=\"row\">").skip(1).map(row).collect()
}

const TOP: &str = "Top identifiers";
const REJECTED: &str = "Most rejected identifiers";
const SET: &str = "Create override|for ";

/// Sends this many checks of an identifier, of which only the first is admitted.
async fn check(kw: &Keyward, namespace: &str, identifier: &str, times: usize) {
    for _ in 0..times {
        kw.check_limit(namespace, identifier, json!({ "limit": 1 })).await.data();
    }
}

/// Creates a namespace. Returns its id.
async fn create_namespace(owner: &mut Browser<'_>, name: &str) -> String {
    let created = owner.post(&workspace_path("/ratelimits"), &[("name", name)]).await;
    between(&redirect_path(&created), "/ratelimits/", "?").to_owned()
}

on_every_event_store! {
    async fn identifiers_are_listed_by_requests_and_by_rejected_requests(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let (email, sms) = (create_namespace(&mut owner, "email").await, create_namespace(&mut owner, "sms").await);
        check(&kw, "email", "long ago", 9).await;
        kw.write_events().await;
        kw.clock.advance_ms(2 * DAY_MS);
        owner.sign_in(EMAIL, PASSWORD).await;
        // Some checks are rolled up, and some are not.
        check(&kw, "email", "ann", 2).await;
        kw.write_events().await;
        writer::roll_up(&kw.app.analytics).await.unwrap();
        check(&kw, "email", "ann", 2).await;
        check(&kw, "sms", "ann", 3).await;
        for number in 0..5 {
            check(&kw, "sms", &format!("caller {number}"), 1).await;
            kw.check_limit("email", "patient", json!({ "limit": 100 })).await.data();
        }
        for number in 0..4 {
            check(&kw, "email", &format!("reader {number}"), 1).await;
        }
        kw.write_events().await;

        let page = owner.get(&workspace_path("/analytics?of=limits")).await.text;

        let listed = rows(&page, TOP);
        assert_eq!(listed[..3], [
            format!("patient|email|5|0|{SET}patient"), format!("ann|email|4|3|{SET}ann"), format!("ann|sms|3|2|{SET}ann"),
        ]);
        assert_eq!(listed.len(), 10, "{listed:?}");
        assert_eq!(rows(&page, REJECTED), [format!("ann|email|4|3|{SET}ann"), format!("ann|sms|3|2|{SET}ann")]);
        assert!(page.contains(&format!("href=\"{}\">email</a>", workspace_path(&format!("/ratelimits/{email}")))), "{page}");
        let of_sms = owner.get(&workspace_path(&format!("/analytics?of=limits&only={sms}"))).await.text;
        assert_eq!(rows(&of_sms, TOP)[..2], [format!("ann|3|2|{SET}ann"), format!("caller 0|1|0|{SET}caller 0")]);
        assert_eq!(rows(&of_sms, REJECTED).len(), 1);
        let week = owner.get(&workspace_path("/analytics?of=limits&range=week")).await.text;
        assert_eq!(rows(&week, TOP)[0], format!("long ago|email|9|8|{SET}long ago"));
        assert_eq!(rows(&week, REJECTED)[0], format!("long ago|email|9|8|{SET}long ago"));
        let mut lines = async |query: &str| {
            let file = owner.get(&workspace_path(&format!("/analytics.csv?of=limits&{query}"))).await;
            assert_eq!(file.status, 200, "{}", file.text);
            file.text.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let all = lines("table=identifiers").await;
        assert_eq!(all[..2], ["identifier,namespace_id,total,rejected", &format!("patient,{email},5,0")]);
        assert_eq!(all.len(), 13, "{all:?}");
        let rejected = lines("table=rejected-identifiers&range=week").await;
        assert_eq!(rejected[1..], [
            format!("long ago,{email},9,8"), format!("ann,{email},4,3"), format!("ann,{sms},3,2"),
        ]);
    }
}

on_both_stacks! {
    async fn an_override_is_set_from_the_list(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let mut viewer = owner.invite("eve@example.com", "viewer").await;
        let id = create_namespace(&mut owner, "mail").await;
        let path = workspace_path(&format!("/ratelimits/{id}"));
        check(&kw, "mail", HOSTILE_NAME, 2).await;
        check(&kw, "mail", "user_*", 3).await;
        let unnamed = json!({ "namespace": "mail", "identifier": "", "limit": 1, "duration": 60_000 });
        for _ in 0..4 {
            kw.v1("ratelimits.limit", unnamed.clone()).await;
        }
        check(&kw, "other", "of another namespace", 9).await;
        kw.write_events().await;

        let page = owner.get(&path).await.text;

        // There is no override for exactly an empty text, or one with a *.
        assert_eq!(rows(&page, REJECTED)[..2], ["Empty|4|3", "user_*|3|2"]);
        assert_eq!(rows(&page, TOP).len(), 3, "{page}");
        let link = format!("{path}/override?for={}", between(&page, "/override?for=", "\""));
        let form = owner.get(&link).await.text;
        assert!(form.contains("<h1>Create override</h1>") && form.contains(&format!("value=\"{ESCAPED_NAME}\"")), "{form}");
        assert!(!form.contains("readonly"), "{form}");
        let fields = [("identifier", HOSTILE_NAME), ("limit", "7"), ("duration", "1"), ("duration-unit", "min")];
        redirect_path(&owner.post(&format!("{path}/override"), &fields).await);
        let form = owner.get(&link).await.text;
        assert!(form.contains("<h1>Edit override</h1>") && form.contains("readonly") && form.contains("value=\"7\""), "{form}");

        let page = viewer.get(&path).await.text;
        assert!(rows(&page, TOP).len() == 3 && !page.contains("Create override"), "{page}");
        assert_eq!(viewer.get(&link).await.status, 403);
    }

    async fn identifiers_of_a_deleted_namespace_are_listed_without_links(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let id = create_namespace(&mut owner, "mail").await;
        check(&kw, "mail", "ann", 2).await;
        kw.write_events().await;
        redirect_path(&owner.post(&workspace_path(&format!("/ratelimits/{id}/delete")), &[]).await);

        let page = owner.get(&workspace_path("/analytics?of=limits")).await.text;

        assert_eq!(rows(&page, TOP), [format!("ann|{id}|2|1")]);
    }

    async fn identifiers_of_another_workspace_are_not_listed(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let stranger = kw.create_other_workspace().await;
        let check = json!({ "namespace": "mail", "identifier": "theirs", "limit": 1, "duration": 60_000 });
        kw.v2_as(&stranger, "ratelimit.limit", check).await.data();
        kw.write_events().await;
        let theirs = kw.list_texts("namespaces", "id").await[0].clone();

        for query in [String::new(), format!("&only={theirs}")] {
            let page = owner.get(&workspace_path(&format!("/analytics?of=limits{query}"))).await.text;
            let file = owner.get(&workspace_path(&format!("/analytics.csv?of=limits&table=identifiers{query}"))).await;

            assert!(!page.contains("theirs</code>"), "{page}");
            assert_eq!(file.text, "identifier,namespace_id,total,rejected\n");
        }
    }

    async fn the_page_of_a_namespace_works_without_events(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let id = create_namespace(&mut owner, "mail").await;
        let path = workspace_path(&format!("/ratelimits/{id}"));
        kw.set_override("mail", "*any*", json!({})).await;
        kw.write_events().await;
        assert!(owner.get(&path).await.text.matches("No data for this period.").count() == 3);
        kw.change_events("DROP TABLE ratelimits_per_hour").await;

        let page = owner.get(&path).await;

        assert_eq!(page.status, 200);
        assert!(page.text.contains("Failed to load identifiers") && page.text.contains("*any*"), "{}", page.text);
    }
}
