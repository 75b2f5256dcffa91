//! What is counted for whoever watches the servers: the one place where each metric has its name, its
//! unit and its help.
//!
//! A handle is an atomic number that is found once, when the server is put together, so that counting
//! is one addition. Labels come from closed sets; no text of a caller is ever one.

use prometheus_client::encoding::text::encode;
pub use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

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
}

impl Events {
    fn new(registry: &mut Registry) -> Self {
        let written = family(registry, "events_written", "Events written, by kind");
        let dropped =
            family(registry, "events_dropped", "Events lost because too many waited, by kind");
        let of = |kind| {
            let of = |family: &Family<[Label; 1], Counter>| {
                family.get_or_create_owned(&[("kind", kind)])
            };
            EventCounts { written: of(&written), dropped: of(&dropped) }
        };
        Self { verifications: of("verification"), ratelimits: of("ratelimit") }
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
    requests: Family<[Label; 3], Counter>,
    database_reachable: Gauge,
    counters_reachable: Gauge,
    pub verifications: Verifications,
    pub ratelimit_checks: RatelimitChecks,
    pub degraded_answers: DegradedAnswers,
    pub events: Events,
    /// Calls to the counters that replicas share.
    pub counters_calls: Counter,
    /// Those that failed, or were not answered in time.
    pub counters_failures: Counter,
    /// Blocks of credits that were debited from the bank.
    pub credits_withdrawals: Counter,
    /// Credits that went back to the bank unspent.
    pub credits_returned: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("keyward");
        let all = &mut registry;
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        all.register("build", "The version that runs; always 1", version);
        Self {
            requests: family(
                all,
                "requests",
                "Requests answered, by version, operation and status class",
            ),
            database_reachable: gauge(all, "database_reachable", "1 while the database answers"),
            counters_reachable: gauge(all, "counters_reachable", "1 while the counters answer"),
            verifications: Verifications::of(
                &family(all, "verifications", "Verifications answered, by code"),
                |code| [code],
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
            counters_calls: counter(all, "counters_calls", "Calls to Redis for counters"),
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
    pub fn text(&self, database_is_reachable: bool, counters_are_reachable: bool) -> String {
        self.database_reachable.set(database_is_reachable.into());
        self.counters_reachable.set(counters_are_reachable.into());
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a text takes whatever is written into it");
        text
    }
}
