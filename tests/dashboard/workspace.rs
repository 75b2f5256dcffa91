//! The settings of a workspace.

use super::{Browser, ESCAPED_NAME, HOSTILE_NAME, between, redirect_path, workspace_path};
use crate::on_both_stacks;

on_both_stacks! {
    async fn a_workspace_is_renamed_within_bounds(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let settings = workspace_path("/workspace");

        for name in ["Acme", &"é".repeat(256), HOSTILE_NAME] {
            let renamed = owner.post(&settings, &[("name", name)]).await;
            assert_eq!(redirect_path(&renamed), format!("{settings}?notice=workspace-renamed"));
        }
        let page = owner.get(&settings).await.text;
        assert_eq!(between(&page, "<h1 class=\"break\">", "</h1>"), ESCAPED_NAME);
        assert!(page.contains("Your role: Owner") && page.contains("<dt>Rate limiter</dt>"), "{page}");
        assert!(page.contains("ws_default") && page.contains(env!("CARGO_PKG_VERSION")), "{page}");

        for (invalid, fault) in [
            (" ", "Must have 1 to 256 characters"),
            (&*"é".repeat(257), "Must have 1 to 256 characters"),
            ("a\u{7}b", "Must not contain"),
        ] {
            let rejected = owner.post(&settings, &[("name", invalid)]).await;
            assert_eq!(rejected.status, 422, "{invalid}");
            let beside = between(&rejected.text, "id=\"name-error\">", "</div>");
            assert!(beside.contains(fault), "{invalid}: {beside}");
            assert!(rejected.text.contains("aria-invalid=\"true\""), "{invalid}");
        }
    }

    async fn a_name_that_did_not_change_is_not_recorded(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let before = kw.count_audit_entries().await;

        owner.post(&workspace_path("/workspace"), &[("name", "default")]).await;

        assert_eq!(kw.count_audit_entries().await, before);
    }
}
