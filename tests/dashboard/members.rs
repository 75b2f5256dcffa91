//! Members, roles, and what belongs to others.

mod demotion;

use domain::caller::ClientInfo;
use domain::root_keys;
use domain::users::single_sign_on::{SignInPurpose, sign_in_with_claims};
use foundation::model::MemberRole;

use super::single_sign_on::{comes, told, with};
use super::{
    Browser, EMAIL, PASSWORD, between, count_table_rows, next_page_path, redirect_path,
    workspace_path,
};
use crate::on_both_stacks;
use crate::support::NOON;

type Fields = &'static [(&'static str, &'static str)];

/// Each act of the workspace, as its form would send it, and which of owner, admin and viewer may do it.
const ACTS: [(&str, Fields, [bool; 3]); 39] = [
    ("/members/invite", &[("role", "viewer")], [true, false, false]),
    ("/members/user_none/role", &[("role", "viewer")], [true, false, false]),
    ("/members/user_none/remove", &[], [true, false, false]),
    ("/invitations/inv_none/withdraw", &[], [true, false, false]),
    ("/root-keys", &[("permission", "api.*.verify_key")], [true, true, false]),
    ("/root-keys/key_none/revoke", &[], [true, true, false]),
    ("/apis", &[("name", "payments")], [true, true, false]),
    ("/apis/api_none/settings", &[("name", "payments")], [true, true, false]),
    ("/apis/api_none/delete", &[("name", "payments")], [true, true, false]),
    ("/keys", &[("api", "api_none")], [true, true, false]),
    ("/keys/search", &[("q", "none")], [true; 3]),
    ("/keys/search/live", &[("q", "none")], [true; 3]),
    ("/keys/key_none/reveal", &[], [true, true, false]),
    ("/keys/key_none/restore", &[], [true, true, false]),
    ("/search", &[("q", "none")], [true; 3]),
    ("/search/live", &[("q", "none")], [true; 3]),
    ("/keys/bulk", &[("act", "disable"), ("key", "key_none")], [true, true, false]),
    ("/keys/bulk/do", &[("act", "delete"), ("key", "key_none")], [true, true, false]),
    ("/keys/bulk/undo", &[("entry", "log_none")], [true, true, false]),
    ("/keys/key_none/edit", &[("was", "{}")], [true, true, false]),
    ("/keys/key_none/credits", &[("operation", "set"), ("value", "1")], [true, true, false]),
    ("/keys/key_none/enabled", &[("enabled", "true")], [true, true, false]),
    ("/keys/key_none/reroll", &[("grace", "0")], [true, true, false]),
    ("/keys/key_none/delete", &[], [true, true, false]),
    ("/permissions", &[("slug", "documents.read")], [true, true, false]),
    ("/permissions/perm_none/delete", &[], [true, true, false]),
    ("/roles", &[("name", "reader"), ("permission", "documents.read")], [true, true, false]),
    ("/roles/role_none/permissions", &[("more", "documents.read")], [true, true, false]),
    ("/roles/role_none/delete", &[], [true, true, false]),
    ("/ratelimits", &[("name", "a namespace")], [true, true, false]),
    ("/ratelimits/rlns_none/delete", &[], [true, true, false]),
    ("/ratelimits/rlns_none/override", &[("identifier", "a")], [true, true, false]),
    ("/ratelimits/rlns_none/override/delete", &[("identifier", "a")], [true, true, false]),
    ("/imports", &[("algorithm", "sha256")], [true, true, false]),
    ("/imports/mig_none", &[("keys", "hash")], [true, true, false]),
    ("/identities", &[("externalId", "user_1")], [true, true, false]),
    ("/identities/id_none/edit", &[], [true, true, false]),
    ("/identities/id_none/delete", &[], [true, true, false]),
    ("/workspace", &[("name", "default")], [true, true, false]),
];
const PAGES: [(&str, [bool; 3]); 45] = [
    ("", [true; 3]),
    ("/search", [true; 3]),
    ("/analytics", [true; 3]),
    ("/root-keys", [true; 3]),
    ("/members", [true; 3]),
    ("/workspace", [true; 3]),
    ("/root-keys/new", [true, true, false]),
    ("/root-keys/key_none/secret/none", [true; 3]),
    ("/members/user_none/remove", [true, false, false]),
    ("/invitations/inv_none/secret/none", [true, false, false]),
    ("/gateways/none/secret/none", [true; 3]),
    ("/apis", [true; 3]),
    ("/apis/api_none", [true; 3]),
    ("/apis/new", [true, true, false]),
    ("/apis/api_none/settings", [true, true, false]),
    ("/apis/api_none/delete", [true, true, false]),
    ("/keys", [true; 3]),
    ("/keys/key_none", [true; 3]),
    ("/keys/new", [true, true, false]),
    ("/keys/why", [true; 3]),
    ("/keys/key_none/edit", [true, true, false]),
    ("/keys/key_none/credits", [true, true, false]),
    ("/keys/key_none/reroll", [true, true, false]),
    ("/keys/key_none/secret/none", [true; 3]),
    ("/keys/key_none/delete", [true, true, false]),
    ("/permissions", [true; 3]),
    ("/roles", [true; 3]),
    ("/which-keys?slug=documents.read", [true; 3]),
    ("/permissions/new", [true, true, false]),
    ("/permissions/perm_none/delete", [true, true, false]),
    ("/roles/new", [true, true, false]),
    ("/roles/role_none/permissions", [true, true, false]),
    ("/roles/role_none/delete", [true, true, false]),
    ("/ratelimits", [true; 3]),
    ("/ratelimits/new", [true, true, false]),
    ("/ratelimits/rlns_none/delete", [true, true, false]),
    ("/ratelimits/rlns_none/override", [true, true, false]),
    ("/ratelimits/rlns_none/override/delete", [true, true, false]),
    ("/imports", [true; 3]),
    ("/imports/mig_none", [true; 3]),
    ("/imports/new", [true, true, false]),
    ("/identities", [true; 3]),
    ("/new-identity", [true, true, false]),
    ("/identities/id_none/edit", [true, true, false]),
    ("/identities/id_none/delete", [true, true, false]),
];

/// Returns the e-mail addresses of a list of members, page by page.
async fn emails(browser: &mut Browser<'_>, path: &str) -> Vec<String> {
    let (mut emails, mut path) = (Vec::new(), workspace_path(path));
    loop {
        let page = browser.get(&path).await;
        let rows = page.text.split("<tr><th scope=\"row\" class=\"break\">").skip(1);
        emails.extend(rows.map(|row| between(row, "", "<").trim().to_owned()));
        if !page.text.contains("rel=\"next\"") {
            return emails;
        }
        path = next_page_path(&page);
    }
}

on_both_stacks! {
    async fn each_role_may_do_what_it_is_for_and_nothing_else(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let mut admin = owner.invite("adam@example.com", "admin").await;
        let mut viewer = owner.invite("eve@example.com", "viewer").await;

        for (at_role, visitor) in [&mut owner, &mut admin, &mut viewer].into_iter().enumerate() {
            for (path, fields, may) in ACTS {
                let status = visitor.post(&workspace_path(path), fields).await.status;
                assert_eq!(status != 403, may[at_role], "{path} {at_role} {status}");
            }
            for (path, may) in PAGES {
                let status = visitor.get(&workspace_path(path)).await.status;
                assert_eq!(status != 403, may[at_role], "{path} {at_role} {status}");
            }
        }
    }

    async fn a_workspace_of_others_does_not_exist(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        kw.create_other_workspace().await;
        let ids = kw.list_texts("workspaces", "id").await;
        let other = ids.iter().find(|id| *id != "ws_default").unwrap();

        for workspace in [other.as_str(), "ws_none"] {
            for (path, _) in PAGES {
                let page = owner.get(&format!("/dashboard/{workspace}{path}")).await;
                assert_eq!(page.status, 404, "{path}");
            }
            for (path, fields, _) in ACTS {
                let page = owner.post(&format!("/dashboard/{workspace}{path}"), fields).await;
                assert_eq!(page.status, 404, "{path}");
            }
        }
    }

    async fn there_is_always_an_owner(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let me = kw.list_texts("people", "id").await[0].clone();

        let fields = [("role", "admin"), ("confirmed", "yes")];
        let stepped = owner.post(&workspace_path(&format!("/members/{me}/role")), &fields).await;
        let left = owner.post(&workspace_path(&format!("/members/{me}/remove")), &[]).await;

        assert_eq!((stepped.status.as_u16(), left.status.as_u16()), (412, 412));
        assert!(left.text.contains("must keep an owner"), "{}", left.text);
        owner.invite("grace@example.com", "owner").await;
        let left = owner.post(&workspace_path(&format!("/members/{me}/remove")), &[]).await;
        assert_eq!(left.status, 303);
        assert!(!owner.is_signed_in().await);
    }

    async fn owner_confirms_the_change_of_the_own_role(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        owner.invite("grace@example.com", "owner").await;
        let me = owner.load_session().await.user.id;
        let path = workspace_path(&format!("/members/{me}/role"));

        for (role, loss) in [("admin", "You can no longer manage members."), ("viewer", "You can then only view this workspace.")] {
            let asked = owner.post(&path, &[("role", role)]).await;
            assert_eq!(asked.status, 200, "{}", asked.text);
            assert!(asked.text.contains(&format!("Change your own role to {role}?")), "{}", asked.text);
            assert!(asked.text.contains(loss), "{}", asked.text);
        }
        redirect_path(&owner.post(&path, &[("role", "owner")]).await);
        assert_eq!(owner.get(&workspace_path("/root-keys/new")).await.status, 200);

        let asked = owner.post(&path, &[("role", "viewer")]).await.text;
        let confirmed = between(&asked, "name=\"confirmed\" value=\"", "\"");
        let role = between(&asked, "name=\"role\" value=\"", "\"");
        let changed = owner.post(&path, &[("role", role), ("confirmed", confirmed)]).await;

        assert_eq!(redirect_path(&changed), workspace_path("/members?notice=role"));
        assert_eq!(owner.get(&workspace_path("/root-keys/new")).await.status, 403);
    }

    async fn a_role_that_changes_holds_from_the_next_page_on(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let mut viewer = owner.invite("eve@example.com", "viewer").await;
        let page = owner.get(&workspace_path("/members")).await.text;
        let eve = between(&page, "Role of eve@example.com", "<");
        assert!(eve.is_empty());
        let ids = kw.list_texts("people", "id").await;

        for id in ids {
            owner.post(&workspace_path(&format!("/members/{id}/role")), &[("role", "admin")]).await;
        }

        assert_eq!(viewer.get(&workspace_path("/root-keys/new")).await.status, 200);
    }

    async fn members_are_listed_page_by_page_and_searched_by_email(kw) {
        let kw = with(&kw, |oidc| oidc.default_role = Some(MemberRole::Viewer)).await;
        let mut owner = Browser::sign_in_owner(&kw).await;
        for at in 0..30 {
            let told = told(&at.to_string(), &format!("member{at:02}@example.com"));
            comes(&kw, &told, &SignInPurpose::SignIn).await.ok().unwrap();
        }

        let first = owner.get(&workspace_path("/members")).await;
        let second = owner.get(&next_page_path(&first)).await;
        let found = owner.get(&workspace_path("/members?q=%20MEMBER2")).await;
        let none = owner.get(&workspace_path("/members?q=_")).await;

        assert_eq!([&first, &second, &found, &none].map(|page| count_table_rows(&page.text)), [25, 6, 10, 0]);
        assert!(first.text.contains(EMAIL) && first.text.contains("member23@"));
        assert!(second.text.contains("member24@") && second.text.contains("member29@"));
        assert!(!second.text.contains("rel=\"next\"") && second.text.contains("First page"));
        assert!(none.text.contains("No matching members"));
        // One of a later page is asked about too.
        let id = between(&second.text, "for=\"role-", "\"");
        let asked = owner.get(&workspace_path(&format!("/members/{id}/remove"))).await.text;
        assert!(asked.contains("Remove member24@example.com?"), "{asked}");
    }

    async fn members_are_by_email_in_both_directions(kw) {
        let kw = with(&kw, |oidc| oidc.default_role = Some(MemberRole::Viewer)).await;
        let mut owner = Browser::sign_in_owner(&kw).await;
        for at in 0..27 {
            let told = told(&at.to_string(), &format!("member{:02}@example.com", at * 7 % 27));
            comes(&kw, &told, &SignInPurpose::SignIn).await.ok().unwrap();
        }
        let mut expected: Vec<_> = (0..27).map(|at| format!("member{at:02}@example.com")).collect();
        expected.push(EMAIL.to_owned());
        expected.sort_unstable();

        let page = owner.get(&workspace_path("/members")).await.text;
        let head = between(&page, "aria-sort=\"ascending\"><a href=\"", "\"").replace("&#38;", "&");
        let reversed = owner.get(&head).await.text;

        assert_eq!(head, workspace_path("/members?order=descending"));
        assert_eq!(between(&reversed, "aria-sort=\"descending\"><a href=\"", "\""), workspace_path("/members"));
        assert!(reversed.contains("<input type=\"hidden\" name=\"order\" value=\"descending\">"), "{reversed}");
        assert_eq!(emails(&mut owner, "/members").await, expected);
        expected.reverse();
        assert_eq!(emails(&mut owner, "/members?order=descending").await, expected);
        expected.retain(|email| email.contains("member2"));
        assert_eq!(emails(&mut owner, "/members?q=member2&order=descending").await, expected);
    }

    async fn a_workspace_has_ten_thousand_members_and_no_more(kw) {
        let kw = with(&kw, |oidc| oidc.default_role = Some(MemberRole::Viewer)).await;
        Browser::sign_in_owner(&kw).await;
        let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9998)";
        kw.execute_sql(format!(
            "{many} INSERT INTO people (id, email, password, created_at)
            SELECT 'user_' || i, i || '@many.example', '', 0 FROM n"
        )).await;
        kw.execute_sql(format!(
            "{many} INSERT INTO memberships (workspace_id, person_id, role, joined_at)
            SELECT 'ws_default', 'user_' || i, 'viewer', 0 FROM n"
        )).await;

        let last = comes(&kw, &told("last", "last@example.com"), &SignInPurpose::SignIn).await;
        let late = told("late", "late@example.com");
        let late = sign_in_with_claims(&kw.app.users, &late, &SignInPurpose::SignIn, None, &ClientInfo::default()).await;

        assert!(last.is_ok());
        assert!(late.unwrap_err().to_string().contains("the maximum of 10000 members"));
        // An owner who has forgotten the password needs no further place.
        let workspace = root_keys::default_workspace();
        let link = domain::users::create_operator_invitation(&kw.app.context, &workspace).await.unwrap();
        let back = Browser::new(&kw).accept_invitation(link.expose(), EMAIL, "another horse battery").await;
        assert_eq!(back.status, 303, "{}", back.text);
        assert_eq!(kw.count_rows("memberships").await, 10_000);
    }

    async fn an_invitation_that_is_withdrawn_is_not_good(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let page = owner.post(&workspace_path("/members/invite"), &[("role", "owner")]).await.text;
        let token = between(&page, "/dashboard/join/", "<").to_owned();
        let withdraw = between(&page, "action=\"/dashboard/ws_default/invitations/", "\"");

        let withdrawn = owner.post(&workspace_path(&format!("/invitations/{withdraw}")), &[]).await;

        assert_eq!(withdrawn.status, 303);
        let mut late = Browser::new(&kw);
        assert_eq!(late.accept_invitation(&token, "late@example.com", PASSWORD).await.status, 422);
    }

    async fn a_workspace_has_a_thousand_pending_invitations_and_no_more(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        // The first one expires within an hour.
        kw.execute_sql(format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 999)
            INSERT INTO invitations (id, workspace_id, hash, kind, role, created_at, expires_at)
            SELECT 'inv_' || i, 'ws_default', 'hash_' || i, 'member', 'viewer', 0,
                CASE i WHEN 1 THEN {} ELSE {} END
            FROM n",
            NOON.plus_ms(3_600_000).0,
            NOON.plus_ms(4 * 3_600_000).0
        )).await;
        let invite = async |owner: &mut Browser| {
            let page = owner.post(&workspace_path("/members/invite"), &[("role", "viewer")]).await;
            let is_full = page.text.contains("the maximum of 1000 pending invitations");
            assert_eq!(is_full, page.status == 412, "{}", page.text);
            page.status
        };
        assert_eq!(invite(&mut owner).await, 200);
        assert_eq!(invite(&mut owner).await, 412);

        let withdrawn = owner.post(&workspace_path("/invitations/inv_999/withdraw"), &[]).await;

        assert_eq!(withdrawn.status, 303);
        assert_eq!(invite(&mut owner).await, 200);
        assert_eq!(invite(&mut owner).await, 412);
        kw.clock.advance_ms(3_600_001);
        assert_eq!(invite(&mut owner).await, 200);
        assert_eq!(invite(&mut owner).await, 412);
    }

    async fn what_is_done_to_members_is_in_the_audit_log_with_who_did_it(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        owner.invite("eve@example.com", "viewer").await;

        let events = kw.list_audit_events("eve@example.com").await;
        let actors = kw.list_texts("audit", "actor_name").await;
        let types = kw.list_texts("audit", "actor_type").await;

        assert_eq!(events, ["member.join"]);
        assert!(actors.iter().any(|actor| actor == EMAIL));
        assert!(types.iter().any(|kind| kind == "user"));
    }

    async fn a_person_of_two_workspaces_sees_each_by_itself(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let id = root_keys::create_workspace(&kw.app.context, "<b>second</b>").await.unwrap();
        let link = domain::users::create_operator_invitation(&kw.app.context, &id).await.unwrap();

        owner.accept_invitation(link.expose(), EMAIL, PASSWORD).await;
        let page = owner.get(&workspace_path("")).await.text;

        assert!(page.contains(&format!("href=\"/dashboard/{id}\"")), "{page}");
        assert!(page.contains("&#60;b&#62;second") && !page.contains("<b>second"), "{page}");
        assert_eq!(owner.get(&format!("/dashboard/{id}/members")).await.status, 200);
    }
}
