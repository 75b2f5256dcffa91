//! Tests requests of owners who lose their role before the request changes anything.

use domain::caller::{Caller, ClientInfo};
use domain::root_keys::default_workspace;
use domain::users;
use foundation::error::Error;
use foundation::id::{InvitationId, UserId};
use foundation::model::MemberRole;

use super::super::{Browser, workspace_path};
use crate::on_both_stacks;

/// Returns the user of a browser, and the caller of a request that begins now.
async fn load_caller(browser: &Browser<'_>) -> (UserId, Caller) {
    let session = browser.load_session().await;
    let (context, workspace) = (&browser.kw.app.context, default_workspace());
    let loaded = users::load_caller(context, &session, &workspace, ClientInfo::default()).await;
    (session.user.id, loaded.unwrap().0)
}

on_both_stacks! {
    async fn demoted_owner_cannot_manage_members_with_an_earlier_request(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let eve = owner.invite("eve@example.com", "owner").await;
        let (eve_id, caller) = load_caller(&eve).await;
        let ada_id = owner.load_session().await.user.id;
        owner.post(&workspace_path("/members/invite"), &[("role", "viewer")]).await;
        let invitation = InvitationId::from(kw.list_texts("invitations", "id").await[0].clone());

        let path = workspace_path(&format!("/members/{eve_id}/role"));
        let demoted = owner.post(&path, &[("role", "admin")]).await;

        assert_eq!(demoted.status, 303, "{}", demoted.text);
        let context = &kw.app.context;
        for refused in [
            users::set_member_role(context, &caller, &eve_id, MemberRole::Owner).await,
            users::remove_member(context, &caller, &ada_id).await,
            users::invite(context, &caller, MemberRole::Owner).await.map(drop),
            users::withdraw_invitation(context, &caller, &invitation).await,
        ] {
            assert!(matches!(refused, Err(Error::Forbidden(_))), "{refused:?}");
        }
        assert_eq!((kw.count_rows("memberships").await, kw.count_rows("invitations").await), (2, 1));
    }

    async fn request_that_waits_for_the_demotion_of_its_owner_is_rejected(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let eve = owner.invite("eve@example.com", "owner").await;
        let (eve_id, caller) = load_caller(&eve).await;
        let (context, workspace) = (&kw.app.context, default_workspace());
        let mut demotion = kw.store().begin().await.unwrap();
        demotion.lock_members(&workspace).await.unwrap();
        demotion.set_member_role(&workspace, &eve_id, MemberRole::Viewer).await.unwrap();

        let commit = async {
            kw.wait_until_blocked(1).await;
            context.commit(demotion).await.unwrap();
        };
        let (restored, invited, ()) = tokio::join!(
            users::set_member_role(context, &caller, &eve_id, MemberRole::Owner),
            users::invite(context, &caller, MemberRole::Owner),
            commit
        );

        for refused in [restored, invited.map(drop)] {
            assert!(matches!(refused, Err(Error::Forbidden(_))), "{refused:?}");
        }
        assert_eq!(kw.count_rows("invitations").await, 0);
    }
}
