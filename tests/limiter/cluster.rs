//! Tests requests whose names are in different slots of a Redis Cluster: their parts are consumed all or none.

use limiter::redis::{ConsumeError, FeedReadResult};
use limiter::{ConsumeReply, ConsumeRequest, GroupChange, LeaseSpend, LeaseState, TopUp};

use super::*;
use crate::servers::Cluster;

// Owners of windows in slots of the third, the first and the second master.
const A: &str = "a";
const B: &str = "b";
const C: &str = "c";

struct Fixture {
    counters: RedisCounters,
    /// Counters of another replica.
    other: RedisCounters,
    cluster: Cluster,
}

fn keys() -> Keyspace {
    Keyspace::new("t:")
}

/// Returns a window that does not end during the test.
fn window(owner: &str, name: &str, limit: i64, cost: i64) -> Window {
    Window::new(keys().window(owner, 1, name), limit, 1_000 * 86_400_000, cost)
}

impl Fixture {
    fn start(timeout: Duration) -> Self {
        let cluster = Cluster::start(3);
        let connect = |timeout| {
            let address = RedisAddress::new(&cluster.url(), &RedisTls::default());
            RedisCounters::new(address, timeout, keys(), &Metrics::default()).unwrap()
        };
        let (counters, other) = (connect(timeout), connect(Duration::from_secs(10)));
        Self { counters, other, cluster }
    }

    async fn consume(
        &self,
        windows: Vec<Window>,
        spend: Option<LeaseSpend>,
    ) -> Result<ConsumeReply, ConsumeError> {
        let request = ConsumeRequest { spend, ..ConsumeRequest::of_windows(windows) };
        self.counters.consume(&request, None).await
    }

    /// Creates a lease of 10 credits.
    async fn open_lease(&self) {
        let peek = self.consume(Vec::new(), Some(spend(0))).await.unwrap();
        let top_up = TopUp {
            redis_generation: peek.lease.unwrap().redis_generation,
            creates_lease: true,
            granted_before: 0,
            top_up: 10,
            account_balance: 0,
            refill_at: Timestamp((1 << 53) - 1),
        };
        let opening = LeaseSpend { top_up: Some(top_up), ..spend(0) };
        let reply = self.consume(Vec::new(), Some(opening)).await.unwrap();
        assert_eq!(reply.lease.unwrap().state, LeaseState::Sufficient);
    }

    /// Waits until another replica finds this count. What was consumed in vain is refunded in the background.
    async fn wait_for_count(&self, window: &Window, count: i64) {
        let began = Stopwatch::new();
        loop {
            let reply = self.other.consume_windows(&one(window.to_peek()), None).await.unwrap();
            if reply.windows[0].effective_count == count {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(10), "{reply:?} for {count}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Returns connections to the three masters.
    fn connect_to_masters(&self) -> [redis::Connection; 3] {
        let url = self.cluster.url();
        let nodes = url.strip_prefix("redis-cluster://").expect("a cluster").split(',');
        let clients = nodes.map(|node| redis::Client::open(format!("redis://{node}")).unwrap());
        let connections: Vec<_> = clients.map(|client| client.get_connection().unwrap()).collect();
        connections.try_into().unwrap_or_else(|_| panic!("three masters"))
    }

    async fn credits(&self) -> i64 {
        let request = ConsumeRequest::with_spend(Vec::new(), spend(0));
        self.other.consume(&request, None).await.unwrap().lease.unwrap().units
    }
}

fn spend(cost: i64) -> LeaseSpend {
    LeaseSpend { lease: keys().lease(C, 1), cost, top_up: None }
}

fn counts(reply: &ConsumeReply) -> Vec<i64> {
    reply.windows.iter().map(|count| count.effective_count).collect()
}

#[tokio::test]
async fn request_in_several_slots_consumes_all_or_nothing() {
    let fixture = Fixture::start(Duration::from_secs(5));
    fixture.open_lease().await;
    let group = Arc::new(CounterGroup {
        name: keys().group(B),
        workspace: "ws_default".into(),
        live_max: 10,
    });
    let all = |limit| {
        let grouped = window(B, "grouped", 10, 2).with_group(group.clone());
        vec![window(A, "first", limit, 1), grouped, window(C, "with lease", 10, 3)]
    };

    let first = fixture.consume(all(10), Some(spend(4))).await.unwrap();
    assert!(first.is_admitted && first.group_change == GroupChange::Grown);
    assert_eq!((counts(&first), first.lease.unwrap().units), (vec![0, 0, 0], 6));

    // The first window has no more.
    let denied = fixture.consume(all(1), Some(spend(4))).await.unwrap();
    assert!(!denied.is_admitted);
    assert_eq!((counts(&denied), denied.lease.unwrap().units), (vec![1, 2, 3], 6));
    // The lease has not enough.
    let short = fixture.consume(all(10), Some(spend(7))).await.unwrap();
    assert!(!short.is_admitted);
    assert_eq!(short.lease.unwrap().state, LeaseState::AccountExhausted);

    for (window, count) in all(10).iter().zip([1, 2, 3]) {
        fixture.wait_for_count(window, count).await;
    }
    assert_eq!(fixture.credits().await, 6);
    let last = fixture.consume(all(10), Some(spend(6))).await.unwrap();
    assert!(last.is_admitted);
    let leases = [keys().lease(C, 1), keys().lease(A, 1)];
    let active = fixture.counters.list_active_leases(&leases, Duration::from_mins(1), None).await;
    assert_eq!(active.unwrap(), [None, None], "to close a lease tells the same");
}

#[tokio::test]
async fn part_of_a_denied_request_is_refunded_although_no_other_request_follows() {
    let fixture = Fixture::start(Duration::from_secs(5));
    let refunded = window(B, "refunded", 10, 2);
    let windows = vec![window(A, "full", 0, 1), refunded.clone(), window(C, "last", 10, 1)];

    let denied = fixture.consume(windows, None).await.unwrap();

    assert!(!denied.is_admitted);
    fixture.wait_for_count(&refunded, 0).await;
}

#[tokio::test]
async fn part_of_a_request_is_refunded_when_its_master_executes_it_late() {
    let fixture = Fixture::start(Duration::from_millis(500));
    let windows = [window(B, "in time", 10, 1), window(A, "late", 10, 1)];
    // Connects to all masters.
    let began = Stopwatch::new();
    while fixture.consume(windows.each_ref().map(Window::to_peek).to_vec(), None).await.is_err() {
        assert!(began.elapsed() < Duration::from_secs(10), "the cluster does not reply");
    }
    let [_, _, mut third] = fixture.connect_to_masters();
    redis::cmd("CLIENT").arg(&["PAUSE", "1500", "ALL"]).exec(&mut third).unwrap();

    let missed = fixture.consume(windows.to_vec(), None).await.unwrap_err();

    assert!(missed.cause.is_redis_outage() && missed.unresolved.is_none(), "{missed:?}");
    for window in &windows {
        fixture.wait_for_count(window, 0).await;
    }
}

#[tokio::test]
async fn all_parts_of_a_request_are_refunded_when_several_masters_execute_them_late() {
    let fixture = Fixture::start(Duration::from_millis(500));
    let windows = [window(B, "late", 10, 1), window(A, "late", 10, 1), window(C, "last", 10, 1)];
    // Connects to all masters.
    let began = Stopwatch::new();
    while fixture.consume(windows.each_ref().map(Window::to_peek).to_vec(), None).await.is_err() {
        assert!(began.elapsed() < Duration::from_secs(10), "the cluster does not reply");
    }
    for mut master in fixture.connect_to_masters() {
        redis::cmd("CLIENT").arg(&["PAUSE", "1500", "ALL"]).exec(&mut master).unwrap();
    }

    let missed = fixture.consume(windows.to_vec(), None).await.unwrap_err();

    assert!(missed.cause.is_redis_outage() && missed.unresolved.is_none(), "{missed:?}");
    // They are executed when the pause ends.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    for window in &windows {
        fixture.wait_for_count(window, 0).await;
    }
}

#[tokio::test]
async fn request_is_sent_to_the_master_that_its_slot_has_moved_to() {
    let fixture = Fixture::start(Duration::from_secs(5));
    let window = window(A, "moved", 10, 1);
    fixture.consume(vec![window.to_peek()], None).await.unwrap();
    let mut masters = fixture.connect_to_masters();
    let [first, _, third] = masters
        .each_mut()
        .map(|master| redis::cmd("CLUSTER").arg("MYID").query::<String>(master).unwrap());
    let slot: u16 =
        redis::cmd("CLUSTER").arg("KEYSLOT").arg(window.key()).query(&mut masters[0]).unwrap();
    let mut set_slot = |master: usize, state: &str, node: &str| {
        let mut command = redis::cmd("CLUSTER");
        command.arg("SETSLOT").arg(slot).arg(state).arg(node);
        command.exec(&mut masters[master]).unwrap();
    };
    set_slot(0, "IMPORTING", &third);
    set_slot(2, "MIGRATING", &first);
    // The slot is empty.
    for master in [0, 2, 1] {
        set_slot(master, "NODE", &first);
    }

    let reply = fixture.consume(vec![window.clone()], None).await.unwrap();

    assert!(reply.is_admitted);
    fixture.wait_for_count(&window, 1).await;
}

#[tokio::test]
async fn announcement_is_read_from_the_feed_of_a_cluster() {
    let fixture = Fixture::start(Duration::from_secs(5));
    let mut feed = fixture.counters.connect_feed().await.unwrap();
    let end = feed.get_or_create_end().await.unwrap();
    let era = fixture.other.publish("a change", None).await.unwrap();

    let others = ["rep_other".to_owned()];
    let found = feed.read(&end, ("rep_reader", &others), true).await.unwrap();

    let FeedReadResult::Announcements { texts, position, is_end, reader_ages } = found else {
        panic!("a gap")
    };
    assert_eq!((texts, position.era), (vec!["a change".to_owned()], era));
    assert_eq!((is_end, reader_ages), (true, vec![None]));
}
