//! A person's own account.

use super::{Browser, EMAIL, PASSWORD, between, form_encode};
use crate::on_both_stacks;

on_both_stacks! {
    async fn sessions_are_listed_with_what_they_say_of_themselves_as_text(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let mut other = Browser::new(&kw);
        other.get("/dashboard/login").await;
        let fields = [("email", EMAIL), ("password", PASSWORD), ("csrf", &other.csrf.clone())];
        let form = other
            .form("/dashboard/login")
            .header("user-agent", "<script>alert(1)</script>")
            .header("origin", "http://keyward.test");
        let body = form_encode(&fields);
        other.send(form.body(axum::body::Body::from(body)).unwrap()).await;

        let page = owner.get("/dashboard/account").await.text;

        assert!(page.contains("&#60;script&#62;alert(1)"), "{page}");
        assert!(!page.contains("<script>alert"), "{page}");
        assert_eq!(page.matches("Current session").count(), 1);
    }

    async fn one_session_or_all_others_are_ended(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let (mut one, mut two) = (Browser::new(&kw), Browser::new(&kw));
        for visitor in [&mut one, &mut two] {
            kw.clock.advance_ms(1);
            visitor.sign_in(EMAIL, PASSWORD).await;
        }
        let page = owner.get("/dashboard/account").await.text;
        let path = between(&page, "action=\"/dashboard/account/sessions/ses_", "\"");

        // The one first that was used last.
        owner.post(&format!("/dashboard/account/sessions/ses_{path}"), &[]).await;
        assert!(one.is_signed_in().await && !two.is_signed_in().await);
        owner.post("/dashboard/account/sessions/end-others", &[]).await;

        assert!(owner.is_signed_in().await && !one.is_signed_in().await);
    }

    async fn a_session_of_somebody_else_does_not_exist(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let mut viewer = owner.invite("eve@example.com", "viewer").await;
        let ids = kw.list_texts("sessions", "id").await;
        let page = owner.get("/dashboard/account").await.text;
        let mine = viewer.get("/dashboard/account").await.text;
        assert!(!page.contains("End session<") && !mine.contains("End session<"));
        let (people, members) =
            (kw.list_texts("sessions", "person_id").await, kw.list_texts("people", "id").await);
        let emails = kw.list_texts("people", "email").await;
        let owners = &members[emails.iter().position(|email| email == EMAIL).unwrap()];
        let theirs = &ids[people.iter().position(|person| person == owners).unwrap()];

        let path = format!("/dashboard/account/sessions/{theirs}/end");
        let ended = viewer.post(&path, &[]).await;

        assert_eq!(ended.status, 404);
        assert!(owner.is_signed_in().await);
    }

    async fn a_password_is_changed_with_the_old_one_and_ends_other_sessions(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let mut other = Browser::new(&kw);
        other.sign_in(EMAIL, PASSWORD).await;
        let path = "/dashboard/account/password";

        let wrong = owner.post(path, &[("current", "not it at all"), ("password", "a newer password")]).await;
        let short = owner.post(path, &[("current", PASSWORD), ("password", "short")]).await;
        assert_eq!((wrong.status.as_u16(), short.status.as_u16()), (422, 422));
        assert!(other.is_signed_in().await);
        let right = owner.post(path, &[("current", PASSWORD), ("password", "a newer password")]).await;

        assert_eq!(right.status, 303);
        assert!(owner.is_signed_in().await && !other.is_signed_in().await);
        assert_eq!(other.sign_in(EMAIL, PASSWORD).await.status, 422);
        assert_eq!(other.sign_in(EMAIL, "a newer password").await.status, 303);
        assert!(kw.list_audit_events(EMAIL).await.contains(&"user.changePassword".to_owned()));
    }

    async fn error_of_a_password_is_a_sentence_beside_its_field(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;

        for (current, password, field, link, error) in [
            ("not it at all", "a newer password", "current", "The current password is incorrect.", "The current password is incorrect."),
            (PASSWORD, "short", "password", "Password must have 12 to 128 characters", "Must have 12 to 128 characters."),
            (PASSWORD, EMAIL, "password", "Password must not be the e-mail address", "Must not be the e-mail address."),
        ] {
            let fields = [("current", current), ("password", password)];
            let page = owner.post("/dashboard/account/password", &fields).await.text;

            assert!(page.contains(&format!("<a href=\"#{field}\">{link}</a>")), "{page}");
            assert_eq!(between(&page, &format!("id=\"{field}-error\"><p>"), "</p>"), error);
            let input = between(&page, &format!("<input id=\"{field}\""), ">");
            assert!(input.contains(&format!("{field}-error\" aria-invalid=\"true\"")), "{input}");
            assert_eq!(page.matches("aria-invalid").count(), 1, "{page}");
        }
    }
}
