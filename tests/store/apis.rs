//! Tests APIs.

use super::*;

on_both_stores! {
    async fn api_is_found_only_in_its_workspace_even_when_deleted(store) {
        let (workspace, other) = (workspace(&store).await, workspace(&store).await);
        let api = an_api(&workspace);
        commit_with(&store, async |tx| tx.insert_api(&api).await).await.unwrap();
        let later = NOON.plus_ms(5);

        let live = store.read().await.unwrap().find_api(&workspace, &api.id).await.unwrap().unwrap();
        commit_with(&store, async |tx| tx.delete_api(&workspace, &api.id, later).await).await.unwrap();
        let deleted = store.read().await.unwrap().find_api(&workspace, &api.id).await.unwrap().unwrap();

        assert_eq!((&live.id, &live.workspace_id), (&api.id, &workspace));
        assert_eq!((live.name.as_str(), live.created_at, live.deleted_at), (SPECIAL_TEXT, NOON, None));
        assert_eq!((deleted.name.as_str(), deleted.deleted_at), (SPECIAL_TEXT, Some(later)));
        let mut reader = store.read().await.unwrap();
        let shouted = ApiId::from(api.id.as_str().to_uppercase());
        assert!(reader.find_api(&other, &api.id).await.unwrap().is_none());
        assert!(reader.find_api(&workspace, &shouted).await.unwrap().is_none());
    }

    async fn api_is_deleted_once_and_only_by_its_workspace(store) {
        let (workspace, other) = (workspace(&store).await, workspace(&store).await);
        let id = api(&store, &workspace).await;
        let delete = async |workspace: &WorkspaceId, now| {
            commit_with(&store, async |tx| tx.delete_api(workspace, &id, now).await).await.unwrap()
        };

        let foreign = delete(&other, NOON).await;
        let first = delete(&workspace, NOON).await;
        let second = delete(&workspace, NOON.plus_ms(1)).await;

        assert_eq!((foreign, first, second), (false, true, false));
        let api = store.read().await.unwrap().find_api(&workspace, &id).await.unwrap().unwrap();
        assert_eq!(api.deleted_at, Some(NOON));
    }
}
