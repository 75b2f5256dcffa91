//! Single sign-on: what is offered, who may come in, and what the issuer cannot do. The way to a real issuer and back is
//! driven in tests/browser.

mod links;
mod next_page;
mod provider_keys;

use axum::body::Body;
use axum::http::Request;
use domain::caller::ClientInfo;
use domain::root_keys::default_workspace;
use domain::users;
use domain::users::single_sign_on::{
    SignInPurpose, SsoRejection, SsoResult, VerifiedClaims, sign_in_with_claims,
};
use foundation::config::OidcSettings;
use foundation::model::MemberRole;
use foundation::secret::Plaintext;
use request::PEER;

use super::{Browser, EMAIL, ESCAPED_NAME, HOSTILE_NAME, PASSWORD, between, workspace_path};
use crate::on_both_stacks;
use crate::support::{Keyward, Reply};

const SESSION: &str = "__Host-keyward-session";
const TRIP: &str = "__Host-keyward-oidc";
const CALLBACK: &str = "/dashboard/login/oidc/callback";

/// An issuer at which nobody listens.
fn oidc() -> OidcSettings {
    OidcSettings {
        issuer: "http://127.0.0.1:1".into(),
        client_id: "keyward".into(),
        client_secret: Plaintext::from("the client's secret".to_owned()),
        scopes: vec!["email".into()],
        name: "the house login".into(),
        allowed_domains: Vec::new(),
        default_role: None,
        is_password_sign_in_disabled: false,
    }
}

/// A server with single sign-on, where these settings differ.
pub async fn with(kw: &Keyward, change: impl FnOnce(&mut OidcSettings)) -> Keyward {
    let mut oidc = oidc();
    change(&mut oidc);
    Keyward::start_with(kw.stack, |settings| settings.oidc = Some(oidc)).await
}

pub fn told(subject: &str, email: &str) -> VerifiedClaims {
    VerifiedClaims {
        issuer: oidc().issuer,
        subject: subject.into(),
        email: Some(email.into()),
        is_email_verified: true,
    }
}

/// Whom the issuer tells of comes in; their browser, or why not.
pub async fn comes<'a>(
    kw: &'a Keyward,
    told: &VerifiedClaims,
    purpose: &SignInPurpose,
) -> Result<Browser<'a>, SsoRejection> {
    match sign_in_with_claims(&kw.app.users, told, purpose, None, &ClientInfo::default())
        .await
        .unwrap()
    {
        SsoResult::SignedIn(signed_in, _) => {
            let mut visitor = Browser::new(kw);
            visitor.cookies.insert(SESSION.into(), signed_in.token.expose().to_owned());
            Ok(visitor)
        }
        SsoResult::Rejected(stranger) => Err(stranger),
        SsoResult::Linked => panic!("nobody was signed in"),
    }
}

async fn invitation(owner: &mut Browser<'_>, role: &str) -> String {
    let page = owner.post(&workspace_path("/members/invite"), &[("role", role)]).await;
    between(&page.text, "/dashboard/join/", "<").to_owned()
}

/// A link that is followed, as the browser says it.
async fn follow(visitor: &mut Browser<'_>, path: &str, site: &str) -> Reply {
    let cookies: Vec<_> = visitor.cookies.iter().map(|(name, of)| format!("{name}={of}")).collect();
    let request = Request::get(path)
        .header("host", "keyward.test")
        .header("cookie", cookies.join("; "))
        .header("sec-fetch-site", site);
    visitor.send(request.body(Body::empty()).unwrap()).await
}

on_both_stacks! {
    async fn without_an_issuer_there_is_no_button_and_no_way(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let mut guest = Browser::new(&kw);

        let page = guest.get("/dashboard/login").await.text;

        assert!(!page.contains("oidc") && page.contains("name=\"password\""));
        assert!(!owner.get("/dashboard/account").await.text.contains("oidc"));
        for path in ["/dashboard/login/oidc", CALLBACK, "/dashboard/join/none/oidc"] {
            assert_eq!(follow(&mut guest, path, "same-origin").await.status, 404, "{path}");
        }
        assert_eq!(follow(&mut owner, "/dashboard/account/oidc", "same-origin").await.status, 404);
        assert_eq!(owner.post("/dashboard/account/oidc/unlink", &[]).await.status, 404);
    }

    async fn the_name_of_the_issuer_is_shown_as_text(kw) {
        let kw = with(&kw, |oidc| oidc.name = HOSTILE_NAME.into()).await;
        let mut owner = Browser::sign_in_owner(&kw).await;
        let token = invitation(&mut owner, "viewer").await;
        let mut guest = Browser::new(&kw);

        let join = format!("/dashboard/join/{token}");
        for page in [guest.get("/dashboard/login").await, guest.get(&join).await,
            owner.get("/dashboard/account").await] {
            assert!(page.text.contains(ESCAPED_NAME) && !page.text.contains(HOSTILE_NAME), "{}", page.text);
        }
    }

    async fn an_issuer_that_cannot_be_reached_fails_its_own_ways_alone(kw) {
        let kw = with(&kw, |_| {}).await;
        let mut owner = Browser::sign_in_owner(&kw).await;
        let mut guest = Browser::new(&kw);

        let failed = follow(&mut guest, "/dashboard/login/oidc", "same-origin").await;

        assert_eq!(failed.status, 503);
        assert!(failed.text.contains("Single sign-on unavailable") && failed.text.contains("req_"));
        assert!(!failed.text.contains("127.0.0.1"), "{}", failed.text);
        assert!(!guest.cookies.contains_key(TRIP));
        assert_eq!(follow(&mut owner, "/dashboard/account/oidc", "same-origin").await.status, 503);
        assert_eq!(guest.sign_in(EMAIL, PASSWORD).await.status, 303);
    }

    async fn only_a_page_of_this_server_sends_people_to_the_issuer(kw) {
        let kw = with(&kw, |_| {}).await;
        let mut owner = Browser::sign_in_owner(&kw).await;
        let token = invitation(&mut owner, "viewer").await;
        let mut guest = Browser::new(&kw);

        for site in ["cross-site", "same-site"] {
            let sent = follow(&mut guest, "/dashboard/login/oidc", site).await;
            let join = follow(&mut guest, &format!("/dashboard/join/{token}/oidc"), site).await;
            let link = follow(&mut owner, "/dashboard/account/oidc", site).await;
            assert_eq!((sent.status.as_u16(), &sent.headers["location"]), (303, &"/dashboard/login".parse().unwrap()));
            assert_eq!((join.status.as_u16(), link.status.as_u16()), (403, 403));
        }
        let bad = follow(&mut guest, "/dashboard/join/none/oidc", "none").await;
        assert_eq!(bad.status, 404);
    }

    async fn an_answer_that_nobody_here_asked_for_is_not_heard(kw) {
        let kw = with(&kw, |_| {}).await;
        let mut guest = Browser::new(&kw);
        guest.get("/dashboard/login").await;
        let state = |secret: &str| users::single_sign_on::AuthorizationRequest::from_secret(secret, &guest.csrf).state();
        let good = state("secret");
        let queries = [
            (None, format!("code=c&state={good}")),
            (Some("in.other"), format!("code=c&state={good}")),
            (Some("in.secret"), "code=c&state=".to_owned()),
            (Some("in.secret"), "code=c".to_owned()),
            (Some("in"), format!("code=c&state={good}")),
            (Some("else.secret"), format!("code=c&state={good}")),
            (Some("in.secret"), format!("code=c&state={good}&iss=https://evil.example")),
        ];

        for (cookie, query) in queries {
            guest.cookies.remove(TRIP);
            if let Some(cookie) = cookie {
                guest.cookies.insert(TRIP.into(), cookie.into());
            }
            let refused = follow(&mut guest, &format!("{CALLBACK}?{query}"), "cross-site").await;
            assert_eq!(refused.status, 422, "{cookie:?} {query}");
            assert!(refused.text.contains("was not started in this browser"));
            assert!(!guest.cookies.contains_key(TRIP));
        }
        // This one is asked about, at an issuer that is away.
        for issuer in ["", "&iss=http://127.0.0.1:1"] {
            guest.cookies.insert(TRIP.into(), "in.secret".into());
            let path = format!("{CALLBACK}?code=c&state={good}{issuer}");
            let failed = follow(&mut guest, &path, "cross-site").await;
            assert_eq!(failed.status, 503);
            assert!(failed.text.contains("href=\"/dashboard/login\">Try again"), "{}", failed.text);
            assert!(!failed.text.contains("code="), "{}", failed.text);
            assert!(!guest.cookies.contains_key(TRIP));
        }
        guest.cookies.insert(TRIP.into(), "in.secret".into());
        let path = format!("{CALLBACK}?state={good}&error={}", "%3Cb%3E".repeat(100));
        let denied = follow(&mut guest, &path, "cross-site").await;
        assert_eq!(denied.status, 422);
        assert!(denied.text.contains("was not completed") && !denied.text.contains("<b>"));
    }

    async fn an_address_has_fifty_answers_in_a_quarter_of_an_hour(kw) {
        let kw = with(&kw, |_| {}).await;
        let mut guest = Browser::new(&kw);
        guest.get("/dashboard/login").await;
        let state = users::single_sign_on::AuthorizationRequest::from_secret("secret", &guest.csrf).state();
        let path = format!("{CALLBACK}?state={state}&error=access_denied");
        let here = "203.0.113.9:1".parse().unwrap();

        for answer in 1..=51 {
            guest.cookies.insert(TRIP.into(), "in.secret".into());
            let heard = PEER.scope(here, follow(&mut guest, &path, "cross-site")).await;
            assert_eq!(heard.status, if answer <= 50 { 422 } else { 429 }, "{answer}");
        }
    }

    async fn whom_nobody_has_invited_comes_in_only_where_all_do_and_as_what_they_do(kw) {
        for (role, may_make) in
            [(None, 0), (Some(MemberRole::Viewer), 403), (Some(MemberRole::Admin), 200)]
        {
            let kw = with(&kw, |oidc| oidc.default_role = role).await;
            let alan = told("alan", "Alan@example.com");
            let early = comes(&kw, &alan, &SignInPurpose::SignIn).await.err();
            assert!(role.is_none() || early == Some(SsoRejection::NoUsersYet));
            Browser::sign_in_owner(&kw).await;

            match comes(&kw, &alan, &SignInPurpose::SignIn).await {
                Ok(mut visitor) => {
                    assert_eq!(visitor.get(&workspace_path("/root-keys/new")).await.status, may_make);
                    assert_eq!(visitor.get(&workspace_path("/members/user_none/remove")).await.status, 403);
                }
                Err(stranger) => {
                    assert_eq!(stranger, SsoRejection::NotInvited("alan@example.com".into()));
                    assert!(role.is_none());
                }
            }
            assert_eq!(kw.count_rows("people").await, if role.is_some() { 2 } else { 1 });
        }
    }

    async fn an_invitation_is_used_up_by_who_comes_in_and_by_nobody_else(kw) {
        let kw = with(&kw, |_| {}).await;
        let mut owner = Browser::sign_in_owner(&kw).await;
        let link = SignInPurpose::Join(invitation(&mut owner, "admin").await);
        let unverified = VerifiedClaims { is_email_verified: false, ..told("alan", "alan@example.com") };

        assert!(matches!(comes(&kw, &unverified, &link).await, Err(SsoRejection::EmailNotVerified(..))));
        assert!(matches!(comes(&kw, &told("eve", EMAIL), &link).await, Err(SsoRejection::NotLinked(_))));
        let mut alan = comes(&kw, &told("alan", "alan@example.com"), &link).await.ok().unwrap();

        assert_eq!(alan.get(&workspace_path("/root-keys/new")).await.status, 200);
        let late = comes(&kw, &told("late", "late@example.com"), &link).await;
        assert_eq!(late.err(), Some(SsoRejection::InvalidInvitation));
        let events = kw.list_audit_events("alan@example.com").await;
        assert_eq!(events, ["member.join", "user.login"]);
    }

    async fn a_person_is_who_the_issuer_calls_so_whatever_the_email(kw) {
        let kw = with(&kw, |_| {}).await;
        let mut owner = Browser::sign_in_owner(&kw).await;
        let link = SignInPurpose::Join(invitation(&mut owner, "viewer").await);
        comes(&kw, &told("alan", "alan@example.com"), &link).await.ok().unwrap();

        let mut renamed = comes(&kw, &told("alan", EMAIL), &SignInPurpose::SignIn).await.ok().unwrap();
        let other = comes(&kw, &told("other", "alan@example.com"), &SignInPurpose::SignIn).await;
        let elsewhere = VerifiedClaims { issuer: "https://else.example".into(), ..told("alan", "a@b.example") };
        let elsewhere = comes(&kw, &elsewhere, &SignInPurpose::SignIn).await;

        assert!(renamed.get("/dashboard/account").await.text.contains("alan@example.com"));
        assert_eq!(other.err(), Some(SsoRejection::NotLinked("alan@example.com".into())));
        assert_eq!(elsewhere.err(), Some(SsoRejection::NotInvited("a@b.example".into())));
    }

    async fn a_session_by_single_sign_on_is_listed_and_ends_like_any_other(kw) {
        let kw = with(&kw, |oidc| oidc.default_role = Some(MemberRole::Viewer)).await;
        Browser::sign_in_owner(&kw).await;
        let alan = told("alan", "alan@example.com");
        let mut first = comes(&kw, &alan, &SignInPurpose::SignIn).await.ok().unwrap();
        let mut second = comes(&kw, &alan, &SignInPurpose::SignIn).await.ok().unwrap();

        assert!(second.get("/dashboard/account").await.text.contains("End all other sessions"));
        second.post("/dashboard/account/sessions/end-others", &[]).await;

        assert!(!first.is_signed_in().await && second.is_signed_in().await);
        kw.clock.advance_ms(8 * 3_600_000 + 1);
        assert!(!second.is_signed_in().await);
    }

    async fn who_came_by_single_sign_on_has_no_password_to_guess_to_change_or_to_fall_back_on(kw) {
        let kw = with(&kw, |oidc| oidc.default_role = Some(MemberRole::Viewer)).await;
        Browser::sign_in_owner(&kw).await;
        let told = told("alan", "alan@example.com");
        let mut alan = comes(&kw, &told, &SignInPurpose::SignIn).await.ok().unwrap();

        let account = alan.get("/dashboard/account").await.text;
        let unlinked = alan.post("/dashboard/account/oidc/unlink", &[]).await;
        let fields = [("current", ""), ("password", "another horse battery")];
        let changed = alan.post("/dashboard/account/password", &fields).await;

        assert!(account.contains("You sign in with the house login.") && !account.contains("New password"));
        assert_eq!((unlinked.status.as_u16(), changed.status.as_u16()), (412, 422));
        for password in ["", PASSWORD] {
            assert_eq!(Browser::new(&kw).sign_in("alan@example.com", password).await.status, 422);
        }
    }

    async fn an_operators_link_gives_an_account_to_who_has_its_address_and_ends_what_was(kw) {
        let kw = with(&kw, |_| {}).await;
        let mut before = Browser::sign_in_owner(&kw).await;
        let link = users::create_operator_invitation(&kw.app.context, &default_workspace()).await.unwrap();
        let link = SignInPurpose::Join(link.expose().to_owned());

        let mut ada = comes(&kw, &told("ada", EMAIL), &link).await.ok().unwrap();

        assert_eq!(ada.get(&workspace_path("/members")).await.status, 200);
        assert!(!before.is_signed_in().await);
        assert_eq!(before.sign_in(EMAIL, PASSWORD).await.status, 422);
        assert_eq!(kw.count_rows("people").await, 1);
    }

    async fn where_single_sign_on_is_the_only_way_no_password_is_asked_for_or_taken(kw) {
        let kw = with(&kw, |oidc| oidc.is_password_sign_in_disabled = true).await;
        // The link of an operator is a way in all the same.
        let mut owner = Browser::sign_in_owner(&kw).await;
        let token = invitation(&mut owner, "viewer").await;
        let mut guest = Browser::new(&kw);

        let page = guest.get("/dashboard/login").await.text;
        let join = guest.get(&format!("/dashboard/join/{token}")).await.text;
        let account = owner.get("/dashboard/account").await.text;

        for page in [&page, &join, &account] {
            assert!(!page.contains("type=\"password\"") && page.contains("the house login"), "{page}");
        }
        let (mut one, mut other) = (Browser::new(&kw), Browser::new(&kw));
        one.get("/dashboard/login").await;
        let fields = [("email", EMAIL), ("password", PASSWORD)];
        assert_eq!(one.post("/dashboard/login", &fields).await.status, 403);
        assert_eq!(other.accept_invitation(&token, "eve@example.com", PASSWORD).await.status, 403);
        let fields = [("current", PASSWORD), ("password", "another horse battery")];
        assert_eq!(owner.post("/dashboard/account/password", &fields).await.status, 403);
        assert_eq!(owner.post("/dashboard/account/oidc/unlink", &[]).await.status, 412);
        assert_eq!(kw.count_rows("people").await, 1);
    }

    async fn where_single_sign_on_is_the_only_way_it_takes_accounts_by_their_address_once(kw) {
        let kw = with(&kw, |oidc| oidc.is_password_sign_in_disabled = true).await;
        let mut squatter = Browser::sign_in_owner(&kw).await;

        let mut ada = comes(&kw, &told("ada", EMAIL), &SignInPurpose::SignIn).await.ok().unwrap();
        let heir = comes(&kw, &told("heir", EMAIL), &SignInPurpose::SignIn).await;

        assert!(ada.is_signed_in().await && !squatter.is_signed_in().await);
        assert_eq!(heir.err(), Some(SsoRejection::NotLinked(EMAIL.into())));
        assert!(kw.list_audit_events(EMAIL).await.contains(&"user.linkLogin".to_owned()));
        // Whoever knew the password would have the account again when passwords are taken again.
        assert_eq!(kw.list_texts("people", "password").await, [""]);
    }

    async fn a_member_who_is_removed_is_a_stranger_to_the_issuers_word(kw) {
        let kw = with(&kw, |_| {}).await;
        let mut owner = Browser::sign_in_owner(&kw).await;
        let link = SignInPurpose::Join(invitation(&mut owner, "viewer").await);
        let alan = told("alan", "alan@example.com");
        let mut visitor = comes(&kw, &alan, &link).await.ok().unwrap();
        let page = owner.get(&workspace_path("/members")).await.text;
        let id = between(&page, "for=\"role-", "\">Role of alan@").rsplit("role-").next().unwrap();

        owner.post(&workspace_path(&format!("/members/{id}/remove")), &[]).await;

        assert!(!visitor.is_signed_in().await);
        assert_eq!(kw.count_rows("people_logins").await, 0);
        let again = comes(&kw, &alan, &SignInPurpose::SignIn).await;
        assert_eq!(again.err(), Some(SsoRejection::NotInvited("alan@example.com".into())));
    }

    async fn of_two_who_come_first_under_one_name_at_once_both_are_one_person(kw) {
        let kw = with(&kw, |oidc| oidc.default_role = Some(MemberRole::Viewer)).await;
        Browser::sign_in_owner(&kw).await;
        let alan = told("alan", "alan@example.com");

        let (one, other) = tokio::join!(
            comes(&kw, &alan, &SignInPurpose::SignIn),
            comes(&kw, &alan, &SignInPurpose::SignIn)
        );

        assert!(one.is_ok() && other.is_ok());
        assert_eq!((kw.count_rows("people").await, kw.count_rows("people_logins").await), (2, 1));
    }
}
