//! Defines the metrics of the server. This is the only module that names a metric, its unit and its help.
//!
//! A handle is an atomic number that is looked up once, at startup, so that counting is one addition. Label values come
//! from closed sets, and never contain text from a caller.

mod durations;
mod events;
mod process;

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::text::{encode_eof, encode_registry};
pub use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
pub use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

pub use durations::Durations;
pub use events::{EventCounts, EventMetrics};
use process::ProcessMetrics;
pub use read_replica::ReadReplicaMetrics;
pub use regions::{RegionMetrics, RegionalDecisions};

/// The name and the value of a label.
type Label = (&'static str, &'static str);

/// Defines the counters of one metric that differ in one label, with a field for each value.
macro_rules! labelled {
    ($(#[$doc:meta])* $name:ident: $label:literal { $($field:ident $value:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub struct $name { $(pub $field: Counter,)* }

        impl $name {
            fn of<const N: usize>(
                family: &Family<[Label; N], Counter>,
                labels: impl Fn(Label) -> [Label; N],
            ) -> Self {
                Self { $($field: family.get_or_create_owned(&labels(($label, $value))),)* }
            }
        }
    };
}

// After the macro that they use.
mod read_replica;
mod regions;

labelled! {
    /// Counts responses by the class of their status.
    Requests: "status" { success "2xx", client_error "4xx", server_error "5xx", }
}

labelled! {
    /// Counts verifications by their code.
    Verifications: "code" {
        valid "VALID",
        not_found "NOT_FOUND",
        forbidden "FORBIDDEN",
        insufficient_permissions "INSUFFICIENT_PERMISSIONS",
        usage_exceeded "USAGE_EXCEEDED",
        rate_limited "RATE_LIMITED",
        disabled "DISABLED",
        expired "EXPIRED",
    }
}

labelled! {
    /// Counts checks of the standalone limiter by whether they were admitted.
    RatelimitChecks: "passed" { passed "true", refused "false", }
}

labelled! {
    /// Counts responses that were decided without Redis, by outage policy.
    DegradedAnswers: "policy" { local "local", open "open", closed "closed", }
}

labelled! {
    /// Counts rows that were not cached, or stale, and were read from the database, by cache.
    CacheLoads: "cache" {
        views "views",
        keys "keys",
        identities "identities",
        roles "roles",
        root_keys "root_keys",
        namespaces "namespaces",
        gateway_policies "gateway_policies",
        signing_keys "signing_keys",
    }
}

impl Requests {
    /// Counts a response with this status.
    pub fn record_status(&self, status: u16) {
        match status {
            ..400 => self.success.inc(),
            400..500 => self.client_error.inc(),
            500.. => self.server_error.inc(),
        };
    }
}

/// All metrics. Counters start at 0 when the process starts.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Metrics whose names all programs share.
    process_registry: Registry,
    process: ProcessMetrics,
    requests: Family<[Label; 3], Counter>,
    state_gauges: StateGauges,
    /// Open client connections.
    pub connections: Gauge,
    /// Client connections that were rejected because too many were open.
    pub connections_refused: Counter,
    /// The end of the validity of the certificate that new connections use, in Unix seconds; 0 without a certificate.
    pub certificate_expiry_seconds: Gauge,
    pub verifications: Verifications,
    /// How long verifications took to be decided.
    pub verification_durations: Durations,
    pub ratelimit_checks: RatelimitChecks,
    pub ratelimit_durations: Durations,
    pub cache_loads: CacheLoads,
    pub read_replica: ReadReplicaMetrics,
    pub regions: RegionMetrics,
    /// The age of a change in the change log when this replica read it there.
    pub change_delay: Durations,
    pub degraded_responses: DegradedAnswers,
    pub events: EventMetrics,
    /// Costs that were admitted without Redis and never consumed in it.
    pub local_costs_dropped: Counter,
    /// Calls to Redis for counters.
    pub redis_calls: Counter,
    /// Calls to Redis that failed, or were not answered in time.
    pub redis_failures: Counter,
    /// Password hashes that were computed.
    pub password_hashes: Counter,
    /// Lease top-ups that were debited from credit accounts.
    pub lease_top_ups: Counter,
    /// Credits that were returned to accounts unspent.
    pub credits_returned: Counter,
    /// Withheld credits of all replicas, which no key can spend, when last measured.
    pub credits_withheld: Gauge,
}

/// The state of a server at the time of a scrape.
#[derive(Debug, Clone, Copy, Default)]
pub struct ServerStatus {
    pub is_database_reachable: bool,
    pub is_redis_reachable: bool,
    /// The shortest round trips of the last seconds. Zero before the first reply, and in an embedded server.
    pub database_round_trip: Duration,
    pub redis_round_trip: Duration,
    /// The time since the last proof that no change was missed.
    pub feed_silence: Duration,
    /// Events that wait to be written.
    pub events_waiting: usize,
    /// The approximate size of the cached rows.
    pub cache_bytes: u64,
    /// Connections to the database that are in use, and those that are idle.
    pub connections_used: u32,
    pub connections_idle: u32,
}

/// The gauges of [`ServerStatus`].
#[derive(Debug)]
struct StateGauges {
    database_reachable: Gauge,
    redis_reachable: Gauge,
    database_round_trip_seconds: Gauge<f64, AtomicU64>,
    redis_round_trip_seconds: Gauge<f64, AtomicU64>,
    feed_silence_seconds: Gauge<f64, AtomicU64>,
    events_waiting: Gauge,
    cache_bytes: Gauge,
    connections_used: Gauge,
    connections_idle: Gauge,
}

impl StateGauges {
    fn new(registry: &mut Registry) -> Self {
        let silence_seconds = Gauge::default();
        let (database_reachable, counters_reachable) = (
            register_gauge(registry, "database_reachable", "1 while the database responds"),
            register_gauge(registry, "counters_reachable", "1 while Redis responds"),
        );
        let help = "Seconds since the last proof that no change was missed";
        registry.register("changes_silence_seconds", help, silence_seconds.clone());
        let (database_round_trip, redis_round_trip) = (Gauge::default(), Gauge::default());
        let help =
            "The shortest round trip to Postgres of the last seconds; 0 before the first reply";
        registry.register("database_round_trip_seconds", help, database_round_trip.clone());
        let help = "The shortest round trip to Redis of the last seconds; 0 before the first reply";
        registry.register("redis_round_trip_seconds", help, redis_round_trip.clone());
        let connections = Family::<[Label; 1], Gauge>::default();
        let help = "Connections to the database, by state";
        registry.register("database_connections", help, connections.clone());
        Self {
            database_reachable,
            redis_reachable: counters_reachable,
            database_round_trip_seconds: database_round_trip,
            redis_round_trip_seconds: redis_round_trip,
            feed_silence_seconds: silence_seconds,
            events_waiting: register_gauge(
                registry,
                "events_waiting",
                "Events waiting to be written",
            ),
            cache_bytes: register_gauge(registry, "cache_bytes", "Approximate size of cached rows"),
            connections_used: connections.get_or_create_owned(&[("state", "used")]),
            connections_idle: connections.get_or_create_owned(&[("state", "idle")]),
        }
    }

    fn set(&self, state: &ServerStatus) {
        self.database_reachable.set(state.is_database_reachable.into());
        self.redis_reachable.set(state.is_redis_reachable.into());
        self.database_round_trip_seconds.set(state.database_round_trip.as_secs_f64());
        self.redis_round_trip_seconds.set(state.redis_round_trip.as_secs_f64());
        self.feed_silence_seconds.set(state.feed_silence.as_secs_f64());
        self.events_waiting.set(i64::try_from(state.events_waiting).unwrap_or(i64::MAX));
        self.cache_bytes.set(i64::try_from(state.cache_bytes).unwrap_or(i64::MAX));
        self.connections_used.set(state.connections_used.into());
        self.connections_idle.set(state.connections_idle.into());
    }
}

impl Default for Metrics {
    #[expect(clippy::too_many_lines, reason = "each metric is registered once")]
    fn default() -> Self {
        let mut registry = Registry::with_prefix("keyward");
        let all = &mut registry;
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        all.register("build", "The running version; always 1", version);
        let mut of_process = Registry::default();
        Self {
            process: ProcessMetrics::new(&mut of_process),
            process_registry: of_process,
            requests: register_family(
                all,
                "requests",
                "Requests answered, by version, operation and status class",
            ),
            state_gauges: StateGauges::new(all),
            connections: register_gauge(all, "connections", "Open client connections"),
            connections_refused: register_counter(
                all,
                "connections_refused",
                "Connections rejected because too many were open",
            ),
            certificate_expiry_seconds: register_gauge(
                all,
                "certificate_expiry_timestamp_seconds",
                "End of the validity of the server's certificate, in Unix seconds; 0 without one",
            ),
            verifications: Verifications::of(
                &register_family(all, "verifications", "Verifications, by code"),
                |code| [code],
            ),
            verification_durations: register_durations(
                all,
                "verification_duration_seconds",
                "Time to decide a verification",
            ),
            ratelimit_durations: register_durations(
                all,
                "ratelimit_check_duration_seconds",
                "Time to decide a check of the standalone limiter",
            ),
            cache_loads: CacheLoads::of(
                &register_family(
                    all,
                    "cache_loads",
                    "Rows read because they were not cached or stale, by cache",
                ),
                |cache| [cache],
            ),
            read_replica: ReadReplicaMetrics::new(all),
            regions: RegionMetrics::new(all),
            change_delay: register_durations(
                all,
                "change_delay_seconds",
                "Age of changes when read from the change log",
            ),
            ratelimit_checks: RatelimitChecks::of(
                &register_family(
                    all,
                    "ratelimit_checks",
                    "Checks of the standalone limiter, by result",
                ),
                |passed| [passed],
            ),
            degraded_responses: DegradedAnswers::of(
                &register_family(
                    all,
                    "degraded_answers",
                    "Responses decided without Redis, by outage policy",
                ),
                |policy| [policy],
            ),
            events: EventMetrics::new(all),
            local_costs_dropped: register_counter(
                all,
                "local_costs_dropped",
                "Costs admitted without Redis and never consumed in it",
            ),
            redis_calls: register_counter(all, "counters_calls", "Calls to Redis"),
            redis_failures: register_counter(
                all,
                "counters_failures",
                "Calls to Redis that failed or timed out",
            ),
            password_hashes: register_counter(
                all,
                "password_hashes",
                "Password hashes computed, each of which occupies a core for tens of milliseconds",
            ),
            lease_top_ups: register_counter(
                all,
                "credits_withdrawals",
                "Lease top-ups debited from credit accounts",
            ),
            credits_returned: register_counter(
                all,
                "credits_returned",
                "Credits returned to accounts unspent",
            ),
            credits_withheld: register_gauge(
                all,
                "credits_withheld",
                "Leased credits whose spend is unknown and that no key can spend",
            ),
            registry,
        }
    }
}

fn register_counter(registry: &mut Registry, name: &str, help: &str) -> Counter {
    let counter = Counter::default();
    registry.register(name, help, counter.clone());
    counter
}

fn register_gauge(registry: &mut Registry, name: &str, help: &str) -> Gauge {
    let gauge = Gauge::default();
    registry.register(name, help, gauge.clone());
    gauge
}

fn register_durations(registry: &mut Registry, name: &str, help: &str) -> Durations {
    let durations = Durations::default();
    registry.register(name, help, durations.clone());
    durations
}

fn register_family<const N: usize>(
    registry: &mut Registry,
    name: &str,
    help: &str,
) -> Family<[Label; N], Counter> {
    let family = Family::default();
    registry.register(name, help, family.clone());
    family
}

impl Metrics {
    /// Returns the request counters of an operation in an API version. `other` stands for every path without an
    /// operation.
    pub fn requests_for_operation(
        &self,
        version: &'static str,
        operation: &'static str,
    ) -> Requests {
        let labels = |status| [("version", version), ("operation", operation), status];
        Requests::of(&self.requests, labels)
    }

    /// Renders all metrics in the text format of Prometheus (`OpenMetrics` 1.0).
    pub fn render(&self, state: &ServerStatus) -> String {
        self.state_gauges.set(state);
        self.process.refresh();
        let mut text = String::new();
        encode_registry(&mut text, &self.registry)
            .and_then(|()| encode_registry(&mut text, &self.process_registry))
            .and_then(|()| encode_eof(&mut text))
            .expect("writing to a string does not fail");
        text
    }
}
