//! Tests how existing accounts are linked to the provider, and who cannot link them.

use domain::caller::ClientInfo;
use domain::root_keys::{self, default_workspace};
use domain::users::single_sign_on::{
    SignInPurpose, SsoRejection, SsoResult, VerifiedClaims, sign_in_with_claims,
};
use domain::users::{self, AuthenticatedSession};

use super::super::{Browser, EMAIL, workspace_path};
use super::{comes, told, with};
use crate::on_both_stacks;
use crate::support::Keyward;

/// What the provider says of a user who is not the one of the account.
fn thief() -> VerifiedClaims {
    told("thief", "thief@example.com")
}

/// Links the account of a session, as the callback of the provider does. Returns why it is not linked, if it is not.
async fn link(
    kw: &Keyward,
    claims: &VerifiedClaims,
    session: &AuthenticatedSession,
) -> Option<SsoRejection> {
    let (users, client) = (&kw.app.users, ClientInfo::default());
    let purpose = SignInPurpose::Link;
    match sign_in_with_claims(users, claims, &purpose, Some(session), &client).await.unwrap() {
        SsoResult::Linked => None,
        SsoResult::Rejected(rejection) => Some(rejection),
        SsoResult::SignedIn(..) => panic!("a user was signed in"),
    }
}

on_both_stacks! {
    async fn operators_link_to_another_workspace_links_no_account_by_its_address(kw) {
        let kw = with(&kw, |_| {}).await;
        let mut owner = Browser::sign_in_owner(&kw).await;
        let second = root_keys::create_workspace(&kw.app.context, "second").await.unwrap();
        let link = users::create_operator_invitation(&kw.app.context, &second).await.unwrap();
        let link = SignInPurpose::Join(link.expose().to_owned());

        let refused = comes(&kw, &told("bob", EMAIL), &link).await;

        assert_eq!(refused.err(), Some(SsoRejection::NotLinked(EMAIL.into())));
        assert!(owner.is_signed_in().await);
        assert_eq!(kw.count_rows("people_logins").await, 0);
    }

    async fn account_is_not_linked_when_the_session_has_ended(kw) {
        let kw = with(&kw, |_| {}).await;
        let mut owner = Browser::sign_in_owner(&kw).await;
        let session = owner.load_session().await;
        owner.post("/dashboard/logout", &[]).await;

        let rejection = link(&kw, &thief(), &session).await;

        assert_eq!(rejection, Some(SsoRejection::SessionEnded));
        assert_eq!(kw.count_rows("people_logins").await, 0);
    }

    async fn account_is_not_linked_when_its_user_has_been_removed(kw) {
        let kw = with(&kw, |_| {}).await;
        let mut owner = Browser::sign_in_owner(&kw).await;
        let session = owner.invite("eve@example.com", "viewer").await.load_session().await;
        let path = workspace_path(&format!("/members/{}/remove", session.user.id));
        assert_eq!(owner.post(&path, &[]).await.status, 303);

        let rejection = link(&kw, &thief(), &session).await;

        assert_eq!(rejection, Some(SsoRejection::SessionEnded));
        assert_eq!(kw.count_rows("people_logins").await, 0);
    }

    async fn account_is_linked_to_another_subject_only_after_it_is_unlinked(kw) {
        let kw = with(&kw, |_| {}).await;
        let mut owner = Browser::sign_in_owner(&kw).await;
        let session = owner.load_session().await;
        let ada = told("ada", EMAIL);
        assert_eq!(link(&kw, &ada, &session).await, None);
        assert_eq!(link(&kw, &ada, &session).await, None);

        let rejection = link(&kw, &thief(), &session).await;

        assert_eq!(rejection, Some(SsoRejection::LinkedToOther));
        assert!(comes(&kw, &ada, &SignInPurpose::SignIn).await.is_ok());
        assert_eq!(owner.post("/dashboard/account/oidc/unlink", &[]).await.status, 303);
        assert_eq!(link(&kw, &told("ada2", EMAIL), &session).await, None);
    }

    async fn new_password_by_an_operators_link_unlinks_the_account(kw) {
        let kw = with(&kw, |_| {}).await;
        let owner = Browser::sign_in_owner(&kw).await;
        assert_eq!(link(&kw, &thief(), &owner.load_session().await).await, None);
        let token = users::create_operator_invitation(&kw.app.context, &default_workspace()).await.unwrap();
        let mut ada = Browser::new(&kw);

        let joined = ada.accept_invitation(token.expose(), EMAIL, "another horse battery").await;

        assert_eq!(joined.status, 303);
        let refused = comes(&kw, &thief(), &SignInPurpose::SignIn).await;
        assert_eq!(refused.err(), Some(SsoRejection::NotInvited("thief@example.com".into())));
        assert!(kw.list_audit_events(EMAIL).await.contains(&"user.unlinkLogin".to_owned()));
    }

    async fn sign_in_that_waits_while_the_account_is_unlinked_is_rejected(kw) {
        let kw = with(&kw, |_| {}).await;
        let session = Browser::sign_in_owner(&kw).await.load_session().await;
        assert_eq!(link(&kw, &thief(), &session).await, None);
        let mut unlinking = kw.store().begin().await.unwrap();
        unlinking.lock_user(&session.user.id).await.unwrap();
        assert!(unlinking.delete_logins(&session.user.id).await.unwrap());

        let commit = async {
            kw.wait_until_blocked(1).await;
            kw.app.context.commit(unlinking).await.unwrap();
        };
        let claims = thief();
        let (refused, ()) = tokio::join!(comes(&kw, &claims, &SignInPurpose::SignIn), commit);

        assert_eq!(refused.err(), Some(SsoRejection::NotInvited("thief@example.com".into())));
    }
}
