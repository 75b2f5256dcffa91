//! Links that make somebody a member, once.

use domain::root_keys::{self, default_workspace};
use domain::users;
use request::PEER;

use super::{Browser, EMAIL, PASSWORD, between, workspace_path};
use crate::on_both_stacks;
use crate::support::Keyward;

async fn link_at_start(kw: &Keyward) -> Option<String> {
    let made = users::create_setup_invitation(&kw.app.context, kw.store()).await.unwrap();
    made.map(|token| token.expose().to_owned())
}

async fn id_of(kw: &Keyward, email: &str) -> String {
    let found = kw.store().read().await.unwrap().find_user_by_email(email).await.unwrap();
    found.unwrap().0.id.to_string()
}

on_both_stacks! {
    async fn links_of_every_start_work_until_the_first_person_is_there_and_then_none(kw) {
        let (first, second) = (link_at_start(&kw).await.unwrap(), link_at_start(&kw).await.unwrap());
        let mut ada = Browser::new(&kw);
        let mut late = Browser::new(&kw);
        assert!(late.get(&format!("/dashboard/join/{second}")).await.text.contains("Set up"));

        let joined = ada.accept_invitation(&first, EMAIL, PASSWORD).await;

        assert_eq!(joined.headers["location"], workspace_path("?notice=joined"));
        assert!(ada.is_signed_in().await);
        for used in [&first, &second] {
            let refused = late.accept_invitation(used, "late@example.com", PASSWORD).await;
            assert_eq!(refused.status, 422);
            assert!(refused.text.contains("Invalid invitation link"));
        }
        assert_eq!(link_at_start(&kw).await, None);
        assert_eq!(kw.count_rows("people").await, 1);
    }

    async fn of_two_who_use_first_links_at_once_one_comes_in(kw) {
        let (first, second) = (link_at_start(&kw).await.unwrap(), link_at_start(&kw).await.unwrap());
        let (mut ada, mut bob) = (Browser::new(&kw), Browser::new(&kw));

        let (one, other) = tokio::join!(
            ada.accept_invitation(&first, EMAIL, PASSWORD),
            bob.accept_invitation(&second, "bob@example.com", PASSWORD)
        );

        let mut statuses = [one.status.as_u16(), other.status.as_u16()];
        statuses.sort_unstable();
        assert_eq!(statuses, [303, 422]);
        assert_eq!(kw.count_rows("people").await, 1);
    }

    async fn a_link_ends_after_a_day(kw) {
        let link = link_at_start(&kw).await.unwrap();
        let mut ada = Browser::new(&kw);

        kw.clock.advance_ms(24 * 3_600_000);
        assert!(ada.get(&format!("/dashboard/join/{link}")).await.text.contains("Set up"));
        kw.clock.advance_ms(1);

        assert_eq!(ada.accept_invitation(&link, EMAIL, PASSWORD).await.status, 422);
    }

    async fn opening_a_link_does_not_use_it_up(kw) {
        let link = link_at_start(&kw).await.unwrap();
        let mut ada = Browser::new(&kw);

        for _ in 0..3 {
            ada.get(&format!("/dashboard/join/{link}")).await;
        }

        assert_eq!(ada.accept_invitation(&link, EMAIL, PASSWORD).await.status, 303);
    }

    async fn a_password_out_of_bounds_is_told_and_the_link_stays_good(kw) {
        let link = link_at_start(&kw).await.unwrap();
        let mut ada = Browser::new(&kw);

        for (password, fault) in [
            ("x".repeat(11), "12 to 128 characters"),
            ("x".repeat(129), "12 to 128 characters"),
            (EMAIL.to_uppercase(), "must not be the e-mail"),
        ] {
            let refused = ada.accept_invitation(&link, EMAIL, &password).await;
            assert_eq!(refused.status, 422);
            assert!(refused.text.contains(fault), "{}", refused.text);
            assert!(!refused.text.contains(&password) || password.eq_ignore_ascii_case(EMAIL));
        }

        assert_eq!(ada.accept_invitation(&link, EMAIL, &"x".repeat(12)).await.status, 303);
    }

    async fn error_of_a_new_account_is_beside_its_field(kw) {
        let link = link_at_start(&kw).await.unwrap();
        let mut ada = Browser::new(&kw);

        for (email, password, field, error) in [
            (EMAIL, "short", "password", "Must have 12 to 128 characters."),
            ("ada", PASSWORD, "email", "Must be an e-mail address, such as ada@example.com."),
        ] {
            let page = ada.accept_invitation(&link, email, password).await.text;

            assert_eq!(between(&page, &format!("id=\"{field}-error\"><p>"), "</p>"), error);
            assert!(page.contains(&format!("<a href=\"#{field}\">")), "{page}");
            assert_eq!(page.matches("aria-invalid").count(), 1, "{page}");
        }
    }

    async fn an_operators_link_lets_in_who_has_forgotten_the_password_and_ends_the_sessions(kw) {
        let mut locked_out = Browser::sign_in_owner(&kw).await;
        let link = users::create_operator_invitation(&kw.app.context, &default_workspace()).await.unwrap();
        let mut ada = Browser::new(&kw);

        let joined = ada.accept_invitation(link.expose(), EMAIL, "another horse battery").await;

        assert_eq!(joined.status, 303);
        assert!(!locked_out.is_signed_in().await);
        assert_eq!(locked_out.sign_in(EMAIL, PASSWORD).await.status, 422);
        assert_eq!(locked_out.sign_in(EMAIL, "another horse battery").await.status, 303);
        assert_eq!(kw.count_rows("people").await, 1);
    }

    async fn operators_link_to_another_workspace_needs_the_password_of_the_account(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let second = root_keys::create_workspace(&kw.app.context, "second").await.unwrap();
        let link = users::create_operator_invitation(&kw.app.context, &second).await.unwrap();
        let mut bob = Browser::new(&kw);

        let refused = bob.accept_invitation(link.expose(), EMAIL, "a password of the thief").await;

        assert_eq!(refused.status, 422);
        assert!(refused.text.contains("Enter its password"), "{}", refused.text);
        assert!(!bob.is_signed_in().await && owner.is_signed_in().await);
        assert_eq!(Browser::new(&kw).sign_in(EMAIL, PASSWORD).await.status, 303);
        assert_eq!(bob.accept_invitation(link.expose(), EMAIL, PASSWORD).await.status, 303);
    }

    async fn of_two_invitations_at_once_none_takes_over_the_account_of_the_other(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        for round in 0..5 {
            let email = format!("new_{round}@example.com");
            let mut tokens = Vec::new();
            for _ in 0..2 {
                let page = owner.post(&workspace_path("/members/invite"), &[("role", "viewer")]).await;
                tokens.push(between(&page.text, "/dashboard/join/", "<").to_owned());
            }
            let (mut victim, mut thief) = (Browser::new(&kw), Browser::new(&kw));

            let (one, other) = tokio::join!(
                victim.accept_invitation(&tokens[0], &email, "a password of the victim"),
                thief.accept_invitation(&tokens[1], &email, "a password of the thief")
            );

            let mut statuses = [one.status.as_u16(), other.status.as_u16()];
            statuses.sort_unstable();
            assert_eq!(statuses, [303, 422], "{round}");
            assert_ne!(victim.is_signed_in().await, thief.is_signed_in().await);
            let (joined, password) = match one.status.as_u16() {
                303 => (&mut victim, "a password of the victim"),
                _ => (&mut thief, "a password of the thief"),
            };
            assert_eq!(joined.sign_in(&email, password).await.status, 303);
        }
    }

    async fn password_that_was_replaced_while_it_was_verified_is_not_accepted(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        for round in 0..5 {
            let (old, new) = (format!("the password of round {round}"), format!("the password of round {}", round + 1));
            let link = users::create_operator_invitation(&kw.app.context, &default_workspace()).await.unwrap();
            owner.accept_invitation(link.expose(), EMAIL, &old).await;
            let link = users::create_operator_invitation(&kw.app.context, &default_workspace()).await.unwrap();
            let (mut thief, mut ada) = (Browser::new(&kw), Browser::new(&kw));

            let (_, reset) = tokio::join!(
                thief.sign_in(EMAIL, &old),
                ada.accept_invitation(link.expose(), EMAIL, &new)
            );

            assert_eq!(reset.status, 303);
            assert!(ada.is_signed_in().await && !thief.is_signed_in().await, "{round}");
            kw.clock.advance_ms(16 * 60_000);
        }
    }

    async fn invitation_of_a_removed_owner_is_withdrawn(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let invite = async |browser: &mut Browser| {
            let page = browser.post(&workspace_path("/members/invite"), &[("role", "owner")]).await;
            between(&page.text, "/dashboard/join/", "<").to_owned()
        };
        let (mut eve, mut late) = (Browser::new(&kw), Browser::new(&kw));
        let token = invite(&mut owner).await;
        eve.accept_invitation(&token, "eve@example.com", PASSWORD).await;
        let (kept, withdrawn) = (invite(&mut owner).await, invite(&mut eve).await);
        let eve_id = id_of(&kw, "eve@example.com").await;

        let removed = owner.post(&workspace_path(&format!("/members/{eve_id}/remove")), &[]).await;

        assert_eq!(removed.status, 303, "{}", removed.text);
        assert_eq!(late.accept_invitation(&withdrawn, "eve2@example.com", PASSWORD).await.status, 422);
        assert_eq!(late.accept_invitation(&kept, "late@example.com", PASSWORD).await.status, 303);
    }

    async fn link_of_an_operator_records_what_it_changes(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let page = owner.post(&workspace_path("/members/invite"), &[("role", "viewer")]).await;
        let mut bob = Browser::new(&kw);
        bob.accept_invitation(between(&page.text, "/dashboard/join/", "<"), "bob@example.com", PASSWORD).await;
        let bob_id = id_of(&kw, "bob@example.com").await;
        assert_eq!(kw.list_audit_events(&bob_id).await, ["member.join"]);
        let link = users::create_operator_invitation(&kw.app.context, &default_workspace()).await.unwrap();

        bob.accept_invitation(link.expose(), "bob@example.com", "another horse battery").await;

        assert_eq!(kw.list_audit_events(&bob_id).await, ["member.join", "member.setRole", "user.changePassword"]);
        let page = owner.post(&workspace_path("/members/invite"), &[("role", "viewer")]).await;
        let again = Browser::new(&kw).accept_invitation(between(&page.text, "/dashboard/join/", "<"), "bob@example.com", "another horse battery").await;
        assert_eq!(again.status, 303);
        assert_eq!(kw.list_audit_events(&bob_id).await.len(), 3);
    }

    async fn accepting_an_invitation_ends_the_previous_session_of_the_browser(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let page = owner.post(&workspace_path("/members/invite"), &[("role", "viewer")]).await;
        let mut previous = Browser::new(&kw);
        previous.cookies = owner.cookies.clone();

        let token = between(&page.text, "/dashboard/join/", "<");
        let joined = owner.accept_invitation(token, "eve@example.com", PASSWORD).await;

        assert_eq!(joined.status, 303);
        assert!(owner.is_signed_in().await && !previous.is_signed_in().await);
    }

    async fn an_invitation_takes_a_known_email_only_with_its_password(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let page = owner.post(&workspace_path("/members/invite"), &[("role", "viewer")]).await;
        let token = between(&page.text, "/dashboard/join/", "<").to_owned();
        let mut thief = Browser::new(&kw);

        let refused = thief.accept_invitation(&token, EMAIL, "a password of the thief").await;

        assert_eq!(refused.status, 422);
        assert!(refused.text.contains("Enter its password"));
        assert!(!thief.is_signed_in().await && owner.is_signed_in().await);
        // It changes no role either.
        assert_eq!(thief.accept_invitation(&token, EMAIL, PASSWORD).await.status, 303);
        assert_eq!(thief.post(&workspace_path("/members/invite"), &[("role", "viewer")]).await.status, 200);
    }

    async fn short_password_gets_one_response_whether_the_email_is_known_or_not(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let page = owner.post(&workspace_path("/members/invite"), &[("role", "viewer")]).await;
        let token = between(&page.text, "/dashboard/join/", "<").to_owned();
        let mut guest = Browser::new(&kw);

        let known = guest.accept_invitation(&token, EMAIL, "short").await;
        let unknown = guest.accept_invitation(&token, "nobody@example.com", "short").await;

        assert_eq!((known.status.as_u16(), unknown.status.as_u16()), (422, 422));
        assert!(known.text.contains("12 to 128 characters"), "{}", known.text);
        assert_eq!(known.text, unknown.text.replace("nobody@example.com", EMAIL));
    }

    async fn short_passwords_count_as_attempts_of_their_address(kw) {
        let link = link_at_start(&kw).await.unwrap();
        let mut guest = Browser::new(&kw);
        let here = "203.0.113.9:1".parse().unwrap();

        for attempt in 1..=51 {
            let email = format!("nobody{attempt}@example.com");
            let reply = PEER.scope(here, guest.accept_invitation(&link, &email, "short")).await;
            assert_eq!(reply.status, if attempt <= 50 { 422 } else { 429 }, "{attempt}");
        }
    }
}
