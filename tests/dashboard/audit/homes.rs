//! Tests which region counts what is restored after its region was removed.

use domain::root_keys::default_workspace;
use foundation::config::RegionSettings;
use foundation::home::Home;
use serde_json::json;
use store::HomeOwner;

use super::super::Browser;
use super::undo::undo;
use crate::support::{Keyward, Stack, redis_url};

async fn set_home(kw: &Keyward, owner: &HomeOwner, region: &str) {
    let mut tx = kw.store().begin().await.unwrap();
    tx.set_home(owner, &Home::new(region)).await.unwrap();
    tx.commit().await.unwrap();
}

async fn home_of(kw: &Keyward, owner: &HomeOwner) -> String {
    let mut tx = kw.store().begin().await.unwrap();
    let home = tx.lock_home(&default_workspace(), owner).await.unwrap();
    home.expect("it exists").expect("a home").to_string()
}

#[tokio::test]
async fn restored_owner_is_counted_here_when_its_region_was_removed() {
    let kw = Keyward::start_with(Stack::Replica, |settings| {
        settings.regions = Some(RegionSettings {
            names: ["eu", "us"].map(str::to_owned).to_vec(),
            own: 0,
            others: vec![(1, redis_url())],
        });
    })
    .await;
    let mut admin = Browser::sign_in_owner(&kw).await;

    for (region, restored) in [("ap", "eu"), ("us", "us")] {
        let api = kw.create_api().await;
        let identity = kw.create_identity(region, json!({})).await;
        kw.check_limit(region, "customer", json!({})).await.data();
        let namespace = kw.find_namespace_id(region).await;
        let owners = [
            HomeOwner::Api(api.as_str().into()),
            HomeOwner::Identity(identity.as_str().into()),
            HomeOwner::Namespace(namespace.as_str().into()),
        ];
        for owner in &owners {
            set_home(&kw, owner, region).await;
        }
        kw.v2("apis.deleteApi", json!({ "apiId": api })).await.data();
        kw.v2("identities.deleteIdentity", json!({ "identity": identity })).await.data();
        kw.delete_namespace(region).await;

        for event in ["api.delete", "identity.delete", "ratelimitNamespace.delete"] {
            undo(&mut admin, event).await;
        }

        for owner in &owners {
            assert_eq!(home_of(&kw, owner).await, restored, "{owner:?} of {region}");
        }
    }
}
