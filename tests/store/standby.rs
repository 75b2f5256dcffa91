//! Tests reads that return a row together with the last heartbeat of the replica.

use std::fmt::Debug;

use foundation::id::NamespaceId;
use foundation::model::{Namespace, OutagePolicy};
use store::StandbyRow;

use super::root_keys::a_root_key;
use super::*;

/// Fails unless this row was found with this heartbeat.
#[track_caller]
fn assert_found<T: Debug>(
    found: Option<StandbyRow<T>>,
    on_primary: Option<T>,
    heartbeat: Option<i64>,
) {
    let found = found.expect("a row");
    assert_eq!(format!("{:?}", found.value), format!("{:?}", on_primary.expect("a row")));
    assert_eq!(found.heartbeat, heartbeat);
}

async fn beat(store: &Store, number: i64) {
    commit_with(store, async |tx| tx.register_replica("rep_a", "", number, 1).await).await.unwrap();
    commit_with(store, async |tx| tx.register_replica("rep_b", "", 90, 1).await).await.unwrap();
}

on_both_stores! {
    async fn heartbeat_is_that_of_the_replica(store) {
        beat(&store, 7).await;
        beat(&store, 8).await;

        let mut reader = store.read().await.unwrap();
        assert_eq!(reader.find_heartbeat("rep_a").await.unwrap(), Some(8));
        assert_eq!(reader.find_heartbeat("rep_none").await.unwrap(), None);
    }

    async fn rows_are_found_with_the_heartbeat_as_without(store) {
        let key = key(&store, None).await;
        let workspace = &key.workspace_id;
        let namespace = Namespace {
            id: NamespaceId::random(),
            workspace_id: workspace.clone(),
            name: "email".into(),
            outage_policy: OutagePolicy::Open,
            home: None,
            created_at: NOON,
            deleted_at: None,
        };
        let role = a_role(SPECIAL_TEXT, &[]);
        let identity = commit_with(&store, async |tx| {
            tx.insert_root_key(&a_root_key(workspace), "hash").await?;
            tx.insert_role(workspace, &role, NOON).await?;
            tx.insert_namespaces(workspace, std::slice::from_ref(&namespace)).await?;
            tx.ensure_identity(workspace, "user_1", None, NOON).await
        });
        let identity = identity.await.unwrap();
        beat(&store, 7).await;

        for (replica, heartbeat) in [("rep_a", Some(7)), ("rep_none", None)] {
            let mut reader = store.read().await.unwrap();
            let found = reader.find_key_on_standby(&key.hash, replica).await.unwrap();
            assert_found(found, reader.find_key_by_hash(&key.hash).await.unwrap(), heartbeat);
            let found = reader.find_root_key_on_standby("hash", replica).await.unwrap();
            assert_found(found, reader.find_root_key_by_hash("hash").await.unwrap(), heartbeat);
            let found = reader.find_identity_on_standby(workspace, &identity, replica).await;
            let ids = std::slice::from_ref(&identity);
            let same = reader.list_identities_by_ids(workspace, ids).await.unwrap().pop();
            assert_found(found.unwrap(), same, heartbeat);
            let found = reader.find_role_on_standby(workspace, &role.id, replica).await;
            assert_found(found.unwrap(), Some(role.clone()), heartbeat);
            for named in ["email", namespace.id.as_str()] {
                let found = reader.find_namespace_on_standby(workspace, named, replica).await;
                let same = reader.find_stored_namespace(workspace, named).await.unwrap();
                assert_found(found.unwrap(), same, heartbeat);
            }
        }
    }

    async fn rows_of_other_workspaces_are_not_found_with_a_heartbeat(store) {
        let (key, other) = (key(&store, None).await, workspace(&store).await);
        let identity =
            commit_with(&store, async |tx| tx.ensure_identity(&key.workspace_id, "u", None, NOON).await);
        let identity = identity.await.unwrap();

        let mut reader = store.read().await.unwrap();
        assert!(reader.find_key_on_standby("other", "rep_a").await.unwrap().is_none());
        let found = reader.find_identity_on_standby(&other, &identity, "rep_a").await.unwrap();
        assert!(found.is_none());
    }
}
