//! Defines the metrics of the server. This is the only module that names a metric, its unit and its help.
//!
//! A handle is an atomic number that is looked up once, at startup, so that counting is one addition. Label values come
//! from closed sets, and never contain text from a caller.

mod durations;
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
use process::Process;

/// The name and the value of a label.
type Label = (&'static str, &'static str);

/// Defines the counters of one metric that differ in one label, with a field for each value.
macro_rules! labelled {
    ($(#[$doc:meta])* $name:ident: $label:literal { $($field:ident $value:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug)]
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
    }
}

/// Counts the events of one kind: verifications, or checks of the standalone limiter.
#[derive(Debug)]
pub struct EventCounts {
    /// Events that were written to the database.
    pub written: Counter,
    /// Events that were dropped because the buffer was full.
    pub dropped: Counter,
}

/// Metrics of the events of both kinds.
#[derive(Debug)]
pub struct Events {
    pub verifications: EventCounts,
    pub ratelimits: EventCounts,
    /// Events of all replicas that have not arrived in ClickHouse, when last measured.
    pub undelivered: Gauge,
    /// The age of the oldest of them.
    pub undelivered_seconds: Gauge,
}

impl Events {
    fn new(registry: &mut Registry) -> Self {
        let written = family(registry, "events_written", "Events written, by kind");
        let dropped = family(
            registry,
            "events_dropped",
            "Events dropped because too many waited or the disk was too full, by kind",
        );
        let counts_of = |kind| {
            let counter = |family: &Family<[Label; 1], Counter>| {
                family.get_or_create_owned(&[("kind", kind)])
            };
            EventCounts { written: counter(&written), dropped: counter(&dropped) }
        };
        Self {
            verifications: counts_of("verification"),
            ratelimits: counts_of("ratelimit"),
            undelivered: gauge(
                registry,
                "events_undelivered",
                "Events written and not yet delivered to ClickHouse",
            ),
            undelivered_seconds: gauge(
                registry,
                "events_undelivered_seconds",
                "Age of the oldest undelivered event",
            ),
        }
    }
}

impl Requests {
    /// Counts a response with this status.
    pub fn count(&self, status: u16) {
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
    of_process: Registry,
    process: Process,
    requests: Family<[Label; 3], Counter>,
    state: StateGauges,
    /// Open client connections.
    pub connections: Gauge,
    /// Client connections that were rejected because too many were open.
    pub connections_refused: Counter,
    pub verifications: Verifications,
    /// How long verifications took to be decided.
    pub verification_durations: Durations,
    pub ratelimit_checks: RatelimitChecks,
    pub ratelimit_durations: Durations,
    pub cache_loads: CacheLoads,
    /// The age of a change in the change log when this replica read it there.
    pub change_delay: Durations,
    pub degraded_answers: DegradedAnswers,
    pub events: Events,
    /// Costs that were admitted without Redis and never consumed in it.
    pub local_costs_dropped: Counter,
    /// Calls to Redis for counters.
    pub redis_calls: Counter,
    /// Calls to Redis that failed, or were not answered in time.
    pub counters_failures: Counter,
    /// Lease top-ups that were debited from credit accounts.
    pub credits_withdrawals: Counter,
    /// Credits that were returned to accounts unspent.
    pub credits_returned: Counter,
    /// Withheld credits of all replicas, which no key can spend, when last measured.
    pub credits_withheld: Gauge,
}

/// The state of a server at the time of a scrape.
#[derive(Debug, Clone, Copy, Default)]
pub struct ServerStatus {
    pub database_is_reachable: bool,
    pub counters_are_reachable: bool,
    /// The time since the last proof that no change was missed.
    pub silence: Duration,
    /// Events that wait to be written.
    pub events_waiting: usize,
    /// Connections to the database that are in use, and those that are idle.
    pub connections_used: u32,
    pub connections_idle: u32,
}

/// The gauges of [`ServerStatus`].
#[derive(Debug)]
struct StateGauges {
    database_reachable: Gauge,
    counters_reachable: Gauge,
    silence_seconds: Gauge<f64, AtomicU64>,
    events_waiting: Gauge,
    connections_used: Gauge,
    connections_idle: Gauge,
}

impl StateGauges {
    fn new(registry: &mut Registry) -> Self {
        let silence_seconds = Gauge::default();
        let (database_reachable, counters_reachable) = (
            gauge(registry, "database_reachable", "1 while the database responds"),
            gauge(registry, "counters_reachable", "1 while Redis responds"),
        );
        let help = "Seconds since the last proof that no change was missed";
        registry.register("changes_silence_seconds", help, silence_seconds.clone());
        let connections = Family::<[Label; 1], Gauge>::default();
        let help = "Connections to the database, by state";
        registry.register("database_connections", help, connections.clone());
        Self {
            database_reachable,
            counters_reachable,
            silence_seconds,
            events_waiting: gauge(registry, "events_waiting", "Events waiting to be written"),
            connections_used: connections.get_or_create_owned(&[("state", "used")]),
            connections_idle: connections.get_or_create_owned(&[("state", "idle")]),
        }
    }

    fn set(&self, state: &ServerStatus) {
        self.database_reachable.set(state.database_is_reachable.into());
        self.counters_reachable.set(state.counters_are_reachable.into());
        self.silence_seconds.set(state.silence.as_secs_f64());
        self.events_waiting.set(i64::try_from(state.events_waiting).unwrap_or(i64::MAX));
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
            process: Process::new(&mut of_process),
            of_process,
            requests: family(
                all,
                "requests",
                "Requests answered, by version, operation and status class",
            ),
            state: StateGauges::new(all),
            connections: gauge(all, "connections", "Open client connections"),
            connections_refused: counter(
                all,
                "connections_refused",
                "Connections rejected because too many were open",
            ),
            verifications: Verifications::of(
                &family(all, "verifications", "Verifications, by code"),
                |code| [code],
            ),
            verification_durations: durations(
                all,
                "verification_duration_seconds",
                "Time to decide a verification",
            ),
            ratelimit_durations: durations(
                all,
                "ratelimit_check_duration_seconds",
                "Time to decide a check of the standalone limiter",
            ),
            cache_loads: CacheLoads::of(
                &family(
                    all,
                    "cache_loads",
                    "Rows read because they were not cached or stale, by cache",
                ),
                |cache| [cache],
            ),
            change_delay: durations(
                all,
                "change_delay_seconds",
                "Age of changes when read from the change log",
            ),
            ratelimit_checks: RatelimitChecks::of(
                &family(all, "ratelimit_checks", "Checks of the standalone limiter, by result"),
                |passed| [passed],
            ),
            degraded_answers: DegradedAnswers::of(
                &family(
                    all,
                    "degraded_answers",
                    "Responses decided without Redis, by outage policy",
                ),
                |policy| [policy],
            ),
            events: Events::new(all),
            local_costs_dropped: counter(
                all,
                "local_costs_dropped",
                "Costs admitted without Redis and never consumed in it",
            ),
            redis_calls: counter(all, "counters_calls", "Calls to Redis"),
            counters_failures: counter(
                all,
                "counters_failures",
                "Calls to Redis that failed or timed out",
            ),
            credits_withdrawals: counter(
                all,
                "credits_withdrawals",
                "Lease top-ups debited from credit accounts",
            ),
            credits_returned: counter(
                all,
                "credits_returned",
                "Credits returned to accounts unspent",
            ),
            credits_withheld: gauge(
                all,
                "credits_withheld",
                "Leased credits whose spend is unknown and that no key can spend",
            ),
            registry,
        }
    }
}

fn counter(registry: &mut Registry, name: &str, help: &str) -> Counter {
    let counter = Counter::default();
    registry.register(name, help, counter.clone());
    counter
}

fn gauge(registry: &mut Registry, name: &str, help: &str) -> Gauge {
    let gauge = Gauge::default();
    registry.register(name, help, gauge.clone());
    gauge
}

fn durations(registry: &mut Registry, name: &str, help: &str) -> Durations {
    let durations = Durations::default();
    registry.register(name, help, durations.clone());
    durations
}

fn family<const N: usize>(
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
    pub fn requests(&self, version: &'static str, operation: &'static str) -> Requests {
        let labels = |status| [("version", version), ("operation", operation), status];
        Requests::of(&self.requests, labels)
    }

    /// Renders all metrics in the text format of Prometheus (`OpenMetrics` 1.0).
    pub fn text(&self, state: &ServerStatus) -> String {
        self.state.set(state);
        self.process.refresh();
        let mut text = String::new();
        encode_registry(&mut text, &self.registry)
            .and_then(|()| encode_registry(&mut text, &self.of_process))
            .and_then(|()| encode_eof(&mut text))
            .expect("writing to a string does not fail");
        text
    }
}
