//! Members, roles, and what belongs to others.

use keyward::domain::root_keys;

use super::{EMAIL, PASSWORD, Visitor, at, between};
use crate::both;

type Fields = &'static [(&'static str, &'static str)];

/// Each act of the workspace, as its form would send it, and which of owner, admin and viewer may do it.
const ACTS: [(&str, Fields, [bool; 3]); 30] = [
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
    ("/keys/find", &[("key", "none")], [true; 3]),
    ("/keys/bulk", &[("act", "disable"), ("key", "key_none")], [true, true, false]),
    ("/keys/bulk/do", &[("act", "delete"), ("key", "key_none")], [true, true, false]),
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
    ("/identities", &[("externalId", "user_1")], [true, true, false]),
    ("/identities/id_none/edit", &[], [true, true, false]),
    ("/identities/id_none/delete", &[], [true, true, false]),
];
const PAGES: [(&str, [bool; 3]); 35] = [
    ("", [true; 3]),
    ("/analytics", [true; 3]),
    ("/root-keys", [true; 3]),
    ("/members", [true; 3]),
    ("/root-keys/new", [true, true, false]),
    ("/members/user_none/remove", [true, false, false]),
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
    ("/keys/key_none/reroll", [true, true, false]),
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
    ("/identities", [true; 3]),
    ("/new-identity", [true, true, false]),
    ("/identities/id_none/edit", [true, true, false]),
    ("/identities/id_none/delete", [true, true, false]),
];

both! {
    async fn each_role_may_do_what_it_is_for_and_nothing_else(kw) {
        let mut owner = Visitor::owner(&kw).await;
        let mut admin = owner.invited("adam@example.com", "admin").await;
        let mut viewer = owner.invited("eve@example.com", "viewer").await;

        for (at_role, visitor) in [&mut owner, &mut admin, &mut viewer].into_iter().enumerate() {
            for (path, fields, may) in ACTS {
                let status = visitor.post(&at(path), fields).await.status;
                assert_eq!(status != 403, may[at_role], "{path} {at_role} {status}");
            }
            for (path, may) in PAGES {
                let status = visitor.get(&at(path)).await.status;
                assert_eq!(status != 403, may[at_role], "{path} {at_role} {status}");
            }
        }
    }

    async fn a_workspace_of_others_does_not_exist(kw) {
        let mut owner = Visitor::owner(&kw).await;
        kw.other_workspace().await;
        let ids = kw.texts("workspaces", "id").await;
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
        let mut owner = Visitor::owner(&kw).await;
        let me = kw.texts("people", "id").await[0].clone();

        let stepped = owner.post(&at(&format!("/members/{me}/role")), &[("role", "admin")]).await;
        let left = owner.post(&at(&format!("/members/{me}/remove")), &[]).await;

        assert_eq!((stepped.status.as_u16(), left.status.as_u16()), (412, 412));
        assert!(left.text.contains("must keep an owner"), "{}", left.text);
        owner.invited("grace@example.com", "owner").await;
        let left = owner.post(&at(&format!("/members/{me}/remove")), &[]).await;
        assert_eq!(left.status, 303);
        assert!(!owner.is_in().await);
    }

    async fn a_role_that_changes_holds_from_the_next_page_on(kw) {
        let mut owner = Visitor::owner(&kw).await;
        let mut viewer = owner.invited("eve@example.com", "viewer").await;
        let page = owner.get(&at("/members")).await.text;
        let eve = between(&page, "Role of eve@example.com", "<");
        assert!(eve.is_empty());
        let ids = kw.texts("people", "id").await;

        for id in ids {
            owner.post(&at(&format!("/members/{id}/role")), &[("role", "admin")]).await;
        }

        assert_eq!(viewer.get(&at("/root-keys/new")).await.status, 200);
    }

    async fn an_invitation_that_is_withdrawn_is_not_good(kw) {
        let mut owner = Visitor::owner(&kw).await;
        let page = owner.post(&at("/members/invite"), &[("role", "owner")]).await.text;
        let token = between(&page, "/dashboard/join/", "<").to_owned();
        let withdraw = between(&page, "action=\"/dashboard/ws_default/invitations/", "\"");

        let withdrawn = owner.post(&at(&format!("/invitations/{withdraw}")), &[]).await;

        assert_eq!(withdrawn.status, 303);
        let mut late = Visitor::of(&kw);
        assert_eq!(late.join(&token, "late@example.com", PASSWORD).await.status, 422);
    }

    async fn what_is_done_to_members_is_in_the_audit_log_with_who_did_it(kw) {
        let mut owner = Visitor::owner(&kw).await;
        owner.invited("eve@example.com", "viewer").await;

        let events = kw.events_of("eve@example.com").await;
        let actors = kw.texts("audit", "actor_name").await;
        let types = kw.texts("audit", "actor_type").await;

        assert_eq!(events, ["member.join"]);
        assert!(actors.iter().any(|actor| actor == EMAIL));
        assert!(types.iter().any(|kind| kind == "user"));
    }

    async fn a_person_of_two_workspaces_sees_each_by_itself(kw) {
        let mut owner = Visitor::owner(&kw).await;
        let id = root_keys::create_workspace(&kw.app, "<b>second</b>").await.unwrap();
        let link = keyward::domain::people::operator_link(&kw.app, &id).await.unwrap();

        owner.join(link.expose(), EMAIL, PASSWORD).await;
        let page = owner.get(&at("")).await.text;

        assert!(page.contains(&format!("href=\"/dashboard/{id}\"")), "{page}");
        assert!(page.contains("&#60;b&#62;second") && !page.contains("<b>second"), "{page}");
        assert_eq!(owner.get(&format!("/dashboard/{id}/members")).await.status, 200);
    }
}
