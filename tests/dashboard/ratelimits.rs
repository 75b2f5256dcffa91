//! Namespaces, overrides and the simulator, as people use them.

use domain::ratelimits::namespaces::NAMESPACES_MAX;
use domain::root_keys::default_workspace;
use foundation::id::NamespaceId;
use foundation::model::{Namespace, OutagePolicy};
use serde_json::json;

use super::{
    Browser, EMAIL, ESCAPED_NAME, HOSTILE_NAME, between, count_table_rows, form_encode,
    next_page_path, redirect_path, workspace_path,
};
use crate::on_both_stacks;
use crate::support::{Keyward, NOON};

/// A namespace that is made by a person; its page.
async fn made(visitor: &mut Browser<'_>, name: &str) -> String {
    let path =
        redirect_path(&visitor.post(&workspace_path("/ratelimits"), &[("name", name)]).await);
    path.split_once('?').expect("a path").0.to_owned()
}

type Fields<'a> = &'a [(&'a str, &'a str)];

/// An override of a person, of 5 in a minute but for these fields.
async fn set(visitor: &mut Browser<'_>, path: &str, fields: Fields<'_>) {
    let usual = [("limit", "5"), ("duration", "1"), ("duration-unit", "min")];
    let fields: Vec<_> = fields.iter().chain(&usual).copied().collect();
    redirect_path(&visitor.post(&format!("{path}/override"), &fields).await);
}

/// The page of the simulator for a check of 10 in a minute, but for these fields.
async fn simulated(visitor: &mut Browser<'_>, path: &str, fields: Fields<'_>) -> (u16, String) {
    let usual = [("limit", "10"), ("duration", "1"), ("duration-unit", "min"), ("cost", "1")];
    let fields: Vec<_> = fields.iter().chain(&usual).copied().collect();
    let page = visitor.get(&format!("{path}/simulator?{}", form_encode(&fields))).await;
    (page.status.as_u16(), page.text)
}

fn id(path: &str) -> &str {
    path.rsplit_once('/').expect("a path").1
}

async fn limit_of(kw: &Keyward, namespace: &str, identifier: &str) -> i64 {
    let reply = kw.check_limit(namespace, identifier, json!({})).await;
    reply.data()["limit"].as_i64().expect("a limit")
}

on_both_stacks! {
    async fn a_namespace_is_made_once_and_checks_count_in_it(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let path = made(&mut owner, HOSTILE_NAME).await;

        let checked = kw.check_limit(HOSTILE_NAME, "user_1", json!({})).await;
        let again = owner.post(&workspace_path("/ratelimits"), &[("name", HOSTILE_NAME)]).await;

        assert_eq!(checked.data()["remaining"], 9);
        assert_eq!(again.status, 422);
        assert!(again.text.contains("already exists"));
        for page in [path.as_str(), &workspace_path("/ratelimits"), &format!("{path}/simulator"), &format!("{path}/override")] {
            let page = owner.get(page).await.text;
            assert!(page.contains(ESCAPED_NAME) && !page.contains(HOSTILE_NAME), "{page}");
        }
        assert_eq!(kw.count_rows("namespaces").await, 1);
        assert_eq!(kw.list_audit_events(id(&path)).await, ["ratelimitNamespace.create"]);
        assert!(kw.list_texts("audit", "actor_name").await.contains(&EMAIL.to_owned()));
    }

    async fn the_name_of_a_namespace_has_its_bounds(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let [most, too_long] = [512, 513].map(|length| "ä".repeat(length));
        made(&mut owner, &most).await;
        made(&mut owner, "n").await;

        for wrong in ["", "  ", &too_long] {
            let page = owner.post(&workspace_path("/ratelimits"), &[("name", wrong)]).await;
            assert_eq!(page.status, 422);
            assert!(page.text.contains("1 to 512 characters") && page.text.contains("aria-invalid"));
        }
        assert_eq!(kw.count_rows("namespaces").await, 2);
    }

    async fn a_workspace_has_so_many_namespaces_and_no_more(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let workspace_id = default_workspace();
        let namespace = |number: i64| Namespace {
            id: NamespaceId::random(),
            workspace_id: workspace_id.clone(),
            name: format!("namespace {number}"),
            outage_policy: OutagePolicy::Local,
            home: None,
            created_at: NOON,
            deleted_at: None,
        };
        let all: Vec<_> = (1..NAMESPACES_MAX).map(namespace).collect();
        let mut tx = kw.store().begin().await.unwrap();
        tx.insert_namespaces(&workspace_id, &all).await.unwrap();
        tx.commit().await.unwrap();

        made(&mut owner, "the last").await;
        let refused = owner.post(&workspace_path("/ratelimits"), &[("name", "one more")]).await;

        assert_eq!(refused.status, 422);
        assert!(refused.text.contains("the maximum of"));
    }

    async fn namespaces_and_overrides_are_searched_and_paged(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let path = made(&mut owner, "Mail").await;
        for number in 0..26 {
            made(&mut owner, &format!("Space {number:02}")).await;
            kw.set_override("Mail", &format!("User {number:02}"), json!({})).await;
        }

        for (list, query, one) in [(workspace_path("/ratelimits"), "SPACE", "space+13"), (path, "uSeR", "user+13")] {
            let first = owner.get(&format!("{list}?q={query}")).await;
            let second = owner.get(&next_page_path(&first)).await.text;
            let found = owner.get(&format!("{list}?q={one}")).await.text;
            let none = owner.get(&format!("{list}?q=nobody")).await.text;

            assert_eq!([count_table_rows(&first.text), count_table_rows(&second), count_table_rows(&found)], [25, 1, 1]);
            assert!(none.contains("No results"));
        }
    }

    async fn spaces_around_an_identifier_are_kept_and_shown(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let path = made(&mut owner, "mail").await;

        for (identifier, class, told) in [
            (" user_1 ", "break outer-spaces", "Its identifier begins or ends with a space, which is part of it."),
            ("user 2", "break", "Override saved. It applies to all checks from now on."),
        ] {
            let fields = [("identifier", identifier), ("limit", "5"), ("duration", "1"), ("duration-unit", "min")];
            let saved = redirect_path(&owner.post(&format!("{path}/override"), &fields).await);
            let page = owner.get(&saved).await.text;
            assert!(page.contains(&format!("<code class=\"{class}\">{identifier}</code>")), "{page}");
            assert!(page.contains(told), "{page}");
        }
    }

    async fn an_override_counts_from_when_it_is_set_until_it_is_deleted(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let path = made(&mut owner, "mail").await;
        assert_eq!(limit_of(&kw, "mail", HOSTILE_NAME).await, 10);

        set(&mut owner, &path, &[("identifier", HOSTILE_NAME), ("limit", "7")]).await;
        assert_eq!(limit_of(&kw, "mail", HOSTILE_NAME).await, 7);
        let page = owner.get(&path).await.text;
        assert!(page.contains(ESCAPED_NAME) && !page.contains(HOSTILE_NAME) && page.contains("7 per minute"), "{page}");

        let query = form_encode(&[("identifier", HOSTILE_NAME)]);
        let form = owner.get(&format!("{path}/override?{query}")).await.text;
        assert!(form.contains("value=\"7\"") && form.contains("readonly") && !form.contains(HOSTILE_NAME), "{form}");
        let before = kw.list_texts("overrides", "id").await;
        set(&mut owner, &path, &[("identifier", HOSTILE_NAME), ("known", "yes"), ("limit", "3")]).await;
        assert_eq!(limit_of(&kw, "mail", HOSTILE_NAME).await, 3);
        assert_eq!(kw.list_texts("overrides", "id").await, before);

        let ask = owner.get(&format!("{path}/override/delete?{query}")).await.text;
        assert!(ask.contains("Its limit is 3 per minute") && !ask.contains(HOSTILE_NAME), "{ask}");
        redirect_path(&owner.post(&format!("{path}/override/delete"), &[("identifier", HOSTILE_NAME)]).await);
        assert_eq!(limit_of(&kw, "mail", HOSTILE_NAME).await, 10);
        assert_eq!(owner.get(&format!("{path}/override?{query}")).await.status, 404);
        let again = owner.post(&format!("{path}/override/delete"), &[("identifier", HOSTILE_NAME)]).await;
        assert_eq!(again.status, 404);
        assert!(kw.list_audit_events(id(&path)).await.contains(&"ratelimit.delete_override".to_owned()));
    }

    async fn the_check_of_an_identifier_is_a_link_and_that_of_a_pattern_is_not(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let path = made(&mut owner, "mail").await;
        kw.set_override("mail", "user & 1", json!({ "limit": 7 })).await;
        kw.set_override("mail", "other_*", json!({})).await;

        let page = owner.get(&path).await.text;
        assert_eq!(page.matches("/simulator?identifier=").count(), 1, "{page}");
        let link = format!("{path}/simulator?identifier={}", between(&page, "/simulator?identifier=", "\""));
        let outcome = owner.get(&link).await.text;

        assert!(outcome.contains("value=\"user &#38; 1\"") && outcome.contains(">Allowed</h2>"), "{outcome}");
    }

    async fn what_is_wrong_with_an_override_is_told_and_kept(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let path = made(&mut owner, "mail").await;
        let [most, too_long] = [512, 513].map(|length| "i".repeat(length));
        let [stars, too_many_stars] = [8, 9].map(|count| "a*".repeat(count));
        for fine in [
            [("identifier", most.as_str()), ("limit", "0")],
            [("identifier", stars.as_str()), ("limit", "9223372036854775807")],
            [("identifier", "short"), ("duration", "60")],
        ] {
            set(&mut owner, &path, &fine).await;
        }
        set(&mut owner, &path, &[("identifier", "second"), ("duration", "1000"), ("duration-unit", "ms")]).await;

        for (field, fields) in [
            ("identifier", &[("identifier", too_long.as_str())] as Fields<'_>),
            ("identifier", &[("identifier", "")]),
            ("identifier", &[("identifier", &too_many_stars)]),
            ("limit", &[("identifier", "a"), ("limit", "-1")]),
            ("limit", &[("identifier", "a"), ("limit", "9223372036854775808")]),
            ("limit", &[("identifier", "a"), ("limit", "many")]),
            ("duration", &[("identifier", "a"), ("duration", "999"), ("duration-unit", "ms")]),
            ("duration", &[("identifier", "a"), ("duration", "")]),
            ("duration", &[("identifier", "a"), ("duration", "9223372036854775807")]),
            ("expires", &[("identifier", "a"), ("expires", "tomorrow")]),
            ("expires", &[("identifier", "a"), ("expires", "at"), ("expires-at", "tomorrow")]),
            ("expires", &[("identifier", "a"), ("expires", "at")]),
        ] {
            let usual = [("limit", "5"), ("duration", "1"), ("duration-unit", "min")];
            let fields: Vec<_> = fields.iter().chain(&usual).copied().collect();
            let page = owner.post(&format!("{path}/override"), &fields).await;
            assert_eq!(page.status, 422, "{field} {fields:?} {}", page.text);
            let hint = if field == "expires" { String::new() } else { format!("{field}-hint ") };
            let wrong = format!("aria-describedby=\"{hint}{field}-error\" aria-invalid");
            assert!(page.text.contains(&wrong), "{field} {fields:?} {}", page.text);
            assert!(page.text.contains(&format!("value=\"{}\"", fields[0].1)));
        }
        assert_eq!(kw.count_rows("overrides").await, 4);
    }

    async fn an_override_ends_when_it_was_told_to_and_a_change_keeps_its_end(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let path = made(&mut owner, "mail").await;
        let ends = NOON.0 + 3_600_123;
        kw.set_override("mail", "user_1", json!({ "expires": ends })).await;
        let form = owner.get(&format!("{path}/override?identifier=user_1")).await.text;
        assert!(form.contains("value=\"2026-03-10T13:00:00\"") && form.contains("value=\"at\" selected"), "{form}");

        let fields = |at| [("identifier", "user_1"), ("known", "yes"), ("expires", "at"), ("expires-at", at)];
        set(&mut owner, &path, &fields("2026-03-10T13:00")).await;
        kw.clock.advance_ms(3_600_123);
        assert_eq!(limit_of(&kw, "mail", "user_1").await, 5);
        kw.clock.advance_ms(1);
        assert_eq!(limit_of(&kw, "mail", "user_1").await, 10);
        assert!(owner.get(&path).await.text.contains(">Expired<"));

        set(&mut owner, &path, &fields("2026-03-10T13:00:02")).await;
        assert_eq!(limit_of(&kw, "mail", "user_1").await, 5);
        let in_a_week = [("identifier", "user_1"), ("known", "yes"), ("expires", "7"), ("expires-at", "2026-03-10T13:00:02")];
        set(&mut owner, &path, &in_a_week).await;
        let form = owner.get(&format!("{path}/override?identifier=user_1")).await.text;
        assert!(form.contains("value=\"2026-03-17T13:00:00\""), "{form}");
        set(&mut owner, &path, &[("identifier", "user_1"), ("known", "yes")]).await;
        let form = owner.get(&format!("{path}/override?identifier=user_1")).await.text;
        assert!(form.contains("<option value=\"\" selected>Never</option>"), "{form}");
        kw.clock.advance_ms(86_400_000);
        assert_eq!(limit_of(&kw, "mail", "user_1").await, 5);
    }

    async fn a_namespace_that_is_deleted_refuses_checks_and_keeps_its_name(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let path = made(&mut owner, "mail").await;
        set(&mut owner, &path, &[("identifier", "*")]).await;

        let asked = owner.get(&format!("{path}/delete")).await.text;
        assert!(asked.contains("Delete mail?") && asked.contains("Its override is deleted too."), "{asked}");
        assert_eq!(limit_of(&kw, "mail", "user_1").await, 5);
        redirect_path(&owner.post(&format!("{path}/delete"), &[]).await);

        assert_eq!(kw.check_limit("mail", "user_1", json!({})).await.status, 410);
        for rest in ["", "/delete", "/override", "/simulator"] {
            assert_eq!(owner.get(&format!("{path}{rest}")).await.status, 404, "{rest}");
        }
        assert_eq!(owner.post(&format!("{path}/delete"), &[]).await.status, 404);
        assert!(!owner.get(&workspace_path("/ratelimits")).await.text.contains(id(&path)));
        let again = owner.post(&workspace_path("/ratelimits"), &[("name", "mail")]).await;
        assert!(again.status == 422 && again.text.contains("its name stays reserved"));
        let events = kw.list_audit_events(id(&path)).await;
        assert!(events.contains(&"ratelimitNamespace.delete".to_owned()), "{events:?}");
    }

    async fn what_checks_are_answered_while_the_counters_are_away_is_chosen(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let path = made(&mut owner, "mail").await;
        assert!(owner.get(&path).await.text.contains("Each replica enforces its share"));
        assert!(owner.get(&format!("{path}/outage")).await.text.contains("value=\"local\" checked"));

        for (outage, told) in [("closed", "All checks are rejected"), ("open", "All checks are allowed")] {
            redirect_path(&owner.post(&format!("{path}/outage"), &[("outage", outage)]).await);
            assert!(owner.get(&path).await.text.contains(told), "{outage}");
        }
        for outage in ["", "sometimes"] {
            let refused = owner.post(&format!("{path}/outage"), &[("outage", outage)]).await;
            assert_eq!(refused.status, 422, "{outage}");
            assert!(refused.text.contains("must be local, open or closed"), "{}", refused.text);
        }
        assert!(owner.get(&path).await.text.contains("All checks are allowed"));
        let events = kw.list_audit_events(id(&path)).await;
        assert_eq!(events.iter().filter(|e| *e == "ratelimitNamespace.update").count(), 2);
    }

    async fn the_simulator_tells_which_override_wins_and_why(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let path = made(&mut owner, "mail").await;
        let none = simulated(&mut owner, &path, &[("identifier", "user_1")]).await.1;
        assert!(none.contains("No active override matches") && none.contains("10 per minute"), "{none}");

        for (identifier, limit) in [("*", 1), ("user_*", 2), ("u*", 3), ("user_1", 4), ("other", 5)] {
            kw.clock.advance_ms(1);
            kw.set_override("mail", identifier, json!({ "limit": limit, "duration": 120_000 })).await;
        }
        let exact = simulated(&mut owner, &path, &[("identifier", "user_1")]).await.1;
        let places: Vec<_> = ["user_1", "user_*", "u*", "*"]
            .map(|tried| exact.find(&format!("<th scope=\"row\"><code class=\"break\">{tried}</code>")))
            .into_iter()
            .collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} {exact}");
        assert_eq!((count_table_rows(&exact), exact.matches("Not evaluated").count()), (4, 3));
        assert!(exact.contains("exists for exactly this identifier") && exact.contains("4 per 2 minutes"));

        let soon = kw.clock.now().0 + 1;
        kw.set_override("mail", "user_1", json!({ "limit": 4, "expires": soon })).await;
        let live = simulated(&mut owner, &path, &[("identifier", "user_1")]).await.1;
        assert!(live.contains("exists for exactly this identifier"));
        kw.clock.advance_ms(2);
        let over = simulated(&mut owner, &path, &[("identifier", "user_1")]).await.1;
        assert!(over.contains("Skipped (expired)") && over.contains("The override for user_* matches first"), "{over}");
        assert_eq!(limit_of(&kw, "mail", "user_1").await, 2);
    }

    async fn the_simulator_tells_what_is_left_and_counts_nothing(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let mut viewer = owner.invite("eve@example.com", "viewer").await;
        let path = made(&mut owner, "mail").await;
        kw.check_limit("mail", "user_1", json!({ "cost": 7 })).await;
        let entries = kw.count_audit_entries().await;

        for (cost, passes) in [("0", true), ("3", true), ("4", false), ("9223372036854775807", false)] {
            let fields = [("identifier", "user_1"), ("cost", cost)];
            for visitor in [&mut owner, &mut viewer] {
                let (status, page) = simulated(visitor, &path, &fields).await;
                assert_eq!(status, 200);
                assert!(page.contains("<dt>Remaining</dt><dd>3</dd>"), "{page}");
                assert_eq!(page.contains(">Allowed</h2>"), passes, "{cost}");
                assert_eq!(page.contains(">Rejected</h2>"), !passes, "{cost}");
            }
        }

        assert_eq!(kw.check_limit("mail", "user_1", json!({ "cost": 3 })).await.data()["remaining"], 0);
        kw.set_override("mail", "user_2", json!({ "limit": 0 })).await;
        let shut = simulated(&mut owner, &path, &[("identifier", "user_2"), ("cost", "0")]).await.1;
        assert!(shut.contains(">Rejected</h2>") && shut.contains("Blocked"));
        assert_eq!(kw.count_audit_entries().await, entries + 1);
    }

    async fn the_simulator_has_the_bounds_of_a_check(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let path = made(&mut owner, "mail").await;
        let [most, too_long] = [512, 513].map(|length| "<".repeat(length));

        for (field, value, other, status) in [
            ("identifier", most.as_str(), ("cost", "1"), 200),
            ("identifier", too_long.as_str(), ("cost", "1"), 422),
            ("identifier", "", ("cost", "1"), 422),
            ("limit", "1", ("identifier", "a"), 200),
            ("limit", "0", ("identifier", "a"), 422),
            ("duration", "1", ("duration-unit", "s"), 200),
            ("duration", "999", ("duration-unit", "ms"), 422),
            ("duration", "30", ("duration-unit", "d"), 200),
            ("duration", "2592000001", ("duration-unit", "ms"), 422),
            ("cost", "-1", ("identifier", "a"), 422),
            ("cost", "x", ("identifier", "a"), 422),
        ] {
            let fields = [(field, value), other, ("identifier", "a")];
            let (answer, page) = simulated(&mut owner, &path, &fields).await;
            assert_eq!(answer, status, "{field} {value}");
            assert_eq!(page.contains("aria-invalid"), status == 422, "{field} {value}");
        }
        let untouched = owner.get(&format!("{path}/simulator")).await;
        assert!(untouched.status == 200 && !untouched.text.contains("Applied limit"));
    }

    async fn a_namespace_of_another_workspace_does_not_exist(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let stranger = kw.create_other_workspace().await;
        let check = json!({ "namespace": "theirs", "identifier": "a", "limit": 1, "duration": 1000 });
        kw.v2_as(&stranger, "ratelimit.setOverride", check.clone()).await;
        kw.v2_as(&stranger, "ratelimit.limit", check.clone()).await;
        kw.v2_as(&stranger, "ratelimit.setOverride", check).await;
        let theirs = kw.list_texts("namespaces", "id").await[0].clone();

        for named in [theirs.as_str(), "theirs"] {
            for rest in ["", "/delete", "/override", "/override?identifier=a", "/override/delete?identifier=a", "/simulator?identifier=a"] {
                let page = owner.get(&workspace_path(&format!("/ratelimits/{named}{rest}"))).await;
                assert_eq!(page.status, 404, "{rest}");
            }
            for rest in ["/delete", "/override", "/override/delete"] {
                let path = workspace_path(&format!("/ratelimits/{named}{rest}"));
                let page = owner.post(&path, &[("identifier", "a"), ("limit", "1"), ("duration", "1000")]).await;
                assert_eq!(page.status, 404, "{rest}");
            }
        }
        assert_eq!((kw.count_rows("namespaces").await, kw.count_rows("overrides").await), (1, 1));
        assert!(!owner.get(&workspace_path("/ratelimits")).await.text.contains("theirs"));
    }
}
