//! Gateway policies, as users create, change, rotate and delete them.

mod configuration;
mod previews;
mod settings;
mod try_request;

use axum::body::Body;
use axum::http::Request;
use serde_json::json;

use super::audit::{entry, tick};
use super::{
    Browser, ESCAPED_NAME, HOSTILE_NAME, between, count_table_rows, next_page_path, redirect_path,
    workspace_path,
};
use crate::on_both_stacks;
use crate::support::{Keyward, Reply};

type Fields<'a> = &'a [(&'a str, &'a str)];

/// The fields of a policy without rules, except for its name and its APIs.
const USUAL: Fields<'static> = &[
    ("keyFrom", "authorization:bearer\r\nheader:x-api-key"),
    ("headers-mode", "all"),
    ("onFailure", "problem+json"),
];

/// Submits the form of a new policy; these fields replace the usual ones.
async fn submit(visitor: &mut Browser<'_>, fields: Fields<'_>) -> Reply {
    let usual = USUAL.iter().filter(|(name, _)| fields.iter().all(|(known, _)| known != name));
    let all: Vec<_> = fields.iter().chain(usual).copied().collect();
    visitor.post(&workspace_path("/gateways"), &all).await
}

/// Returns the path and the secret of a policy that was created.
fn created(page: &Reply) -> (String, String) {
    assert_eq!(page.status, 200, "{}", page.text);
    let secret = between(&page.text, "<code id=\"secret\">", "<").to_owned();
    let id = between(&page.text, "/dashboard/ws_default/gateways/gwp_", "#");
    (workspace_path(&format!("/gateways/gwp_{id}")), secret)
}

async fn create(visitor: &mut Browser<'_>, name: &str, api: &str) -> (String, String) {
    created(&submit(visitor, &[("name", name), ("api", api)]).await)
}

/// Returns the status that a gateway gets for a request with this key.
async fn ask(kw: &Keyward, secret: &str, key: &str) -> u16 {
    let request = Request::get("/gateway/edge")
        .header("keyward-gateway-secret", secret)
        .header("authorization", format!("Bearer {key}"))
        .body(Body::empty());
    kw.send(request.expect("a request")).await.status.as_u16()
}

on_both_stacks! {
    async fn policy_has_the_fields_of_its_form(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let (first, second) = (kw.create_api().await, kw.create_api().await);
        let fields: Fields<'_> = &[
            ("name", "edge"), ("api", &first), ("more-apis", &format!("{second}, {first}")),
            ("keyFrom", "cookie:key\r\n\r\nheader:X-Key"),
            ("rule-methods", "GET, PUT"), ("rule-path", "/a/**"), ("rule-permissions", "a OR b"),
            ("rule-cost", "0"), ("rule-tags", "x, y\r\nz"),
            ("rule-methods", ""), ("rule-path", ""), ("rule-permissions", ""), ("rule-cost", ""), ("rule-tags", ""),
            ("limit-rule", "0"), ("limit-name", "own"), ("limit-cost", ""), ("limit-limit", ""),
            ("limit-window", ""), ("limit-window-unit", "s"),
            ("limit-rule", "0"), ("limit-name", "all"), ("limit-cost", "2"), ("limit-limit", "0"),
            ("limit-window", "1"), ("limit-window-unit", "min"),
            ("headers-mode", "selected"), ("header", "Keyward-Key-Id"), ("meta", "plan, a-b"),
            ("onFailure", "text"), ("allowFrom", "10.0.0.0/8, ::1"),
            ("namespace", "mail"), ("namespace-limit", "5"), ("namespace-window", "1"),
            ("namespace-window-unit", "h"), ("namespace-mode", "shadow"), ("namespace-refused", "count"),
            ("namespace", ""), ("namespace-limit", ""), ("namespace-window", ""),
            ("namespace-window-unit", "s"), ("namespace-mode", "enforce"), ("namespace-refused", "ignore"),
            ("resource", "https://a.example/mcp"), ("authorizationServers", "https://b.example"),
        ];

        let (path, _) = created(&submit(&mut owner, fields).await);

        let found = kw.v2("gateways.getPolicy", json!({ "policyId": "edge" })).await;
        found.assert_fields(found.data(), &json!({
            "apiIds": [first, second],
            "keyFrom": ["cookie:key", "header:x-key"],
            "rules": [
                {
                    "methods": ["GET", "PUT"], "path": "/a/**", "permissions": "a OR b", "cost": 0,
                    "ratelimits": [{ "name": "own" }, { "name": "all", "cost": 2, "limit": 0, "duration": 60_000 }],
                    "tags": ["x, y", "z"],
                },
                {},
            ],
            "identityHeaders": { "headers": ["Keyward-Key-Id"], "meta": ["plan", "a-b"], "signed": false },
            "onFailure": "text",
            "allowFrom": ["10.0.0.0/8", "::1/128"],
            "namespaces": [{ "namespace": "mail", "defaultLimit": { "limit": 5, "duration": 3_600_000 }, "mode": "shadow", "countRefused": true }],
            "resource": "https://a.example/mcp",
            "authorizationServers": ["https://b.example"],
        }));
        let page = owner.get(&path).await.text;
        for part in [
            "cookie:key", "GET PUT", "/a/**", "a OR b", "own: as configured for the key", "all: Blocked, cost 2", "x, y",
            "Keyward-Key-Id, Keyward-Meta-plan, Keyward-Meta-a-b", "Plain text", "10.0.0.0/8, ::1/128",
            "mail: 5 per hour, shadow, counts rejected calls", "https://a.example/mcp", "/.well-known/oauth-protected-resource/gwp_",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        // Sections that are rarely needed are folded, unless something in them is set.
        for (form, open) in [(workspace_path("/gateways/new"), 0), (format!("{path}/settings"), 3)] {
            let form = owner.get(&form).await.text;
            let count = |part: &str| form.matches(part).count();
            assert_eq!([count("<details class=\"panel\""), count(" open><summary><h2>")], [3, open], "{form}");
        }
        assert_eq!(kw.list_audit_events("edge").await, ["gatewayPolicy.create"]);
    }

    async fn secret_is_shown_once_and_proves_the_gateway(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({})).await.key;

        let page = submit(&mut owner, &[("name", "edge"), ("api", &api)]).await;
        let (path, secret) = created(&page);

        assert_eq!((ask(&kw, &secret, &key).await, ask(&kw, "wrong", &key).await), (200, 403));
        assert!(page.text.contains(&format!("KEYWARD_GATEWAY_SECRET={secret}<")));
        assert!(page.text.contains(&format!("Keyward-Gateway-Secret &#34;{secret}&#34;;")), "{}", page.text);
        for rest in ["", "/settings", "/try", "/rotate"] {
            assert!(!owner.get(&format!("{path}{rest}")).await.text.contains(&secret), "{rest}");
        }
        assert!(!kw.list_texts("gateway_policies", "secret_hash").await.contains(&secret));
        assert_eq!(owner.get(&workspace_path("/gateways/edge")).await.status, 200);
    }

    async fn errors_are_told_at_their_fields_and_nothing_is_stored(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let long = "n".repeat(129);
        let rule: Fields<'_> = &[
            ("rule-methods", ""), ("rule-path", ""), ("rule-permissions", ""), ("rule-cost", ""), ("rule-tags", ""),
        ];
        let limit: Fields<'_> = &[
            ("limit-rule", "0"), ("limit-name", "abc"), ("limit-cost", ""), ("limit-limit", ""),
            ("limit-window", ""), ("limit-window-unit", "s"),
        ];
        let namespace: Fields<'_> = &[
            ("namespace", "mail"), ("namespace-limit", ""), ("namespace-window", ""),
            ("namespace-window-unit", "s"), ("namespace-mode", "enforce"), ("namespace-refused", "ignore"),
        ];
        for (id, group, field, value, words) in [
            ("name", &[] as Fields<'_>, "name", long.as_str(), "Name must have 1 to 128"),
            ("name", &[], "name", "a b", "Name must have 1 to 128"),
            ("keyFrom", &[], "keyFrom", "body:key", "Key locations, entry 1 must be authorization:bearer"),
            ("keyFrom", &[], "keyFrom", " ", "Enter at least one key location."),
            ("meta", &[], "meta", "a/b", "Metadata fields must be names"),
            ("onFailure", &[], "onFailure", "html", "Error format must be"),
            ("allowFrom", &[], "allowFrom", "10.0.0.0/8, here", "Trusted networks, entry 2"),
            ("resource", &[], "resource", "http://a.example", "Protected resource must be an https URL"),
            ("authorizationServers", &[], "authorizationServers", "https://a\nb", "Authorization servers, entry 2"),
            ("rule-methods-0", rule, "rule-methods", "get", "Rule 1: methods must be HTTP methods in upper case"),
            ("rule-path-0", rule, "rule-path", "a", "Rule 1: path must begin with"),
            ("rule-permissions-0", rule, "rule-permissions", "a AND", "Rule 1: permissions is not valid"),
            ("rule-cost-0", rule, "rule-cost", "1000000000001", "Rule 1: cost must be a whole number from 0"),
            ("rule-cost-0", rule, "rule-cost", "-1", "Rule 1: cost must be a whole number from 0"),
            ("limit-name-0-0", limit, "limit-name", "ab", "Limit 1 of rule 1: name must have 3"),
            ("limit-limit-0-0", limit, "limit-limit", "5", "must have both \"limit\" and \"duration\""),
            ("limit-window-0-0", limit, "limit-window", "31536000", "Limit 1 of rule 1: window"),
            ("namespace-limit-0", namespace, "namespace-window", "1", "Namespace 1: default limit"),
            ("namespace-0", namespace, "namespace", " ", "Namespace 1: name must have 1"),
        ] {
            let rule = if group.first().is_some_and(|(name, _)| *name == "limit-rule") { rule } else { &[] };
            let mut fields = vec![("name", "edge"), ("api", api.as_str())];
            if id == "namespace-0" {
                fields.push(("namespace-limit", "1"));
            }
            fields.extend(rule);
            fields.extend(group);
            fields.retain(|(name, _)| *name != field);
            fields.push((field, value));

            let page = submit(&mut owner, &fields).await;

            assert_eq!(page.status, 422, "{field} {value}: {}", page.text);
            let shown = page.text.replace("&#34;", "\"");
            assert!(shown.contains(words), "{field} {value}: {shown}");
            let tag = between(&page.text, &format!("id=\"{id}\""), ">");
            assert!(tag.contains(&format!("{id}-error")) && tag.contains("aria-invalid=\"true\""), "{field} {value}: {tag}");
        }
        let none = submit(&mut owner, &[("name", "edge")]).await;
        assert!(none.text.contains("Select at least one API."));
        let unknown = submit(&mut owner, &[("name", "edge"), ("more-apis", "api_none")]).await;
        assert_eq!(unknown.status, 422);
        assert!(unknown.text.contains("api_none") && unknown.text.contains("does not exist"));
        assert_eq!(kw.count_rows("gateway_policies").await, 0);

        create(&mut owner, "edge", &api).await;
        let taken = submit(&mut owner, &[("name", "edge"), ("api", &api), ("rule-path", "/kept")]).await;
        assert_eq!(taken.status, 422);
        assert!(taken.text.contains("Name is already in use") && taken.text.contains("value=\"/kept\""));
    }

    async fn rows_are_added_and_removed_without_storing_anything(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let form = owner.get(&workspace_path("/gateways/new")).await.text;
        assert!(form.contains(&format!("value=\"{api}\" checked")), "{form}");

        let mut fields = vec![("name", "a b"), ("api", api.as_str()), ("step", "add-rule")];
        let page = submit(&mut owner, &fields).await;
        assert_eq!(page.status, 200);
        assert!(page.text.contains("id=\"rule-path-0\"") && page.text.contains("value=\"a b\""));
        fields.extend([("rule-path", "/a"), ("rule-path", "/b")]);
        fields[2].1 = "add-limit 1";
        let page = submit(&mut owner, &fields).await.text;
        assert!(page.contains("id=\"limit-name-1-0\"") && !page.contains("id=\"limit-name-0-0\""));
        fields[2].1 = "raise-rule 1";
        let page = submit(&mut owner, &fields).await.text;
        assert!(page.find("value=\"/b\"") < page.find("value=\"/a\""), "{page}");
        fields[2].1 = "remove-rule 0";
        let page = submit(&mut owner, &fields).await.text;
        assert!(page.contains("value=\"/b\"") && !page.contains("value=\"/a\""));
        fields[2].1 = "add-namespace";
        assert!(submit(&mut owner, &fields).await.text.contains("id=\"namespace-0\""));
        assert_eq!(kw.count_rows("gateway_policies").await, 0);
    }

    async fn policies_are_searched_and_paged(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        for number in 0..26 {
            create(&mut owner, &format!("Edge-{number:02}"), &api).await;
        }
        let list = workspace_path("/gateways");

        let first = owner.get(&format!("{list}?q=eDGE")).await;
        let second = owner.get(&next_page_path(&first)).await.text;
        let found = owner.get(&format!("{list}?q=edge-13")).await.text;
        let none = owner.get(&format!("{list}?q=nobody")).await.text;

        let counts = [&first.text, &second, &found].map(|page| count_table_rows(page));
        assert_eq!(counts, [25, 1, 1]);
        assert!(none.contains("No results"));
    }

    async fn rotated_secret_is_valid_until_its_grace_is_over(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({})).await.key;
        let (path, old) = create(&mut owner, "edge", &api).await;
        let rotate = format!("{path}/rotate");

        let page = owner.post(&rotate, &[("grace", "900000")]).await;
        let (_, new) = created(&page);
        assert!(page.text.contains("in 15 minutes"), "{}", page.text);
        assert_eq!([ask(&kw, &old, &key).await, ask(&kw, &new, &key).await], [200, 200]);
        kw.clock.advance_ms(900_000 - 1);
        assert_eq!(ask(&kw, &old, &key).await, 200);
        kw.clock.advance_ms(1);
        assert_eq!([ask(&kw, &old, &key).await, ask(&kw, &new, &key).await], [403, 200]);

        let page = owner.post(&rotate, &[("grace", "0")]).await;
        let (_, last) = created(&page);
        assert!(page.text.contains("The replaced secret no longer works"));
        assert_eq!([ask(&kw, &new, &key).await, ask(&kw, &last, &key).await], [403, 200]);
        for wrong in ["", "-1", "604800001", "soon"] {
            assert_eq!(owner.post(&rotate, &[("grace", wrong)]).await.status, 400, "{wrong}");
        }
        let id = path.rsplit_once('/').expect("a path").1;
        let events = ["gatewayPolicy.create", "gatewayPolicy.rotateSecret", "gatewayPolicy.rotateSecret"];
        assert_eq!(kw.list_audit_events(id).await, events);
    }

    async fn policy_is_deleted_by_its_name_and_restored_in_the_audit_log(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({})).await.key;
        let (path, secret) = create(&mut owner, "edge", &api).await;
        let delete = format!("{path}/delete");

        let wrong = owner.post(&delete, &[("name", "edg")]).await;
        assert_eq!(wrong.status, 422);
        assert!(wrong.text.contains("The name doesn&#39;t match"), "{}", wrong.text);
        assert_eq!(ask(&kw, &secret, &key).await, 200);
        tick(&kw);
        let gone = redirect_path(&owner.post(&delete, &[("name", "edge")]).await);
        assert!(owner.get(&gone).await.text.contains("Policy deleted"));
        assert_eq!(ask(&kw, &secret, &key).await, 403);
        assert_eq!(owner.get(&path).await.status, 404);

        let entry = entry(&mut owner, "gatewayPolicy.delete").await;
        let page = owner.get(&entry).await.text;
        assert!(page.contains(&format!("Gateway policy <a href=\"{path}\">edge</a>")), "{page}");
        tick(&kw);
        redirect_path(&owner.post(&format!("{entry}/undo"), &[]).await);
        assert_eq!(ask(&kw, &secret, &key).await, 200);
        assert_eq!(owner.get(&path).await.status, 200);
    }

    async fn viewer_reads_policies_and_changes_none(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.v2("apis.createApi", json!({ "name": HOSTILE_NAME })).await.text_of("apiId");
        let (path, _) = create(&mut owner, "edge", &api).await;
        let mut viewer = owner.invite("viewer@example.com", "viewer").await;
        let before = kw.count_audit_entries().await;

        let page = viewer.get(&path).await.text;
        assert!(page.contains(ESCAPED_NAME) && !page.contains(HOSTILE_NAME) && !page.contains("Rotate"), "{page}");
        assert!(!viewer.get(&workspace_path("/gateways")).await.text.contains("Create policy"));
        assert_eq!(viewer.get(&format!("{path}/try")).await.status, 200);
        for rest in ["/settings", "/rotate", "/delete"] {
            assert_eq!(viewer.get(&format!("{path}{rest}")).await.status, 403, "{rest}");
            let fields = [("name", "edge"), ("grace", "0"), ("was", "{}")];
            assert_eq!(viewer.post(&format!("{path}{rest}"), &fields).await.status, 403, "{rest}");
        }
        assert_eq!(viewer.get(&workspace_path("/gateways/new")).await.status, 403);
        assert_eq!(submit(&mut viewer, &[("name", "b"), ("api", &api)]).await.status, 403);
        assert_eq!(kw.count_audit_entries().await, before);
    }
}
