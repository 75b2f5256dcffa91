//! The change log.

use super::*;

both_stores! {
    async fn changes_are_logged_in_order_when_the_transaction_commits(store) {
        let subjects = [
            Subject::Key(KeyId::from("key_b")),
            Subject::Api(ApiId::from("api_a")),
            Subject::NewKey(0xab),
            Subject::Key(KeyId::from("key_b")),
        ];
        let mut tx = store.begin().await.unwrap();
        for subject in &subjects {
            tx.changed(subject.clone());
        }

        let told = tx.commit().await.unwrap();

        let rows = store.read().await.unwrap().changes_after(0).await.unwrap();
        let texts: Vec<_> = rows.iter().map(|row| row.subject.as_str()).collect();
        assert_eq!(told, subjects);
        assert_eq!(texts, ["key:key_b", "api:api_a", "new:00000000000000ab", "key:key_b"]);
        assert!(rows.is_sorted_by(|a, b| a.seq < b.seq));
        assert!(rows.iter().all(|row| row.at > NOON.0), "{rows:?}");
    }

    async fn a_transaction_that_changes_nothing_logs_nothing(store) {
        let told = store.begin().await.unwrap().commit().await.unwrap();

        assert!(told.is_empty());
        assert_eq!(count(&store, "changes").await, 0);
    }

    async fn the_change_log_is_read_from_a_row_on(store) {
        let log = async |subjects: &[&str]| {
            let subjects: Vec<_> = subjects.iter().map(|text| (*text).to_owned()).collect();
            commit(&store, async |tx| tx.insert_changes(&subjects).await).await.unwrap();
        };
        let empty = store.read().await.unwrap().changes_range().await.unwrap();
        log(&["a", ODD]).await;
        log(&["c"]).await;

        let mut reader = store.read().await.unwrap();
        let all = reader.changes_after(0).await.unwrap();
        let rest = reader.changes_after(all[0].seq).await.unwrap();
        let none = reader.changes_after(all[2].seq).await.unwrap();

        assert_eq!(empty, (0, 0));
        assert_eq!(rest.iter().map(|row| row.subject.as_str()).collect::<Vec<_>>(), [ODD, "c"]);
        assert!(none.is_empty());
        assert_eq!(reader.changes_range().await.unwrap(), (all[0].seq, all[2].seq));
    }

    async fn a_long_change_log_is_read_page_by_page(store) {
        let subjects: Vec<_> = (0..10_001).map(|n| format!("key:key_{n:05}")).collect();
        commit(&store, async |tx| tx.insert_changes(&subjects).await).await.unwrap();

        let mut reader = store.read().await.unwrap();
        let first = reader.changes_after(0).await.unwrap();
        let rest = reader.changes_after(first.last().unwrap().seq).await.unwrap();

        let read: Vec<_> = first.iter().chain(&rest).map(|row| row.subject.clone()).collect();
        assert_eq!((first.len(), rest.len()), (10_000, 1));
        assert_eq!(read, subjects);
    }

    async fn changes_of_more_than_a_day_ago_are_forgotten(store) {
        commit(&store, async |tx| tx.insert_changes(&["young".to_owned()]).await).await.unwrap();
        execute(
            &store,
            "
            INSERT INTO changes (at, subject)
            SELECT at - 86400001, 'old' FROM changes UNION ALL
            SELECT at - 86400000 + 3600000, 'not so old' FROM changes",
        )
        .await;

        commit(&store, async |tx| tx.prune_changes().await).await.unwrap();

        let rows = store.read().await.unwrap().changes_after(0).await.unwrap();
        let mut left: Vec<_> = rows.iter().map(|row| row.subject.as_str()).collect();
        left.sort_unstable();
        assert_eq!(left, ["not so old", "young"]);
    }
}
