//! Verifies keys at fixed rates in several regions at once, and checks every reply.

use super::super::Outcome;
use super::super::cases::VERIFY;
use super::real;
use super::topology::{LIMIT_NAME, NAMES, Regions, connect, limit, verify};
use serde_json::json;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// The maximum rate of one caller: it has a reply from another region before its next request is due.
const PER_CALLER: u32 = 2;

/// The time between the first use of a key and the load, after which nothing of that use has an effect.
const SETTLING_TIME: Duration = Duration::from_millis(1_500);

/// What a key may spend.
#[derive(Clone, Copy)]
pub enum Bound {
    Limit { limit: u64, window: Duration },
    Credits(u64),
}

/// A key, and how many verifications a second each region asks for.
pub struct Counter {
    key: String,
    pub bound: Bound,
    per_second: [u32; NAMES.len()],
}

impl Counter {
    pub fn create(
        regions: &Regions,
        home: usize,
        bound: Bound,
        per_second: [u32; NAMES.len()],
    ) -> Outcome<Self> {
        let fields = match bound {
            Bound::Limit { limit: most, window } => {
                limit(most, u64::try_from(window.as_millis()).unwrap_or(u64::MAX))
            }
            Bound::Credits(credits) => json!({ "credits": { "remaining": credits } }),
        };
        let counter = Self { key: regions.create_key(home, &fields)?, bound, per_second };
        counter.peek(regions)?;
        Ok(counter)
    }

    /// Has every replica read the key, without consuming anything: reading keys is not measured.
    fn peek(&self, regions: &Regions) -> Outcome<()> {
        let body = match self.bound {
            Bound::Limit { .. } => {
                json!({ "key": self.key, "ratelimits": [{ "name": LIMIT_NAME, "cost": 0 }] })
            }
            Bound::Credits(_) => json!({ "key": self.key, "credits": { "cost": 0 } }),
        };
        let body = body.to_string();
        std::thread::scope(|scope| {
            let replicas = regions.replicas.iter().flatten();
            let peeks: Vec<_> =
                replicas.map(|replica| scope.spawn(|| verify(replica.address, &body))).collect();
            peeks.into_iter().try_for_each(|peek| peek.join().map_err(|_| "a caller panicked")?)
        })
    }
}

/// The reply to one request.
pub struct Reply {
    /// Since the load began.
    pub asked_at: Duration,
    pub received_at: Duration,
    pub latency: Duration,
    pub is_admitted: bool,
    pub is_degraded: bool,
    /// In Unix milliseconds.
    window_end: Option<u64>,
}

/// A caller of one replica.
#[derive(Clone, Copy)]
struct Caller<'a> {
    address: SocketAddr,
    body: &'a str,
    /// When the load begins, and how much later this caller sends its first request.
    begin: Instant,
    first: Duration,
    /// Between two requests in this region, and between two of this caller.
    apart: Duration,
    interval: Duration,
}

/// Verifies the keys for a time. Returns the replies for each counter, or what is wrong with them.
pub fn drive(
    regions: &Regions,
    counters: &[Counter],
    lasts: Duration,
) -> Outcome<Vec<Vec<Outcome<Reply>>>> {
    let bodies: Vec<_> =
        counters.iter().map(|counter| json!({ "key": counter.key }).to_string()).collect();
    let begin = Instant::now() + SETTLING_TIME;
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        for (place, counter) in counters.iter().enumerate() {
            let callers = (0..NAMES.len()).flat_map(|region| {
                list_callers(regions, region, counter.per_second[region], &bodies[place], begin)
            });
            // Otherwise the callers of all counters would send at the same moments.
            let part = real(place) / real(counters.len());
            let started: Vec<_> = callers
                .map(|it| Caller { first: it.first + it.apart.mul_f64(part), ..it })
                .map(|it| scope.spawn(move || it.run(lasts)))
                .collect();
            running.push(started);
        }
        let join = |callers: Vec<ScopedJoinHandle<Outcome<Vec<Outcome<Reply>>>>>| {
            let mut replies = Vec::new();
            for caller in callers {
                replies.extend(caller.join().map_err(|_| "a caller panicked")??);
            }
            Ok(replies)
        };
        running.into_iter().map(join).collect()
    })
}

/// Lists the callers that ask for one counter in a region, evenly apart.
fn list_callers<'a>(
    regions: &Regions,
    region: usize,
    per_second: u32,
    body: &'a str,
    begin: Instant,
) -> Vec<Caller<'a>> {
    let (replicas, count) = (&regions.replicas[region], per_second.div_ceil(PER_CALLER));
    let apart = Duration::from_secs(1).checked_div(per_second).unwrap_or_default();
    let addresses = replicas.iter().map(|replica| replica.address).cycle();
    let caller = |(number, address)| Caller {
        address,
        body,
        begin,
        first: apart * number,
        apart,
        interval: apart * count,
    };
    (0..count).zip(addresses).map(caller).collect()
}

impl Caller<'_> {
    fn run(self, lasts: Duration) -> Outcome<Vec<Outcome<Reply>>> {
        let mut client = connect(self.address)?;
        let (mut due, mut replies) = (self.begin + self.first, Vec::new());
        let end = self.begin + lasts;
        while due < end && Instant::now() < end {
            let rest = due.saturating_duration_since(Instant::now());
            std::thread::sleep(rest);
            let asked_at = Instant::now();
            let (status, answer) =
                client.post(VERIFY, self.body).map_err(|e| format!("no answer: {e}"))?;
            let received_at = Instant::now();
            let reply = Reply {
                received_at: received_at - self.begin,
                asked_at: asked_at - self.begin,
                // A request that is late, because the reply to the one before was, has waited since it was due.
                latency: received_at - if rest.is_zero() { due } else { asked_at },
                is_admitted: answer["data"]["valid"] == true,
                is_degraded: answer["meta"]["degraded"] == true,
                window_end: answer["data"]["ratelimits"][0]["reset"].as_u64(),
            };
            replies.push(match answer["data"]["code"].as_str() {
                Some("VALID" | "RATE_LIMITED" | "USAGE_EXCEEDED") if status == 200 => Ok(reply),
                _ => Err(format!("a verification was answered {status}: {answer}")),
            });
            due += self.interval;
        }
        Ok(replies)
    }
}

/// Returns the number of admissions beyond the bound of a counter, apart from replies that are flagged as degraded.
pub fn count_beyond(bound: Bound, replies: &[Reply]) -> u64 {
    let exact = replies.iter().filter(|reply| reply.is_admitted && !reply.is_degraded);
    let mut admitted = HashMap::new();
    for reply in exact {
        *admitted.entry(reply.window_end).or_insert(0_u64) += 1;
    }
    let (Bound::Limit { limit: most, .. } | Bound::Credits(most)) = bound;
    admitted.values().map(|count| count.saturating_sub(most)).sum()
}
