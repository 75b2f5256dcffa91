//! Tests that a change is committed only when every replica can learn of it, and what its writer announces.

use domain::context::feed::Announcement;
use foundation::clock::Stopwatch;
use foundation::id::KeyId;
use limiter::redis::FeedReadResult;
use store::Tx;
use store::freshness::{CacheTag, ReadVersion, VersionSlot};

use super::*;

/// Another replica, which relies on announcements that the writer cannot send.
const READER: &str = "rep_reader";

fn key_tag(id: &str) -> CacheTag {
    CacheTag::Key(KeyId::from(id))
}

impl Replica {
    async fn execute(&self, statements: &[&'static str]) {
        let mut connection = self.database.connect().await;
        for sql in statements {
            sqlx::query(*sql).execute(&mut connection).await.unwrap();
        }
    }

    async fn count(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&mut self.database.connect().await).await.unwrap()
    }

    /// Registers the reader, which stays present for a minute.
    async fn add_reader(&self) {
        let mut tx = self.store().begin().await.unwrap();
        tx.register_replica(READER, "", 1, 1).await.unwrap();
        tx.set_replica_feed(READER, "another era", 60_000).await.unwrap();
        tx.commit().await.unwrap();
        self.execute(&["UPDATE replicas SET seen_at = seen_at + 60000"]).await;
    }

    async fn begin_change(&self, tags: impl IntoIterator<Item = CacheTag>) -> Tx {
        let mut tx = self.store().begin().await.unwrap();
        tags.into_iter().for_each(|tag| tx.record_change(tag));
        tx
    }

    fn read_version(&self) -> ReadVersion {
        self.context.freshness.read_version(Monotonic::now())
    }

    /// Returns whether no change of a key is known since this version, at a time at which nothing else is in doubt.
    fn is_unchanged(&self, version: ReadVersion, id: &str) -> bool {
        let slots = [VersionSlot::from_tag(&key_tag(id))];
        self.context.freshness.is_fresh(version, &slots, Monotonic::default())
    }

    fn open_intents(&self) -> Vec<i64> {
        let open = self.context.freshness.intents.list().into_iter();
        open.map(|(position, _)| position).collect()
    }

    /// Waits until the change log contains the intent of the change that is being committed. Returns its position.
    async fn wait_for_logged_intent(&self) -> i64 {
        let logged = "SELECT COUNT(*) FROM changes WHERE subject LIKE 'intent %'";
        let since = Stopwatch::new();
        while self.count(logged).await == 0 {
            assert!(since.elapsed() < Duration::from_secs(5), "the log does not contain it");
            sleep(Duration::from_millis(20)).await;
        }
        let open = self.open_intents();
        assert_eq!(open.len(), 1, "the writer holds its own intent");
        open[0]
    }

    fn next_announcement(&mut self) -> Option<String> {
        self.announcements.try_recv().ok()
    }
}

#[tokio::test]
async fn committed_change_is_known_to_its_writer_at_once_and_announced() {
    let mut writer = Replica::start(|_| {}).await;
    let version = writer.read_version();
    let tx = writer.begin_change([key_tag("key_a"), CacheTag::NewKeys]).await;

    writer.context.commit(tx).await.unwrap();

    assert!(!writer.is_unchanged(version, "key_a") && writer.is_unchanged(version, "key_b"));
    assert!(writer.open_intents().is_empty());
    let position = writer.count("SELECT MIN(seq) FROM changes").await;
    let cache_tags = "key:key_a\nnew_keys\n";
    let committed = Announcement::Committed { position, cache_tags }.to_string();
    assert_eq!(writer.next_announcement(), Some(committed));
}

#[tokio::test]
async fn change_of_a_process_without_tasks_is_in_the_feed_before_and_after_its_commit() {
    let mut writer = Replica::start(|_| {}).await;
    let mut feed = writer.context.redis.as_ref().unwrap().connect_feed().await.unwrap();
    let end = feed.get_or_create_end().await.unwrap();
    writer.announcements.close();
    let tx = writer.begin_change([key_tag("key_a")]).await;

    writer.context.commit(tx).await.unwrap();

    let position = writer.count("SELECT MIN(seq) FROM changes").await;
    let read = feed.read(&end, ("rep_a", &[]), false).await.unwrap();
    let texts = match read {
        FeedReadResult::Announcements { texts, .. } => texts,
        FeedReadResult::Gap => panic!("a gap"),
    };
    let cache_tags = "key:key_a\n";
    let expected = [
        Announcement::Intent { position, cache_tags },
        Announcement::Committed { position, cache_tags },
    ];
    assert_eq!(texts, expected.map(|announcement| announcement.to_string()));
}

#[tokio::test]
async fn change_that_another_replica_cannot_learn_of_is_rolled_back_and_announced_as_such() {
    let mut writer = Replica::start(|_| {}).await;
    writer.add_reader().await;
    let version = writer.read_version();
    let tx = writer.begin_change([key_tag("key_a")]).await;

    let (result, position) =
        tokio::join!(writer.context.commit(tx), writer.wait_for_logged_intent());

    let unreached =
        |error: &Error| matches!(error, Error::ReplicasNotNotified(ids) if ids == READER);
    assert!(result.as_ref().is_err_and(unreached), "{result:?}");
    assert!(writer.is_unchanged(version, "key_a"));
    assert!(writer.open_intents().is_empty());
    let undone = Announcement::RolledBack { position }.to_string();
    assert_eq!(writer.next_announcement(), Some(undone));
    let rows = "SELECT COUNT(*) FROM changes WHERE subject = 'key:key_a'";
    assert_eq!(writer.count(rows).await, 0);
}

#[tokio::test]
async fn change_is_committed_when_the_other_replica_acknowledges_its_intent() {
    let mut writer = Replica::start(|_| {}).await;
    writer.add_reader().await;
    let tx = writer.begin_change([key_tag("key_a")]).await;
    let acknowledge = async {
        let position = writer.wait_for_logged_intent().await;
        let mut tx = writer.store().begin().await.unwrap();
        tx.acknowledge_intents(READER, &[position]).await.unwrap();
        tx.commit().await.unwrap();
        position
    };

    let (result, position) = tokio::join!(writer.context.commit(tx), acknowledge);

    result.unwrap();
    let committed = Announcement::Committed { position, cache_tags: "key:key_a\n" }.to_string();
    assert_eq!(writer.next_announcement(), Some(committed));
}

#[tokio::test]
async fn intent_stays_open_and_its_entities_are_stale_when_the_commit_fails() {
    let mut writer = Replica::start(|_| {}).await;
    let refuse = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql
        AS $$ BEGIN RAISE EXCEPTION 'refused'; END $$";
    let at_commit = "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON changes
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()";
    writer.execute(&[refuse, at_commit]).await;
    let version = writer.read_version();
    let tx = writer.begin_change([key_tag("key_a")]).await;

    let result = writer.context.commit(tx).await;

    // It is unknown to the writer whether the database has committed.
    assert!(result.is_err());
    assert!(!writer.is_unchanged(version, "key_a"));
    assert_eq!(writer.open_intents().len(), 1);
    assert_eq!(writer.next_announcement(), None);
}

#[tokio::test]
async fn change_of_more_than_a_thousand_entities_is_announced_as_one_of_everything() {
    let mut writer = Replica::start(|_| {}).await;
    for (changed, announced) in [(1_000, 1_000), (1_001, 1)] {
        let tags = (0..changed).map(|number| key_tag(&format!("key_{number}")));
        let tx = writer.begin_change(tags).await;

        writer.context.commit(tx).await.unwrap();

        let text = writer.next_announcement().unwrap();
        let Some(Announcement::Committed { cache_tags, .. }) = Announcement::parse(&text) else {
            panic!("{text}")
        };
        assert_eq!(cache_tags.lines().count(), announced);
        assert_eq!(cache_tags == "all\n", announced == 1);
    }
}
