//! Tests which requests are sent again when Redis has executed them and the reply is lost with the connection.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;

use limiter::{ConsumeRequest, LeaseSpend, ReplicaRank, TopUp};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::*;
use crate::servers::Redis;

/// A proxy in front of Redis that can lose a reply and the connection with it.
struct LossyProxy {
    address: SocketAddr,
    loses_next_reply: Arc<AtomicBool>,
    _task: JoinSet<()>,
}

impl LossyProxy {
    async fn start(redis_port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let loses_next_reply = Arc::new(AtomicBool::new(false));
        let (mut task, is_lost) = (JoinSet::new(), loses_next_reply.clone());
        task.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let is_lost = is_lost.clone();
                tokio::spawn(async move {
                    let _ = forward(client, redis_port, &is_lost).await;
                });
            }
        });
        Self { address, loses_next_reply, _task: task }
    }

    fn lose_next_reply(&self) {
        self.loses_next_reply.store(true, Ordering::SeqCst);
    }

    fn has_lost_a_reply(&self) -> bool {
        !self.loses_next_reply.load(Ordering::SeqCst)
    }
}

async fn forward(
    mut client: TcpStream,
    redis_port: u16,
    is_lost: &AtomicBool,
) -> std::io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", redis_port)).await?;
    let (mut request, mut reply) = (vec![0; 16 * 1024], vec![0; 16 * 1024]);
    loop {
        tokio::select! {
            read = client.read(&mut request) => match read? {
                0 => return Ok(()),
                length => server.write_all(&request[..length]).await?,
            },
            read = server.read(&mut reply) => match read? {
                0 => return Ok(()),
                // That of a script; a probe gets a status.
                _ if reply[0] != b'+' && is_lost.swap(false, Ordering::SeqCst) => return Ok(()),
                length => client.write_all(&reply[..length]).await?,
            },
        }
    }
}

/// A Redis, counters that reach it through a proxy, and others that reach it directly.
struct Fixture {
    counters: RedisCounters,
    direct: RedisCounters,
    metrics: Metrics,
    proxy: LossyProxy,
    _server: Redis,
}

impl Fixture {
    async fn start() -> Self {
        let (server, metrics) = (Redis::start(), Metrics::default());
        let proxy = LossyProxy::start(server.port).await;
        let connect = |port, metrics: &Metrics| {
            let url = format!("redis://127.0.0.1:{port}");
            let address = RedisAddress::new(&url, &RedisTls::default());
            let timeout = Duration::from_secs(5);
            RedisCounters::new(address, timeout, Keyspace::new("t:"), metrics).unwrap()
        };
        Self {
            counters: connect(proxy.address.port(), &metrics),
            direct: connect(server.port, &Metrics::default()),
            metrics,
            proxy,
            _server: server,
        }
    }

    async fn count(&self, window: &Window) -> i64 {
        let reply = self.direct.consume_windows(&one(window.to_peek()), None).await.unwrap();
        reply.windows[0].effective_count
    }
}

/// Returns a window that does not end during the test.
fn window(cost: i64) -> Window {
    Window::new(Keyspace::new("t:").window("key_a", 1, "requests"), 100, 1_000 * 86_400_000, cost)
}

#[tokio::test]
async fn request_is_sent_again_and_counts_twice_when_its_reply_is_lost() {
    let fixture = Fixture::start().await;
    fixture.counters.consume_windows(&one(window(0)), None).await.unwrap();

    fixture.proxy.lose_next_reply();
    let reply = fixture.counters.consume_windows(&one(window(3)), None).await.unwrap();

    assert!(fixture.proxy.has_lost_a_reply());
    assert_eq!((reply.is_admitted, reply.windows[0].effective_count), (true, 3));
    assert_eq!(fixture.count(&window(0)).await, 6);
}

#[tokio::test]
async fn top_up_is_added_once_when_its_reply_is_lost() {
    let fixture = Fixture::start().await;
    let spend = |cost, top_up| {
        let lease = Keyspace::new("t:").lease("key_a", 1);
        ConsumeRequest::with_spend(Vec::new(), LeaseSpend { lease, cost, top_up })
    };
    let peek = fixture.counters.consume(&spend(0, None), None).await.unwrap();
    let top_up = TopUp {
        redis_generation: peek.lease.unwrap().redis_generation,
        creates_lease: true,
        granted_before: 0,
        top_up: 10,
        account_balance: 0,
        refill_at: Timestamp((1 << 53) - 1),
    };

    fixture.proxy.lose_next_reply();
    let missed = fixture.counters.consume(&spend(1, Some(top_up)), None).await.unwrap_err();

    assert!(fixture.proxy.has_lost_a_reply() && missed.cause.is_redis_outage(), "{missed:?}");
    let lease = fixture.direct.consume(&spend(0, None), None).await.unwrap().lease.unwrap();
    assert_eq!((lease.units, lease.spent_units), (9, 1));
}

#[tokio::test]
async fn charge_is_added_once_and_its_cost_reported_when_its_reply_is_lost() {
    let fixture = Fixture::start().await;
    let alone = ReplicaRank { rank: 0, replica_count: 1 };
    let admit = |cost| {
        let (reply, _) =
            fixture.counters.consume_share(&one(window(cost)), alone, true, None, &Clock::System);
        assert!(reply.is_admitted);
    };
    admit(2);
    // Sends what is due and waits for it.
    fixture.counters.adjust(Vec::new()).await;
    assert_eq!(fixture.count(&window(0)).await, 2);

    admit(3);
    fixture.proxy.lose_next_reply();
    fixture.counters.adjust(Vec::new()).await;
    fixture.counters.adjust(Vec::new()).await;

    assert!(fixture.proxy.has_lost_a_reply());
    assert_eq!(fixture.count(&window(0)).await, 5);
    assert_eq!(fixture.metrics.local_costs_dropped.get(), 3);
}
