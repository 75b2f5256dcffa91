//! Tests how existing accounts are linked to the provider, and who cannot link them.

use domain::root_keys;
use domain::users;
use domain::users::single_sign_on::{SignInPurpose, SsoRejection};

use super::super::{Browser, EMAIL};
use super::{comes, told, with};
use crate::on_both_stacks;

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
}
