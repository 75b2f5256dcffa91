//! Signing in and out.

use request::PEER;

use super::{Browser, EMAIL, PASSWORD, between, workspace_path};
use crate::on_both_stacks;
use crate::support::Keyward;

const SESSION: &str = "__Host-keyward-session";
const GUEST: &str = "__Host-keyward-guest";

on_both_stacks! {
    async fn the_cookie_of_a_session_is_out_of_reach_of_scripts_and_other_sites(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        owner.post("/dashboard/logout", &[]).await;

        let signed_in = owner.sign_in(EMAIL, PASSWORD).await;

        let cookies = signed_in.headers.get_all("set-cookie").iter();
        let cookie = cookies.map(|c| c.to_str().unwrap()).find(|c| c.starts_with(SESSION)).unwrap();
        for flag in ["; Path=/;", "; Secure", "; HttpOnly", "; SameSite=Lax"] {
            assert!(cookie.contains(flag), "{cookie}");
        }
        assert!(!cookie.contains("Domain"));
    }

    /// 128 bits protect a form of a visitor for a while; what signs somebody in has 256, and a root key 192.
    async fn secrets_are_too_long_to_be_guessed(kw) {
        let mut visitor = Browser::new(&kw);
        visitor.get("/dashboard/login").await;
        let mut owner = Browser::sign_in_owner(&kw).await;
        let page = owner.post(&workspace_path("/members/invite"), &[("role", "viewer")]).await;
        let root_key = kw.create_root_key(["api.*.verify_key"]).await;
        let random = root_key.split_once('_').expect("a prefix").1;

        let secrets =
            [&visitor.cookies[GUEST], &owner.cookies[SESSION], between(&page.text, "/dashboard/join/", "<"), random];

        let bytes = secrets.map(|secret| bs58::decode(secret).into_vec().expect("base58").len());
        assert_eq!(bytes, [16, 32, 32, 24]);
    }

    async fn signing_in_makes_a_new_session_whatever_cookie_was_brought(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        owner.post("/dashboard/logout", &[]).await;
        let mut victim = Browser::new(&kw);
        victim.cookies.insert(SESSION.into(), "planted".into());

        victim.sign_in(EMAIL, PASSWORD).await;
        let first = victim.cookies[SESSION].clone();
        victim.csrf.clear();
        victim.get("/dashboard/account").await;
        let again = [("email", EMAIL), ("password", PASSWORD)];
        victim.post("/dashboard/login", &again).await;

        assert_ne!(first, "planted");
        assert_ne!(victim.cookies[SESSION], first);
        let mut old = Browser::new(&kw);
        old.cookies.insert(SESSION.into(), first);
        assert!(!old.is_signed_in().await);
    }

    async fn signing_out_ends_the_session_on_the_server(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let kept = owner.cookies.clone();

        owner.post("/dashboard/logout", &[]).await;

        owner.cookies = kept;
        assert!(!owner.is_signed_in().await);
    }

    async fn an_unknown_email_and_a_wrong_password_get_one_answer(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        owner.post("/dashboard/logout", &[]).await;

        let wrong = owner.sign_in(EMAIL, "another password").await;
        let unknown = owner.sign_in("nobody@example.com", "another password").await;

        assert_eq!((wrong.status, unknown.status), (unknown.status, wrong.status));
        assert_eq!(wrong.status, 422);
        assert_eq!(wrong.text, unknown.text.replace("nobody@example.com", EMAIL));
    }

    /// Otherwise the time of the reply would tell who has an account.
    async fn an_unknown_email_costs_a_hash_as_a_wrong_password_does(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        owner.post("/dashboard/logout", &[]).await;

        for email in [EMAIL, "nobody@example.com"] {
            let before = kw.app.context.metrics.password_hashes.get();
            assert_eq!(owner.sign_in(email, "another password").await.status, 422);
            assert_eq!(kw.app.context.metrics.password_hashes.get(), before + 1, "{email}");
        }
    }

    async fn an_email_has_ten_attempts_in_a_quarter_of_an_hour(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        owner.post("/dashboard/logout", &[]).await;

        // The one by which the owner joined counts, too.
        for _ in 0..9 {
            assert_eq!(owner.sign_in(EMAIL, "another password").await.status, 422);
        }
        kw.clock.advance_ms(60_500);
        let refused = owner.sign_in(EMAIL, PASSWORD).await;
        let other = owner.sign_in("nobody@example.com", PASSWORD).await;

        assert_eq!(refused.status, 429);
        // The quarter of an hour began at noon.
        assert_eq!(refused.headers["retry-after"], "840");
        let text = "Too many sign-in attempts; try again in 14 minutes.";
        assert!(refused.text.contains(text), "{}", refused.text);
        assert_eq!(other.status, 422);
        kw.clock.advance_ms(2 * 15 * 60_000);
        assert_eq!(owner.sign_in(EMAIL, PASSWORD).await.status, 303);
    }

    async fn an_address_has_fifty_attempts_in_a_quarter_of_an_hour(kw) {
        let mut stranger = Browser::new(&kw);
        let here = "203.0.113.9:1".parse().unwrap();

        for at in 0..50 {
            let email = format!("nobody{at}@example.com");
            let tried = PEER.scope(here, stranger.sign_in(&email, "another password")).await;
            assert_eq!(tried.status, 422, "{at}");
        }
        let refused = PEER.scope(here, stranger.sign_in("one@example.com", "another one")).await;
        let elsewhere = "203.0.113.10:1".parse().unwrap();
        let other = PEER.scope(elsewhere, stranger.sign_in("one@example.com", "another one")).await;

        assert_eq!((refused.status.as_u16(), other.status.as_u16()), (429, 422));
    }

    async fn an_address_is_not_told_by_a_header_when_no_proxy_is_trusted(kw) {
        let mut stranger = Browser::new(&kw);
        let here = "203.0.113.9:1".parse().unwrap();

        for at in 0..50 {
            stranger.forwarded = Some(format!("198.51.100.{at}"));
            let email = format!("nobody{at}@example.com");
            let tried = PEER.scope(here, stranger.sign_in(&email, "another password")).await;
            assert_eq!(tried.status, 422, "{at}");
        }
        stranger.forwarded = Some("198.51.100.99".into());
        let refused = PEER.scope(here, stranger.sign_in("one@example.com", "another one")).await;

        assert_eq!(refused.status, 429);
    }

    async fn a_session_ends_when_nobody_uses_it_for_hours(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;

        kw.clock.advance_ms(8 * 3_600_000);
        assert!(owner.is_signed_in().await);
        kw.clock.advance_ms(8 * 3_600_000 + 1);

        assert!(!owner.is_signed_in().await);
    }

    async fn live_refresh_of_analytics_does_not_prolong_a_session(kw) {
        assert_session_ends_while_open(&kw, "analytics?live=on").await;
    }

    async fn live_refresh_of_logs_does_not_prolong_a_session(kw) {
        assert_session_ends_while_open(&kw, "logs?live=299").await;
    }

    async fn a_session_ends_after_a_week_however_much_it_is_used(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;

        for _ in 0..28 {
            assert!(owner.is_signed_in().await);
            kw.clock.advance_ms(6 * 3_600_000);
        }
        assert!(owner.is_signed_in().await);
        kw.clock.advance_ms(1);

        assert!(!owner.is_signed_in().await);
    }

    async fn sign_in_is_recorded_in_all_of_more_than_a_hundred_workspaces(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100)";
        kw.execute_sql(format!(
            "{many} INSERT INTO workspaces (id, name, created_at) SELECT 'ws_' || i, 'a workspace', 0 FROM n"
        )).await;
        kw.execute_sql(format!(
            "{many} INSERT INTO memberships (workspace_id, person_id, role, joined_at)
            SELECT 'ws_' || n.i, p.id, 'viewer', 0 FROM n CROSS JOIN people p"
        )).await;

        owner.post("/dashboard/logout", &[]).await;
        assert_eq!(owner.sign_in(EMAIL, PASSWORD).await.status, 303);

        let events = kw.list_audit_events(EMAIL).await;
        for event in ["user.endSession", "user.login"] {
            assert_eq!(events.iter().filter(|found| *found == event).count(), 101, "{event}");
        }
    }

    async fn neither_passwords_nor_tokens_are_in_the_database(kw) {
        let owner = Browser::sign_in_owner(&kw).await;
        let token = &owner.cookies[SESSION];

        for (table, column) in [("people", "password"), ("sessions", "hash"), ("audit", "targets")] {
            for value in kw.list_texts(table, column).await {
                assert!(!value.contains(token) && !value.contains(PASSWORD), "{table}");
            }
        }
        let kept = kw.list_texts("people", "password").await;
        assert!(kept[0].starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{kept:?}");
    }
}

/// Opens a page that refreshes itself for eight hours after the sign-in, and then the session has ended.
async fn assert_session_ends_while_open(kw: &Keyward, page: &str) {
    let mut owner = Browser::sign_in_owner(kw).await;
    let path = format!("/dashboard/ws_default/{page}");

    for _ in 0..8 {
        kw.clock.advance_ms(3_600_000);
        assert_eq!(owner.get(&path).await.status, 200, "{page}");
    }
    kw.clock.advance_ms(1);

    assert!(!owner.is_signed_in().await, "{page}");
}
