//! Errors of forms: all at once, each beside its field, with a summary that leads to them; what was entered is kept.

use serde_json::json;

use super::{Browser, between, workspace_path};
use crate::on_both_stacks;
use crate::support::{Keyward, Reply};

/// A form with errors: its path, its fields, the errors as the id of the field and a text, and texts of fields that are kept.
type Case<'a> = (String, Vec<(&'a str, &'a str)>, [(&'a str, &'a str); 2], Vec<&'a str>);

/// Fails unless both errors are beside their fields, which name them, and the summary leads to the fields.
fn assert_errors(page: &Reply, errors: [(&str, &str); 2]) {
    assert_eq!(page.status, 422, "{}", page.text);
    let summary = between(&page.text, "id=\"faults\"", "</div>");
    assert!(summary.starts_with(" role=\"alert\" tabindex=\"-1\" autofocus>"), "{summary}");
    for (id, text) in errors {
        let shown = between(&page.text, &format!("id=\"{id}-error\">"), "</div>");
        assert!(shown.contains(text), "{id}: {shown}");
        assert!(page.text.contains(&format!("{id}-error\"")), "{id}: {}", page.text);
        let target = if id == "permission" { "everywhere" } else { id };
        assert!(summary.contains(&format!("<a href=\"#{target}\">")), "{id}: {summary}");
        assert_eq!(
            page.text.matches(&format!(" id=\"{target}\"")).count(),
            1,
            "{id}: {}",
            page.text
        );
    }
    assert_eq!(summary.matches("<p>").count(), 2, "{summary}");
    assert_eq!(page.text.matches("class=\"field-error\"").count(), 2, "{}", page.text);
}

async fn create_gateway_policy(kw: &Keyward, api: &str) -> String {
    let fields = json!({ "name": "edge", "apiIds": [api] });
    kw.v2("gateways.createPolicy", fields).await.text_of("policyId")
}

/// Posts the form and asserts its errors and the kept values.
async fn assert_case(owner: &mut Browser<'_>, (path, fields, errors, kept): Case<'_>) {
    let page = owner.post(&workspace_path(&path), &fields).await;

    assert_errors(&page, errors);
    for text in kept {
        assert!(page.text.contains(&format!("value=\"{text}\"")), "{path} {text}: {}", page.text);
    }
}

on_both_stacks! {
    async fn both_errors_of_a_form_are_beside_their_fields_and_the_rest_is_kept(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let policy = create_gateway_policy(&kw, &api).await;
        let namespace = kw.v2("ratelimit.limit", json!({ "namespace": "mail", "identifier": "a", "limit": 1, "duration": 1000 }));
        namespace.await.data();
        let namespace = kw.list_texts("namespaces", "id").await.remove(0);
        let role = kw.create_role("editor", []).await;
        let long = "n".repeat(600);

        let cases: Vec<Case<'_>> = vec![
            (
                format!("/apis/{api}/settings"),
                vec![("name", "ab"), ("was-name", "old"), ("bytes", "15"), ("prefix", "kept")],
                [("name", "Must have 3 to 256 characters."), ("bytes", "Random bytes must be a number from 16 to 255.")],
                vec!["ab", "15", "kept"],
            ),
            (
                "/permissions".to_owned(),
                vec![("slug", "two words"), ("name", &long), ("description", "kept")],
                [("slug", "Must contain only"), ("name", "Must have 1 to 512 characters.")],
                vec!["two words", &long, "kept"],
            ),
            (
                "/roles".to_owned(),
                vec![("name", ""), ("description", "kept"), ("permission", "kept.one"), ("more", "two & words")],
                [("name", "Must have 1 to 128 characters."), ("permissions", "Entry 3 must contain only")],
                vec!["kept", "kept.one"],
            ),
            (
                format!("/roles/{role}/settings"),
                vec![("name", ""), ("was-name", "editor"), ("description", &long)],
                [("name", "Has 0 characters: it must have 1 to 128."), ("description", "it must have 0 to 512.")],
                vec!["", &long],
            ),
            (
                "/root-keys".to_owned(),
                vec![("name", &long), ("scope", "specific"), ("permission", "ratelimit.*.limit")],
                [("name", "Must have 1 to 255 characters."), ("scope", "Add an API and select its permissions")],
                vec![&long],
            ),
            (
                "/root-keys".to_owned(),
                vec![("name", &long), ("scope", "all"), ("permission", "api.api_1.verify_key")],
                [("name", "Must have 1 to 255 characters."), ("permission", "Select at least one permission.")],
                vec![&long],
            ),
            (
                format!("/ratelimits/{namespace}/override"),
                vec![("identifier", "kept"), ("limit", "many"), ("duration", "0"), ("duration-unit", "s")],
                [("limit", "Must be a whole number of at least 0."), ("duration", "Must be at least 1 second.")],
                vec!["kept", "many", "0"],
            ),
            (
                "/gateways".to_owned(),
                vec![("name", "two words"), ("onFailure", "text"), ("api", &api), ("keyFrom", "authorization:bearer\nnowhere"), ("resource", "https://kept.example")],
                [("name", "Must have 1 to 128"), ("keyFrom", "Entry 2 must be")],
                vec!["two words", "https://kept.example"],
            ),
            (
                format!("/gateways/{policy}/try"),
                vec![("method", "GE T"), ("target", "kept")],
                [("method", "Must"), ("target", "Must begin")],
                vec!["GE T", "kept"],
            ),
        ];
        for case in cases {
            assert_case(&mut owner, case).await;
        }
    }

    async fn both_errors_of_rows_and_of_a_query_are_beside_their_fields(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        kw.v2("ratelimit.limit", json!({ "namespace": "mail", "identifier": "a", "limit": 1, "duration": 1000 })).await.data();
        let namespace = kw.list_texts("namespaces", "id").await.remove(0);

        let fields = [
            ("name", "edge"), ("api", &api), ("onFailure", "text"), ("keyFrom", "authorization:bearer"), ("rule-methods", "GET"), ("rule-path", "/kept"),
            ("rule-permissions", ""), ("rule-cost", ""), ("rule-tags", ""), ("rule-methods", ""), ("rule-path", "kept"),
            ("rule-permissions", ""), ("rule-cost", "-1"), ("rule-tags", ""),
        ];
        let rows = owner.post(&workspace_path("/gateways"), &fields).await;
        assert_errors(&rows, [("rule-path-1", "Must begin with"), ("rule-cost-1", "Must be a whole number from 0")]);
        assert!(rows.text.contains("value=\"/kept\"") && rows.text.contains("value=\"-1\""), "{}", rows.text);

        let path = workspace_path(&format!("/ratelimits/{namespace}/simulator?identifier=kept&limit=0&duration=1&duration-unit=min&cost=-1"));
        let simulator = owner.get(&path).await;
        assert_errors(&simulator, [("limit", "Must be a whole number of at least 1."), ("cost", "Must be a whole number of at least 0.")]);
        assert!(simulator.text.contains("value=\"kept\""), "{}", simulator.text);
    }

    async fn both_errors_of_an_upload_are_beside_their_fields(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        kw.create_api().await;
        let made = owner.post(&workspace_path("/imports"), &[("name", ""), ("algorithm", "sha256")]).await;
        let path = made.headers["location"].to_str().expect("a path").split('?').next().expect("a path").to_owned();

        let page = owner.post(&format!("{path}/preview"), &[("api", "api_none"), ("keys", "[1]")]).await;

        assert_errors(&page, [("api", "Select the API that the keys belong to."), ("file", "Entry 1 of the file must be an object.")]);
        assert!(page.text.contains(">[1]</textarea>"), "{}", page.text);
    }
}
