//! What is counted for whoever watches the servers: the one place where each metric has its name, its
//! unit and its help.
//!
//! A handle is an atomic number that is found once, when the server is put together, so that counting
//! is one addition. Labels come from closed sets; no text of a caller is ever one.

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

/// The name of a label and its value.
type Label = (&'static str, &'static str);

/// Counters of one metric that differ in one label: a field for each of its values.
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
    /// Answers to requests, by the class of their status.
    Requests: "status" { success "2xx", client_error "4xx", server_error "5xx", }
}

labelled! {
    /// Verifications, by what came of them.
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
    /// Checks of the standalone limiter, by whether they passed.
    RatelimitChecks: "passed" { passed "true", refused "false", }
}

labelled! {
    /// Answers that were given without the counters, by the policy that allowed it.
    DegradedAnswers: "policy" { local "local", open "open", closed "closed", }
}

labelled! {
    /// Rows that were not in a cache, or not true any more, and so were read; by cache.
    CacheLoads: "cache" {
        views "views",
        keys "keys",
        identities "identities",
        roles "roles",
        root_keys "root_keys",
        namespaces "namespaces",
    }
}

/// Events of one kind: verifications, or checks of the standalone limiter.
#[derive(Debug)]
pub struct EventCounts {
    /// Put into the database.
    pub written: Counter,
    /// Found the buffer full, and are gone.
    pub dropped: Counter,
}

/// Events of both kinds.
#[derive(Debug)]
pub struct Events {
    pub verifications: EventCounts,
    pub ratelimits: EventCounts,
    /// Those of all replicas that are on their way to ClickHouse; as far as has been found out lately.
    pub undelivered: Gauge,
    /// For how long the oldest of them have been.
    pub undelivered_seconds: Gauge,
}

impl Events {
    fn new(registry: &mut Registry) -> Self {
        let written = family(registry, "events_written", "Events written, by kind");
        let dropped = family(
            registry,
            "events_dropped",
            "Events lost because too many waited, or the disk had too little room, by kind",
        );
        let of = |kind| {
            let of = |family: &Family<[Label; 1], Counter>| {
                family.get_or_create_owned(&[("kind", kind)])
            };
            EventCounts { written: of(&written), dropped: of(&dropped) }
        };
        Self {
            verifications: of("verification"),
            ratelimits: of("ratelimit"),
            undelivered: gauge(
                registry,
                "events_undelivered",
                "Events that are written and have not arrived in ClickHouse",
            ),
            undelivered_seconds: gauge(
                registry,
                "events_undelivered_seconds",
                "How long ago the oldest of them was written",
            ),
        }
    }
}

impl Requests {
    /// Counts an answer with this status.
    pub fn count(&self, status: u16) {
        match status {
            ..400 => self.success.inc(),
            400..500 => self.client_error.inc(),
            500.. => self.server_error.inc(),
        };
    }
}

/// Every metric. All count from 0 at the start of the process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Under names that all programs share.
    of_process: Registry,
    process: Process,
    requests: Family<[Label; 3], Counter>,
    state: StateGauges,
    /// Open connections of clients.
    pub connections: Gauge,
    /// Those that were refused because there were too many.
    pub connections_refused: Counter,
    pub verifications: Verifications,
    /// How long they took to be decided.
    pub verification_durations: Durations,
    pub ratelimit_checks: RatelimitChecks,
    pub ratelimit_durations: Durations,
    pub cache_loads: CacheLoads,
    /// How long a change stood in the change log before this replica read it there.
    pub change_delay: Durations,
    pub degraded_answers: DegradedAnswers,
    pub events: Events,
    /// Costs that were admitted without the counters and never consumed in them.
    pub local_costs_dropped: Counter,
    /// Calls to the counters that replicas share.
    pub redis_calls: Counter,
    /// Those that failed, or were not answered in time.
    pub counters_failures: Counter,
    /// Blocks of credits that were debited from the bank.
    pub credits_withdrawals: Counter,
    /// Credits that went back to the bank unspent.
    pub credits_returned: Counter,
    /// Credits that no key can spend, of all replicas; as far as has been found out lately.
    pub credits_withheld: Gauge,
}

/// How a server stands when it is asked.
#[derive(Debug, Clone, Copy, Default)]
pub struct ServerStatus {
    pub database_is_reachable: bool,
    pub counters_are_reachable: bool,
    /// For how long it has not been proven that no change was missed.
    pub silence: Duration,
    /// Events that wait to be written.
    pub events_waiting: usize,
    /// Connections to the database that are in use, and those that are not.
    pub connections_used: u32,
    pub connections_idle: u32,
}

/// What of [`State`] is told.
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
            gauge(registry, "database_reachable", "1 while the database answers"),
            gauge(registry, "counters_reachable", "1 while the counters answer"),
        );
        let help = "For how long it has not been proven that no change was missed";
        registry.register("changes_silence_seconds", help, silence_seconds.clone());
        let connections = Family::<[Label; 1], Gauge>::default();
        let help = "Connections to the database, by whether they are in use";
        registry.register("database_connections", help, connections.clone());
        Self {
            database_reachable,
            counters_reachable,
            silence_seconds,
            events_waiting: gauge(registry, "events_waiting", "Events that wait to be written"),
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
    fn default() -> Self {
        let mut registry = Registry::with_prefix("keyward");
        let all = &mut registry;
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        all.register("build", "The version that runs; always 1", version);
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
            connections: gauge(all, "connections", "Open connections of clients"),
            connections_refused: counter(
                all,
                "connections_refused",
                "Connections refused because there were too many",
            ),
            verifications: Verifications::of(
                &family(all, "verifications", "Verifications answered, by code"),
                |code| [code],
            ),
            verification_durations: durations(
                all,
                "verification_duration_seconds",
                "How long verifications took to be decided",
            ),
            ratelimit_durations: durations(
                all,
                "ratelimit_check_duration_seconds",
                "How long checks of the standalone limiter took to be decided",
            ),
            cache_loads: CacheLoads::of(
                &family(all, "cache_loads", "Rows read because no cache had them, by cache"),
                |cache| [cache],
            ),
            change_delay: durations(
                all,
                "change_delay_seconds",
                "How long changes stood in the change log before they were read",
            ),
            ratelimit_checks: RatelimitChecks::of(
                &family(all, "ratelimit_checks", "Checks of the standalone limiter"),
                |passed| [passed],
            ),
            degraded_answers: DegradedAnswers::of(
                &family(all, "degraded_answers", "Answers without the counters, by policy"),
                |policy| [policy],
            ),
            events: Events::new(all),
            local_costs_dropped: counter(all, "local_costs_dropped", "Costs never sent to Redis"),
            redis_calls: counter(all, "counters_calls", "Calls to Redis for counters"),
            counters_failures: counter(
                all,
                "counters_failures",
                "Calls to Redis that failed or were late",
            ),
            credits_withdrawals: counter(
                all,
                "credits_withdrawals",
                "Blocks of credits debited from the bank",
            ),
            credits_returned: counter(all, "credits_returned", "Credits given back to the bank"),
            credits_withheld: gauge(all, "credits_withheld", "Credits that no key can spend"),
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
    /// The handles of an operation of a version; `other` stands for every path that is none.
    pub fn requests(&self, version: &'static str, operation: &'static str) -> Requests {
        let labels = |status| [("version", version), ("operation", operation), status];
        Requests::of(&self.requests, labels)
    }

    /// All of them in the text format that Prometheus reads (`OpenMetrics` 1.0).
    pub fn text(&self, state: &ServerStatus) -> String {
        self.state.set(state);
        self.process.refresh();
        let mut text = String::new();
        encode_registry(&mut text, &self.registry)
            .and_then(|()| encode_registry(&mut text, &self.of_process))
            .and_then(|()| encode_eof(&mut text))
            .expect("a text takes whatever is written into it");
        text
    }
}
