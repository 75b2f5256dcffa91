//! Identities, as people make, change and delete them.

use domain::identities::SEARCH_ROWS_MAX;
use serde_json::{Value, json};

use super::{
    Browser, ESCAPED_NAME, HOSTILE_NAME, between, count_table_rows, form_encode, next_page_path,
    redirect_path, workspace_path,
};
use crate::on_both_stacks;

const LIMIT: [(&str, &str); 4] = [
    ("limit-name", "requests"),
    ("limit-limit", "600"),
    ("limit-duration", "1"),
    ("limit-duration-unit", "min"),
];

/// The page of an identity, without what was told.
fn bare(path: &str) -> String {
    path.split_once('?').map_or(path, |(path, _)| path).to_owned()
}

/// The original values that an edit form carries.
fn original(form: &str) -> String {
    between(form, "name=\"was\" value=\"", "\"").replace("&#34;", "\"")
}

on_both_stacks! {
    async fn a_text_that_is_too_short_for_the_index_is_compared_with_so_many_identities(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let insert = |first: i64, last: i64| format!(
            "WITH RECURSIVE n(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < {last})
            INSERT INTO identities (id, workspace_id, external_id, created_at, search)
            SELECT 'id_' || (100000 + i), 'ws_default', 'user ' || i, 1, 'id_' || (100000 + i) || ' user ' || i FROM n"
        );
        kw.execute_sql(insert(1, SEARCH_ROWS_MAX - 1)).await;
        let last = "INSERT INTO identities (id, workspace_id, external_id, created_at, search)
            VALUES ('id_z', 'ws_default', 'XY', 1, 'id_z xy')";
        kw.execute_sql(last.to_owned()).await;
        let search = workspace_path("/identities?q=Xy");
        assert_eq!(count_table_rows(&owner.get(&search).await.text), 1);

        kw.execute_sql(insert(SEARCH_ROWS_MAX, SEARCH_ROWS_MAX)).await;
        let first = owner.get(&search).await;
        let second = owner.get(&next_page_path(&first)).await;

        assert!(first.text.contains("No matches so far"), "{}", first.text);
        assert_eq!(count_table_rows(&second.text), 1, "{}", second.text);
        let longer = owner.get(&workspace_path("/identities?q=user+12345")).await.text;
        assert_eq!(count_table_rows(&longer), 1, "{longer}");
        assert!(!longer.contains("Next page"), "{longer}");
    }

    async fn an_identity_is_made_with_meta_and_limits(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let meta = "{ \"z\": 12345678901234567890123, \"a\": \"<script>alert(1)</script>\" }";
        let mut fields = vec![("externalId", "user_1"), ("meta", meta), ("limit-auto", "0")];
        fields.extend(LIMIT);
        fields.extend([("limit-name", "slow"), ("limit-limit", "5"), ("limit-duration", "2"), ("limit-duration-unit", "h")]);
        fields.push(("limit-name", ""));

        let path = bare(&redirect_path(&owner.post(&workspace_path("/identities"), &fields).await));

        let made = kw.get_identity("user_1").await;
        let limits: Vec<_> = made["ratelimits"].as_array().unwrap().iter()
            .map(|limit| (limit["name"].clone(), limit["limit"].clone(), limit["duration"].clone(), limit["autoApply"].clone()))
            .collect();
        let limit = |name: &str, limit: i64, ms: i64, auto: bool| -> (Value, Value, Value, Value) {
            (name.into(), limit.into(), ms.into(), auto.into())
        };
        assert_eq!(limits, [limit("requests", 600, 60_000, true), limit("slow", 5, 7_200_000, false)]);
        let page = owner.get(&path).await.text;
        assert!(page.contains("12345678901234567890123") && page.contains(ESCAPED_NAME) && !page.contains(HOSTILE_NAME), "{page}");
        assert!(page.contains("{\n  &#34;z&#34;: 12345678901234567890123,\n  &#34;a&#34;"), "a line for each field: {page}");
        assert!(page.contains("600 per minute") && page.contains("5 per 2 hours"));
        assert!(page.contains("aria-label=\"Rate limits of the identity\""), "not the name of its section: {page}");
        assert!(kw.list_audit_events("user_1").await.contains(&"identity.create".to_owned()));
    }

    async fn what_is_wrong_with_an_identity_is_told_and_kept(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let [most, too_long] = [255, 256].map(|length| "u".repeat(length));
        let [name, long_name] = [128, 129].map(|length| "n".repeat(length));
        let make = async |owner: &mut Browser<'_>, fields: &[(&str, &str)]| {
            let usual = LIMIT.iter().filter(|usual| fields.iter().all(|field| field.0 != usual.0));
            let fields: Vec<_> =
                fields.iter().chain(&[("externalId", "fine")]).chain(usual).copied().collect();
            owner.post(&workspace_path("/identities"), &fields).await
        };
        for fields in [
            [("externalId", most.as_str()), ("meta", "{}")],
            [("externalId", "a"), ("limit-name", name.as_str())],
            [("externalId", "b"), ("limit-name", "abc")],
        ] {
            redirect_path(&make(&mut owner, &fields).await);
        }

        for (fields, wrong) in [
            ([("externalId", too_long.as_str()), ("meta", "")], "externalId-hint externalId-error"),
            ([("externalId", ""), ("meta", "")], "externalId-hint externalId-error"),
            ([("externalId", "two words"), ("meta", "")], "externalId-hint externalId-error"),
            ([("meta", "{"), ("limit-name", "kept <b>")], "meta-hint meta-error"),
            ([("meta", "[1]"), ("limit-name", "kept <b>")], "meta-hint meta-error"),
            ([("limit-name", "ab"), ("meta", "{}")], "value=\"ab\" aria-describedby=\"limit-name-0-error\""),
            ([("limit-name", long_name.as_str()), ("meta", "{}")], "aria-describedby=\"limit-name-0-error\""),
            ([("limit-limit", "0"), ("limit-name", "abc")], "value=\"0\" aria-describedby=\"limit-limit-0-error\""),
            ([("limit-limit", "x"), ("limit-name", "abc")], "value=\"x\" aria-describedby=\"limit-limit-0-error\""),
            ([("limit-duration", "999"), ("limit-duration-unit", "ms")], "value=\"999\" aria-describedby=\"limit-duration-0-error\""),
        ] {
            let page = make(&mut owner, &fields).await;
            assert_eq!(page.status, 422, "{fields:?}");
            assert!(page.text.contains(wrong) && page.text.contains("aria-invalid=\"true\""), "{wrong} {}", page.text);
            assert!(!page.text.contains("kept <b>"));
        }
        let taken = make(&mut owner, &[("externalId", "a")]).await;
        assert!(taken.status == 422 && taken.text.contains("already exists"));
        assert_eq!(kw.count_rows("identities").await, 3);
    }

    async fn a_limit_is_added_and_left_out_before_anything_is_made(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let mut fields = vec![("externalId", "user_1"), ("meta", "{\"kept\":1}")];
        fields.extend(LIMIT);

        assert!(owner.get(&workspace_path("/new-identity")).await.text.contains("Add limit"));
        let more = owner.post(&workspace_path("/identities"), &[&fields[..], &[("add", "limit")]].concat()).await;
        let fewer = owner.post(&workspace_path("/identities"), &[&fields[..], &[("remove", "0")]].concat()).await;

        for (page, limits) in [(&more, 2), (&fewer, 0)] {
            assert_eq!(page.status, 200);
            assert_eq!(page.text.matches("name=\"limit-name\"").count(), limits);
            assert!(page.text.contains("value=\"user_1\"") && page.text.contains("kept"));
        }
        assert_eq!(kw.count_rows("identities").await, 0);
    }

    async fn a_change_leaves_what_was_not_touched(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let meta = "{ \"b\": 1,\n  \"a\": 2 }";
        let fields = [&[("externalId", "user_1"), ("meta", meta)], &LIMIT[..2], &LIMIT[2..]].concat();
        let path = bare(&redirect_path(&owner.post(&workspace_path("/identities"), &fields).await));
        let stored = async || kw.list_texts("identities", "meta").await;
        assert_eq!(stored().await, [meta]);
        let id = kw.get_identity("user_1").await["ratelimits"][0]["id"].clone();

        let form = owner.get(&format!("{path}/edit")).await.text;
        assert!(form.contains("value=\"requests\"") && form.contains("value=\"600\""), "{form}");
        let sent = meta.replace('\n', "\r\n");
        let was = original(&form);
        let was = ("was", was.as_str());
        let fields = [was, ("meta", sent.as_str()), LIMIT[0], ("limit-limit", "7"), LIMIT[2], LIMIT[3]];
        redirect_path(&owner.post(&format!("{path}/edit"), &fields).await);
        assert_eq!(stored().await, [meta]);
        let changed = kw.get_identity("user_1").await;
        assert_eq!((&changed["ratelimits"][0]["id"], &changed["ratelimits"][0]["limit"]), (&id, &json!(7)));

        let wrong = owner.post(&format!("{path}/edit"), &[was, ("meta", "{]")]).await;
        assert!(wrong.status == 422 && wrong.text.contains("{]</textarea>"), "{}", wrong.text);
        let fault = "Metadata isn&#39;t valid JSON at line 1, column 2";
        assert!(wrong.text.contains(&format!(">{fault}</a>")), "{}", wrong.text);
        assert!(wrong.text.contains(&format!("<p>{fault}.</p>")), "{}", wrong.text);
        let doubled = [&[was][..], &LIMIT, &LIMIT].concat();
        let doubled = owner.post(&format!("{path}/edit"), &doubled).await;
        assert!(doubled.status == 422 && doubled.text.contains("two limits with the name requests"));
        assert_eq!(stored().await, [meta]);

        redirect_path(&owner.post(&format!("{path}/edit"), &[was, ("meta", "")]).await);
        assert_eq!(stored().await, ["{}"]);
        assert_eq!(kw.get_identity("user_1").await.get("ratelimits"), None);
        assert!(owner.get(&path).await.text.contains("No rate limits."));
    }

    async fn a_change_keeps_what_others_changed_since_the_form_was_opened(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let fields = [&[("externalId", "user_1"), ("meta", "{\"a\":1}")][..], &LIMIT].concat();
        let path = bare(&redirect_path(&owner.post(&workspace_path("/identities"), &fields).await));
        let edit = format!("{path}/edit");
        let change = async |mut request: Value| {
            request["identity"] = json!("user_1");
            kw.v2("identities.updateIdentity", request).await.data();
        };

        let was = original(&owner.get(&edit).await.text);
        change(json!({ "ratelimits": [{ "name": "requests", "limit": 5, "duration": 60_000, "autoApply": false }] })).await;
        let fields = [&[("was", was.as_str()), ("meta", "{\"a\":2}")][..], &LIMIT].concat();
        redirect_path(&owner.post(&edit, &fields).await);
        let changed = kw.get_identity("user_1").await;
        assert_eq!((&changed["meta"], &changed["ratelimits"][0]["limit"]), (&json!({ "a": 2 }), &json!(5)));

        let was = original(&owner.get(&edit).await.text);
        change(json!({ "meta": { "b": 3 } })).await;
        let fields = [("was", was.as_str()), ("meta", "{\"a\":2}"), LIMIT[0], ("limit-limit", "9"), LIMIT[2], LIMIT[3]];
        redirect_path(&owner.post(&edit, &fields).await);
        let changed = kw.get_identity("user_1").await;
        assert_eq!((&changed["meta"], &changed["ratelimits"][0]["limit"]), (&json!({ "b": 3 }), &json!(9)));

        let torn = owner.post(&edit, &[("meta", "{}")]).await;
        assert!(torn.status == 422 && torn.text.contains("The form is incomplete."), "{}", torn.text);
    }

    async fn a_meta_too_large_for_a_form_is_shown_in_part_and_stays(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let meta = |bytes: usize| json!({ "text": "ä".repeat((bytes - 11) / 2) });
        for (name, bytes, is_whole) in [("small", 32 * 1024 - 1, true), ("large", 32 * 1024 + 1, false)] {
            let request = json!({ "externalId": name, "meta": meta(bytes) });
            kw.v2("identities.createIdentity", request).await.data();
            let path = redirect_path(&owner.get(&workspace_path(&format!("/identities/{name}"))).await);

            let page = owner.get(&path).await.text;
            let form = owner.get(&format!("{path}/edit")).await.text;
            assert_eq!(page.contains("Only the beginning is shown."), !is_whole);
            assert_eq!((form.contains("<textarea"), form.contains("keep-meta")), (is_whole, !is_whole));
            let fields = if is_whole { ("meta", meta(bytes).to_string()) } else { ("keep-meta", "yes".into()) };
            let was = original(&form);
            let fields = [("was", was.as_str()), (fields.0, fields.1.as_str())];
            redirect_path(&owner.post(&format!("{path}/edit"), &fields).await);
            assert_eq!(kw.get_identity(name).await["meta"], meta(bytes));
        }
    }

    async fn an_identity_is_found_by_an_external_id_of_any_characters(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        for external_id in ["a/b c%2F?&#é<b>", "new", "..%2f..", "edit/delete", "+++"] {
            let request = json!({ "externalId": external_id });
            kw.v1("identities.createIdentity", request).await;
            let query = form_encode(&[("externalId", external_id)]);
            let in_path = query["externalId=".len()..].replace('+', "%20");

            let by_path = redirect_path(&owner.get(&workspace_path(&format!("/identities/{in_path}"))).await);
            let by_query = redirect_path(&owner.get(&workspace_path(&format!("/identity?{query}"))).await);
            let page = owner.get(&by_path).await;

            assert_eq!(by_path, by_query);
            assert!(by_path.contains("/identities/id_"), "{by_path}");
            assert_eq!(page.status, 200);
            assert!(!page.text.contains("<b>"));
            assert_eq!(owner.get(&format!("{by_path}/edit")).await.status, 200);
        }
        assert_eq!(owner.get(&workspace_path("/identity?externalId=nobody")).await.status, 404);
        assert_eq!(owner.get(&workspace_path("/identities/nobody")).await.status, 404);
    }

    async fn identities_are_sorted_by_external_id_in_both_orders_over_all_pages(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let names: Vec<_> = (10..65).map(|number| format!("user &+{number}")).collect();
        for (at, name) in names.iter().enumerate() {
            // The order of their ids is another one.
            let id = 1_000 - i64::try_from(at).unwrap() % 10;
            kw.execute_sql(format!(
                "INSERT INTO identities (id, workspace_id, external_id, created_at, search)
                VALUES ('id_{id}_{at}', 'ws_default', '{name}', 1, '{name}')"
            )).await;
        }
        let mut pages = async |path: &str| {
            let (mut found, mut path) = (Vec::new(), path.to_owned());
            loop {
                let page = owner.get(&path).await;
                let rows = page.text.split("<th scope=\"row\">").skip(1);
                found.extend(rows.map(|row| between(row, "\">", "<").replace("&#38;", "&")));
                if !page.text.contains("rel=\"next\"") {
                    return (found, page.text);
                }
                path = next_page_path(&page);
            }
        };

        let (ascending, page) = pages(&workspace_path("/identities")).await;
        assert_eq!(ascending, names);
        let head = between(&page, "aria-sort=\"", "</th>").to_owned();
        assert!(head.starts_with("ascending\""), "{head}");
        let (descending, page) = pages(between(&head, "href=\"", "\"")).await;
        assert!(descending.iter().eq(names.iter().rev()), "{descending:?}");
        assert!(page.contains("aria-sort=\"descending\""), "{page}");
        let (found, page) = pages(&workspace_path("/identities?q=user&order=descending")).await;
        assert!(found.len() == 55 && !page.contains("aria-sort"), "{page}");
    }

    async fn identities_are_searched_and_paged_and_so_are_their_keys(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        for number in 0..26 {
            kw.v2("identities.createIdentity", json!({ "externalId": format!("User_{number:02}") })).await;
        }
        let (one, two) = (kw.create_api().await, kw.create_api().await);
        let mut ids = Vec::new();
        for number in 0..26 {
            let api = if number % 2 == 0 { &one } else { &two };
            ids.push(kw.create_key_in(api, json!({ "externalId": "User_13", "name": HOSTILE_NAME })).await.id);
        }
        kw.create_key_in(&one, json!({ "externalId": "User_14" })).await;
        let gone = ids.remove(3);
        kw.v2("keys.deleteKey", json!({ "keyId": gone })).await;
        ids.push(kw.create_key_in(&one, json!({ "externalId": "User_13" })).await.id);
        ids.sort();

        let first = owner.get(&workspace_path("/identities?q=USER_")).await;
        let second = owner.get(&next_page_path(&first)).await.text;
        let found = owner.get(&workspace_path("/identities?q=user_13")).await.text;
        assert_eq!([count_table_rows(&first.text), count_table_rows(&second), count_table_rows(&found)], [25, 1, 1]);
        let path = between(&found, "<th scope=\"row\"><a href=\"", "\"").to_owned();
        let first = owner.get(&path).await;
        let second = owner.get(&next_page_path(&first)).await.text;

        assert!(first.text.contains("<dt>Keys</dt><dd>26</dd>"), "{}", first.text);
        assert!(first.text.contains(ESCAPED_NAME) && !first.text.contains(HOSTILE_NAME));
        let listed = format!("{}{second}", first.text);
        let listed: Vec<_> = listed.split("/dashboard/ws_default/keys/").skip(1)
            .map(|rest| rest.split_once('"').unwrap().0.to_owned()).collect();
        assert_eq!(listed, ids);
    }

    async fn deleting_an_identity_asks_and_leaves_its_keys(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let limit = json!([{ "name": "requests", "limit": 1, "duration": 60_000, "autoApply": true }]);
        kw.v2("identities.createIdentity", json!({ "externalId": "user_1", "ratelimits": limit })).await;
        let keys = [
            kw.create_key_in(&api, json!({ "externalId": "user_1" })).await,
            kw.create_key_in(&api, json!({ "externalId": "user_1" })).await,
        ];
        let code = async |at: usize| kw.verify_with(&keys[at].key, json!({})).await.data()["code"].clone();
        assert_eq!((code(0).await, code(1).await), (json!("VALID"), json!("RATE_LIMITED")));
        let path = redirect_path(&owner.get(&workspace_path("/identities/user_1")).await);

        let asked = owner.get(&format!("{path}/delete")).await.text;
        assert!(asked.contains("Delete user_1?") && asked.contains("Its 2 keys remain valid"), "{asked}");
        redirect_path(&owner.post(&format!("{path}/delete"), &[]).await);

        assert_eq!((code(0).await, code(1).await), (json!("VALID"), json!("VALID")));
        assert_eq!(owner.get(&path).await.status, 404);
        assert_eq!(owner.post(&format!("{path}/delete"), &[]).await.status, 404);
        assert!(kw.list_audit_events("user_1").await.contains(&"identity.delete".to_owned()));
    }

    async fn an_identity_of_another_workspace_does_not_exist(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let stranger = kw.create_other_workspace().await;
        let made = kw.v2_as(&stranger, "identities.createIdentity", json!({ "externalId": "theirs" })).await;
        let id = made.text_of("identityId");

        for named in [id.as_str(), "theirs"] {
            for rest in ["", "/edit", "/delete"] {
                let path = workspace_path(&format!("/identities/{named}{rest}"));
                assert_eq!(owner.get(&path).await.status, 404, "{path}");
                if !rest.is_empty() {
                    assert_eq!(owner.post(&path, &[("meta", "{}")]).await.status, 404, "{path}");
                }
            }
        }
        assert_eq!(owner.get(&workspace_path("/identity?externalId=theirs")).await.status, 404);
        assert!(!owner.get(&workspace_path("/identities")).await.text.contains("theirs"));
        assert_eq!(kw.count_rows("identities").await, 1);
    }
}
