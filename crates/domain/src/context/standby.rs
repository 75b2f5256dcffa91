//! Reads uncached rows from a read replica of Postgres, a hot standby, as long as that is correct and fast.
//!
//! A row is dated by the heartbeat that the standby had ([`Heartbeats`]), and used if it is fresh at that date. All else
//! is read from the primary: an absent row, which may have been created a moment ago; a key with credits, because leases
//! and registrations change without a change in the log; and everything while the standby fails or lags.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use foundation::clock::Monotonic;
use foundation::error::Result;
use parking_lot::Mutex;
use store::cache::Cached;
use store::freshness::ReadVersion;
use store::{Reader, Standby, StandbyRow, with_timeout};

use super::Context;
use super::heartbeats::STANDBY_DELAY_MAX;

/// How long a request waits for the standby, which is near and replies within milliseconds. A primary that is far
/// enough away for a standby to pay takes about as long, so a request at most takes twice the time when the standby
/// fails. Once it has, requests skip it until a probe succeeds.
pub const STANDBY_READ_TIMEOUT: Duration = Duration::from_millis(100);
/// The time that a probe may take, which includes a new connection.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// The standby, and whether requests use it. Only probes, which run beside the requests, put it to use.
#[derive(Debug)]
pub struct StandbySource {
    standby: Standby,
    is_in_use: AtomicBool,
    /// The number of the last heartbeat of this replica that a probe found; 0 before the first.
    last_heartbeat: AtomicI64,
    /// The outcome of the last probe; `None` before the first that says anything.
    last_state: Mutex<Option<ProbeState>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProbeState {
    InUse,
    Lagging,
    Failed,
}

impl StandbySource {
    /// Opens no connection yet.
    pub fn new(url: &str, connections_max: u32) -> Result<Self> {
        Ok(Self {
            standby: Standby::new(url, connections_max)?,
            is_in_use: AtomicBool::new(false),
            last_heartbeat: AtomicI64::new(0),
            last_state: Mutex::new(None),
        })
    }

    /// Closes every connection.
    pub async fn close(&self) {
        self.standby.close().await;
    }

    /// Records a state. Returns whether the last one was another.
    fn replace_state(&self, state: ProbeState) -> bool {
        self.is_in_use.store(state == ProbeState::InUse, Ordering::Relaxed);
        self.last_state.lock().replace(state) != Some(state)
    }
}

impl Context {
    /// Reads a row from the standby. `None` if there is no standby, or the row must be read from the primary. `query`
    /// receives a connection and the ID of this replica. `to_cached` receives the row and the version that dates it; it
    /// returns `None` for a key with credits.
    pub async fn load_from_standby<'a, T, U, F>(
        &'a self,
        query: impl FnOnce(Reader, &'a str) -> F,
        to_cached: impl FnOnce(T, ReadVersion) -> Option<Cached<U>>,
    ) -> Option<Cached<U>>
    where
        F: Future<Output = Result<Option<StandbyRow<T>>>>,
    {
        let source = self.standby.as_ref()?;
        let loads = &self.metrics.read_replica.loads;
        if !source.is_in_use.load(Ordering::Relaxed) {
            loads.skipped.inc();
            return None;
        }
        let read = async { query(source.standby.read().await?, &self.replica_id).await };
        let row = match with_timeout(STANDBY_READ_TIMEOUT, read).await {
            Ok(Some(row)) => row,
            Ok(None) => {
                loads.absent.inc();
                return None;
            }
            Err(e) => {
                source.is_in_use.store(false, Ordering::Relaxed);
                tracing::debug!(error = %e, "failed to read from the read replica: {e}");
                loads.failed.inc();
                return None;
            }
        };
        let Some(version) = self.date_standby_row(row.heartbeat) else {
            source.is_in_use.store(false, Ordering::Relaxed);
            loads.lagging.inc();
            return None;
        };
        let Some(cached) = to_cached(row.value, version) else {
            loads.metered.inc();
            return None;
        };
        if !cached.is_fresh(&self.freshness, Monotonic::now()) {
            loads.stale.inc();
            return None;
        }
        loads.served.inc();
        Some(cached)
    }

    fn date_standby_row(&self, heartbeat: Option<i64>) -> Option<ReadVersion> {
        self.heartbeats.lock().date_row(heartbeat, &self.freshness, Monotonic::now())
    }

    /// Checks whether the standby replies and how far it lags, and decides whether requests use it.
    pub async fn probe_standby(&self) {
        let Some(source) = &self.standby else { return };
        let read = async { source.standby.read().await?.find_heartbeat(&self.replica_id).await };
        match with_timeout(PROBE_TIMEOUT, read).await {
            Ok(heartbeat) => self.record_position(source, heartbeat, Monotonic::now()),
            Err(e) => {
                if e.is_database_timeout() {
                    source.standby.reconnect();
                }
                if source.replace_state(ProbeState::Failed) {
                    tracing::warn!(error = %e, "stopped using the read replica: {e}");
                }
            }
        }
        let number = source.last_heartbeat.load(Ordering::Relaxed);
        let lag = self.heartbeats.lock().find_age(number, Monotonic::now());
        self.metrics.read_replica.lag_seconds.set(lag.as_secs_f64());
    }

    fn record_position(&self, source: &StandbySource, heartbeat: Option<i64>, now: Monotonic) {
        let number = heartbeat.unwrap_or(0);
        source.last_heartbeat.store(number, Ordering::Relaxed);
        let delay = self.heartbeats.lock().find_delay(number, now);
        if self.date_standby_row(heartbeat).is_some() {
            if source.replace_state(ProbeState::InUse) {
                tracing::info!("started to use the read replica");
            }
        } else if delay > STANDBY_DELAY_MAX {
            if source.replace_state(ProbeState::Lagging) {
                let seconds = delay.as_secs();
                tracing::warn!("stopped using the read replica: it is {seconds} s behind");
            }
        } else {
            // It has no heartbeat of this process yet, which has just started.
            source.is_in_use.store(false, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use foundation::clock::Clock;
    use foundation::config::Config;

    use super::*;

    /// Creates a context of a replica whose servers do not exist.
    fn create_context() -> Context {
        let mut settings = Config::default().validate().expect("valid settings");
        settings.cache_bytes_max = 1 << 20;
        settings.database_read_url = Some("postgres://127.0.0.1:1/none".into());
        Context::new(settings, Clock::System).expect("a context").0
    }

    /// Records a heartbeat whose read version is of this time.
    fn beat(context: &Context, at: Monotonic) -> i64 {
        let mut heartbeats = context.heartbeats.lock();
        let number = heartbeats.begin();
        heartbeats.record_version(number, context.freshness.read_version(at));
        heartbeats.record_commit(number);
        number
    }

    fn state(source: &StandbySource) -> (bool, Option<ProbeState>) {
        (source.is_in_use.load(Ordering::Relaxed), *source.last_state.lock())
    }

    #[tokio::test]
    async fn state_is_reported_when_it_is_another_than_before() {
        let context = create_context();
        let source = context.standby.as_ref().expect("a standby");
        let states = [
            (ProbeState::Lagging, true),
            (ProbeState::Lagging, false),
            (ProbeState::InUse, true),
            (ProbeState::InUse, false),
            (ProbeState::Failed, true),
            (ProbeState::InUse, true),
        ];

        for (next, is_another) in states {
            assert_eq!(source.replace_state(next), is_another, "{next:?}");
            assert_eq!(state(source), (next == ProbeState::InUse, Some(next)));
        }
    }

    #[tokio::test]
    async fn standby_is_in_use_while_it_has_a_heartbeat_and_lags_by_two_seconds_at_most() {
        let context = create_context();
        let source = context.standby.as_ref().expect("a standby");
        let after = |ms: u64| Monotonic::from_ms(1_000_000 + ms);
        let record =
            |heartbeat| context.record_position(source, heartbeat, Monotonic::from_ms(2_000_000));
        let first = beat(&context, after(0));
        record(Some(first));
        assert_eq!(state(source), (true, Some(ProbeState::InUse)));

        beat(&context, after(2_000));
        record(None);
        assert_eq!(state(source), (false, Some(ProbeState::InUse)), "it has none yet");
        record(Some(first));
        assert_eq!(state(source), (true, Some(ProbeState::InUse)));
        assert_eq!(source.last_heartbeat.load(Ordering::Relaxed), first);
        beat(&context, after(2_001));
        record(None);
        assert_eq!(state(source), (false, Some(ProbeState::Lagging)));
        assert_eq!(source.last_heartbeat.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn standby_is_not_used_when_a_probe_fails() {
        let context = create_context();
        let source = context.standby.as_ref().expect("a standby");
        source.replace_state(ProbeState::InUse);

        source.close().await;
        context.probe_standby().await;

        assert_eq!(state(source), (false, Some(ProbeState::Failed)));
    }
}
