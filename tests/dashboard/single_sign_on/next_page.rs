//! Tests that single sign-on leads to the page that was requested.

use domain::users::single_sign_on::AuthorizationRequest;

use super::super::{Browser, form_encode, redirect_path, workspace_path};
use super::{CALLBACK, TRIP, follow, with};
use crate::on_both_stacks;

on_both_stacks! {
    async fn single_sign_on_keeps_the_page_that_was_requested(kw) {
        let kw = with(&kw, |_| {}).await;
        let mut guest = Browser::new(&kw);
        let path = workspace_path("/apis");
        let next = form_encode(&[("next", path.as_str())]);
        let foreign = form_encode(&[("next", "//evil.example")]);

        let page = guest.get(&format!("/dashboard/login?{next}")).await.text;
        let link = format!("/dashboard/login/oidc?{next}");
        assert!(page.contains(&format!("href=\"{link}\"")), "{page}");
        let page = guest.get(&format!("/dashboard/login?{foreign}")).await.text;
        assert!(page.contains("href=\"/dashboard/login/oidc\""), "{page}");
        let sent = follow(&mut guest, &link, "cross-site").await;
        assert_eq!(redirect_path(&sent), format!("/dashboard/login?{next}"));

        // With the page in the cookie, the state is still that of the secret: the provider is asked, and is not there.
        let state = AuthorizationRequest::from_secret("secret", &guest.csrf).state();
        guest.cookies.insert(TRIP.into(), "in.secret.%2Fdashboard%2Fws_default%2Fapis".into());
        let answered = follow(&mut guest, &format!("{CALLBACK}?code=c&state={state}"), "cross-site").await;
        assert_eq!(answered.status, 503, "{}", answered.text);
    }
}
