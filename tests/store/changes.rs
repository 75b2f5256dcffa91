//! Tests the change log.

use store::LogPage;

use super::*;

async fn log_changes(store: &Store, subjects: &[&str]) -> i64 {
    let subjects: Vec<_> = subjects.iter().map(|text| (*text).to_owned()).collect();
    commit_with(store, async |tx| tx.insert_changes(&subjects).await).await.unwrap()
}

async fn read_page(store: &Store, after: i64) -> LogPage {
    store.read().await.unwrap().load_log_page(after, "rep_a").await.unwrap()
}

fn subjects(page: &LogPage) -> Vec<&str> {
    page.rows.iter().map(|row| row.subject.as_str()).collect()
}

on_both_stores! {
    async fn changes_are_logged_in_order_on_commit(store) {
        let changes = [
            CacheTag::Key(KeyId::from("key_b")),
            CacheTag::Api(ApiId::from("api_a")),
            CacheTag::NewKey(0xab),
            CacheTag::Key(KeyId::from("key_b")),
        ];
        let mut tx = store.begin().await.unwrap();
        for subject in &changes {
            tx.record_change(subject.clone());
        }

        let position = tx.log_changes().await.unwrap();
        let committed = tx.commit().await.unwrap();

        let page = read_page(&store, 0).await;
        assert_eq!(committed, changes);
        assert_eq!(subjects(&page), ["key:key_b", "api:api_a", "new:00000000000000ab", "key:key_b"]);
        assert_eq!(position, Some(page.rows[0].seq));
        assert!(page.rows.is_sorted_by(|a, b| a.seq < b.seq));
        assert!(page.rows.iter().all(|row| row.at > NOON.0), "{page:?}");
    }

    async fn transaction_without_changes_logs_nothing(store) {
        let mut tx = store.begin().await.unwrap();
        assert_eq!(tx.log_changes().await.unwrap(), None);
        let committed = tx.commit().await.unwrap();

        assert!(committed.is_empty());
        assert_eq!(count(&store, "changes").await, 0);
    }

    async fn change_log_is_read_from_a_position(store) {
        let empty = read_page(&store, 0).await;
        log_changes(&store, &["a", SPECIAL_TEXT]).await;
        let last = log_changes(&store, &["c"]).await;

        let all = read_page(&store, 0).await;
        let rest = read_page(&store, all.rows[0].seq).await;
        let none = read_page(&store, last).await;

        assert_eq!((empty.head.top, empty.rows.len()), (0, 0));
        assert_eq!(subjects(&rest), [SPECIAL_TEXT, "c"]);
        assert!(none.rows.is_empty());
        assert_eq!((none.head.top, none.head.settled), (last, 0));
        assert!(none.head.now >= all.rows[0].at);
    }

    async fn log_page_contains_the_state_of_its_reader(store) {
        commit_with(&store, async |tx| tx.register_replica("rep_a", "", 1, 1).await).await.unwrap();
        commit_with(&store, async |tx| tx.register_replica("rep_b", "", 1, 1).await).await.unwrap();
        let new = read_page(&store, 0).await.head;
        commit_with(&store, async |tx| tx.set_replica_feed("rep_a", "era", 7).await).await.unwrap();
        execute(&store, "UPDATE replicas SET feed = NULL WHERE id = 'rep_b'").await;
        let head = read_page(&store, 0).await.head;
        execute(&store, "UPDATE replicas SET seen_at = seen_at - 61000").await;
        let late = read_page(&store, 0).await.head;

        assert_eq!((new.feed.as_deref(), new.has_older_replicas), (Some(""), false));
        assert!(new.now - new.seen_at.unwrap() < 60_000);
        assert_eq!((head.feed.as_deref(), head.has_older_replicas), (Some("era"), true));
        assert!(!late.has_older_replicas);
    }

    async fn log_row_is_final_when_a_minute_old(store) {
        let first = log_changes(&store, &["a"]).await;
        log_changes(&store, &["b"]).await;

        execute(&store, "UPDATE changes SET at = at - 61000 WHERE subject = 'a'").await;

        assert_eq!(read_page(&store, 0).await.head.settled, first);
    }

    async fn long_change_log_is_read_in_pages(store) {
        let all: Vec<_> = (0..10_001).map(|n| format!("key:key_{n:05}")).collect();
        commit_with(&store, async |tx| tx.insert_changes(&all).await).await.unwrap();

        let first = read_page(&store, 0).await;
        let rest = read_page(&store, first.rows.last().unwrap().seq).await;

        let read: Vec<_> = subjects(&first).into_iter().chain(subjects(&rest)).collect();
        assert_eq!((first.rows.len(), rest.rows.len()), (10_000, 1));
        assert_eq!(read, all);
    }

    async fn single_log_positions_can_be_read(store) {
        let first = log_changes(&store, &["a", "b", "c", "d"]).await;
        let mut reader = store.read().await.unwrap();

        let ranges = [(first, first), (first + 2, first + 9), (first + 20, first + 30)];
        let within = reader.list_changes_in_ranges(&ranges).await.unwrap();
        let among = reader.list_existing_positions(&[first + 1, first + 40]).await.unwrap();

        let texts: Vec<_> = within.iter().map(|row| row.subject.as_str()).collect();
        assert_eq!(texts, ["a", "c", "d"]);
        assert_eq!(among, [first + 1]);
    }

    async fn writer_waits_for_replicas_that_miss_its_announcement(store) {
        for id in ["rep_me", "rep_same", "rep_other", "rep_none", "rep_old", "rep_gone"] {
            commit_with(&store, async |tx| tx.register_replica(id, "", 1, 1).await).await.unwrap();
        }
        for (id, feed) in [
            ("rep_me", "one"),
            ("rep_same", "one"),
            ("rep_other", "two"),
            ("rep_none", ""),
            ("rep_gone", "two"),
        ] {
            commit_with(&store, async |tx| tx.set_replica_feed(id, feed, 60_000).await).await.unwrap();
        }
        execute(&store, "UPDATE replicas SET feed = NULL WHERE id = 'rep_old'").await;
        execute(&store, "UPDATE replicas SET seen_at = seen_at - 65000 WHERE id = 'rep_gone'").await;
        let unreached = async |era: &str, intent| {
            let mut reader = store.read().await.unwrap();
            let eras: Vec<_> = era.split_whitespace().map(str::to_owned).collect();
            let is_everywhere = !era.is_empty() && !era.contains("only");
            let sent = (&eras[..], is_everywhere);
            reader.list_unreached_replicas("rep_me", sent, intent, 60_000).await.unwrap()
        };

        assert_eq!(unreached("one", 5).await, ["rep_other"]);
        assert!(unreached("one two", 5).await.is_empty(), "the feeds of two regions");
        let missing = unreached("only one", 5).await;
        assert_eq!(missing, ["rep_gone", "rep_old", "rep_other"], "not in the feed of another region");
        assert_eq!(unreached("", 5).await, ["rep_gone", "rep_old", "rep_other", "rep_same"]);
        commit_with(&store, async |tx| tx.acknowledge_intents("rep_other", &[4, 5]).await).await.unwrap();
        commit_with(&store, async |tx| tx.acknowledge_intents("rep_other", &[5]).await).await.unwrap();
        assert!(unreached("one", 5).await.is_empty());
        assert_eq!(unreached("one", 6).await, ["rep_other"]);
        assert!(commit_with(&store, async |tx| tx.clear_replica_feed("rep_same").await).await.unwrap());
        assert!(!commit_with(&store, async |tx| tx.clear_replica_feed("rep_x").await).await.unwrap());
        assert_eq!(unreached("", 5).await, ["rep_gone", "rep_old"]);
        execute(&store, "UPDATE replicas SET seen_at = seen_at - 6000 WHERE id = 'rep_gone'").await;
        assert_eq!(unreached("", 5).await, ["rep_old"]);
        let mut reader = store.read().await.unwrap();
        let all = reader.list_registered_replicas(60_000, 100).await.unwrap();
        assert_eq!(all.len(), 6);
        assert_eq!(all.last().unwrap().id, "rep_gone");
    }

    async fn changes_are_deleted_after_a_day(store) {
        log_changes(&store, &["young"]).await;
        execute(
            &store,
            "
            INSERT INTO changes (at, subject)
            SELECT at - 86400001, 'old' FROM changes UNION ALL
            SELECT at - 86400000 + 3600000, 'not so old' FROM changes",
        )
        .await;
        commit_with(&store, async |tx| tx.acknowledge_intents("rep_a", &[1, 2]).await).await.unwrap();
        execute(&store, "UPDATE change_acks SET at = at - 86400001 WHERE intent = 1").await;

        execute(&store, "UPDATE changes SET at = at - 86400001 WHERE subject = 'old'").await;
        execute(
            &store,
            "INSERT INTO changes (at, subject) SELECT at, 'old' FROM changes WHERE subject = 'old'",
        )
        .await;

        let mut pruned = Vec::new();
        for _ in 0..2 {
            pruned.push(commit_with(&store, async |tx| tx.prune_changes(1).await).await.unwrap());
        }
        assert_eq!(pruned, [1, 1]);
        assert_eq!(commit_with(&store, async |tx| tx.prune_changes(1).await).await.unwrap(), 0);

        let page = read_page(&store, 0).await;
        let mut left = subjects(&page);
        left.sort_unstable();
        assert_eq!(left, ["not so old", "young"]);
        assert_eq!(count(&store, "change_acks").await, 1);
    }
}
