//! Runs the scripts in Redis: batches of consume requests, requests whose reply comes late, charges, and probes.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use foundation::clock::{Monotonic, Stopwatch, Timestamp};
use foundation::error::{Error, Result};
use foundation::metrics::Counter;
use futures_util::future::join_all;
use redis::Cmd;
use tokio::task::JoinHandle;

use super::super::{ConsumeReply, ConsumeRequest, WindowCount};
use super::batch;
use super::breaker::Breaker;
use super::budget::{self, Deadlines as _};
use super::connections::{RedisConnections, RetryPolicy, Script};
use super::errors::timeout_error;
use super::outage::{self, Charge, OutageWindows};
use super::queue::{self, Callers, ConsumeBatch, QueueWorker};
use super::server_clock::RedisTime;

/// How long a probe of a near Redis waits for its reply, and the pause before the next one after a failure.
const PROBE_TIMEOUT: Duration = Duration::from_millis(100);
const PROBE_PAUSE: Duration = Duration::from_millis(50);
/// How long a reply is awaited after all callers have timed out.
const LATE_REPLY_MAX: Duration = Duration::from_secs(2);
/// How long the circuit breaker stays open after a successful probe so that what was admitted is charged first.
const CHARGE_FIRST_MAX: Duration = Duration::from_millis(200);
/// The maximum number of keys of a script while Redis is far away: they take it about a millisecond.
pub const FAR_KEYS_MAX: usize = 256;
/// For each millisecond of distance, a script may have this many keys.
const KEYS_PER_MS: usize = 4;
/// The maximum number of windows that one script charges.
const WINDOWS_PER_CHARGE_MAX: usize = 64;

/// The state that the workers share.
pub struct ScriptRunner {
    pub connections: RedisConnections,
    pub consume_script: Script,
    pub charge_script: Script,
    /// The name that probes write to.
    pub probe_key: String,
    pub breaker: Breaker,
    pub redis_time: RedisTime,
    pub outage_windows: OutageWindows,
    pub call_counter: Counter,
    pub failure_counter: Counter,
}

/// Runs batches in a task of its own.
pub fn spawn_worker(runner: &Arc<ScriptRunner>, worker: QueueWorker) {
    tokio::spawn(run_batches(runner.clone(), worker));
}

/// Runs batches until there are none.
async fn run_batches(runner: Arc<ScriptRunner>, mut worker: QueueWorker) {
    while let Some(ConsumeBatch { requests, now, send_before, mut callers }) =
        worker.next_batch(runner.keys_max(), runner.connections.timeout(), Monotonic::now())
    {
        let outcome = loop {
            if !callers.expire() {
                break Err(runner.connections.timeout_error());
            }
            let left_ms = callers.longest_time_left_ms();
            let mut running = pin!(runner.run_consume_script(&requests, now, left_ms, send_before));
            match budget::wait(running.as_mut(), &mut callers).await {
                // The script did nothing, so it may be sent again for callers that still wait.
                Some(Err(Error::RedisDeadlinePassed)) => callers.observe(Monotonic::now()),
                Some(outcome) => break outcome,
                None => {
                    let timed_out = Err::<(), _>(runner.connections.timeout_error());
                    runner.count_outcome(&timed_out);
                    runner.connections.discard_connection();
                    spawn_worker(&runner, worker);
                    return reconcile_late_reply(&runner, &requests, callers, running).await;
                }
            }
        };
        runner.count_outcome(&outcome);
        runner.send_replies(&requests, callers, outcome);
    }
}

/// Continues to wait for a reply, so that what it consumed and what was admitted in the meantime count once.
async fn reconcile_late_reply(
    runner: &Arc<ScriptRunner>,
    requests: &[ConsumeRequest],
    callers: Callers,
    running: Pin<&mut impl Future<Output = Result<Vec<ConsumeReply>>>>,
) {
    // A lost reply counts as one that consumed nothing: that withholds too much, and never admits too much.
    let watch = Stopwatch::new();
    let executed = tokio::time::timeout(LATE_REPLY_MAX, running).await.ok().and_then(Result::ok);
    tracing::debug!(
        executed = executed.is_some(),
        "received a reply {} ms after its callers timed out",
        watch.elapsed_ms()
    );
    for (index, decision) in callers.unresolved {
        if let Ok(admitted) = decision.await {
            let executed = executed.as_ref().and_then(|all| all.get(index));
            runner.outage_windows.reconcile(&requests[index], executed, admitted);
        }
    }
    runner.send_due_charges();
}

impl ScriptRunner {
    /// Returns the distance of Redis in whole milliseconds; 0 if it is unknown.
    pub fn round_trip_ms(&self) -> usize {
        let round_trip = self.connections.distance().round_trip();
        round_trip.map_or(0, |it| usize::try_from(it.as_millis()).unwrap_or(usize::MAX))
    }

    /// Returns the maximum number of keys of a script. The farther Redis is, the more requests wait for the next one.
    fn keys_max(&self) -> usize {
        let needed = self.round_trip_ms().saturating_mul(KEYS_PER_MS);
        needed.clamp(queue::KEYS_MAX, FAR_KEYS_MAX)
    }

    /// Replies to the callers that still wait, and reconciles the requests that were decided elsewhere.
    fn send_replies(
        self: &Arc<Self>,
        requests: &[ConsumeRequest],
        mut callers: Callers,
        outcome: Result<Vec<ConsumeReply>>,
    ) {
        let outcome = outcome.map_err(Arc::new);
        callers.send_replies(|index| match &outcome {
            Ok(all) => Ok(all[index].clone()),
            Err(cause) => Err(Error::Shared(cause.clone()).into()),
        });
        for (index, decision) in callers.unresolved {
            let (runner, request) = (self.clone(), requests[index].clone());
            let executed = outcome.as_ref().ok().and_then(|all| all.get(index)).cloned();
            tokio::spawn(async move {
                if let Ok(admitted) = decision.await {
                    runner.outage_windows.reconcile(&request, executed.as_ref(), admitted);
                    runner.send_due_charges();
                }
            });
        }
        if outcome.is_ok() {
            self.send_due_charges();
        }
    }

    /// Sends due charges to Redis, in one task at a time, which the caller may wait for. While the circuit breaker is open,
    /// they wait for the probe.
    pub fn send_due_charges(self: &Arc<Self>) -> Option<JoinHandle<()>> {
        let is_due = self.outage_windows.is_charge_due() && !self.breaker.is_open();
        let runner = is_due.then(|| self.clone())?;
        Some(tokio::spawn(async move { runner.send_charges().await }))
    }

    /// Sends charges until none is left. A charge whose reply is lost cannot be sent again, so none is sent before Redis has
    /// replied to a probe: they stay due.
    async fn send_charges(&self) {
        let Some(charging) = self.outage_windows.try_start_charging() else { return };
        if !self.is_writable().await {
            return self.connections.discard_connection();
        }
        loop {
            let charges = charging.take_next(WINDOWS_PER_CHARGE_MAX);
            if charges.is_empty() {
                return;
            }
            // In a cluster a script accesses one slot only.
            let together = if self.connections.is_cluster() { 1 } else { WINDOWS_PER_CHARGE_MAX };
            let calls = charges.chunks(together).map(|chunk| self.send_charge_batch(chunk));
            let outcomes = join_all(calls).await;
            let mut rejected = Vec::new();
            for (charges, outcome) in charges.chunks(together).zip(outcomes) {
                match outcome {
                    Ok(counts) => self.outage_windows.record_charged(charges, &counts),
                    // The server rejected the script, so nothing was consumed.
                    Err(Error::Redis(e)) if e.code().is_some() => {
                        rejected.extend_from_slice(charges);
                    }
                    Err(cause) => {
                        tracing::warn!(error = %cause, "failed to charge {} windows", charges.len());
                        self.outage_windows.record_dropped_charges(charges);
                    }
                }
            }
            if !rejected.is_empty() {
                return self.outage_windows.add_charges(rejected);
            }
        }
    }

    async fn send_charge_batch(&self, charges: &[Charge]) -> Result<Vec<WindowCount>> {
        let arguments = |command: &mut Cmd| outage::encode_charges(command, charges, None);
        let charging = self.connections.run_script_without_timeout::<Vec<u8>>(
            &self.charge_script,
            RetryPolicy::Never,
            arguments,
        );
        let reply = tokio::time::timeout(LATE_REPLY_MAX, charging).await;
        let reply = reply.unwrap_or_else(|_| Err(self.connections.timeout_error()))?;
        batch::decode_window_counts(&reply, charges.len())
            .ok_or_else(|| Error::Internal("the reply of the Redis script is too short".into()))
    }

    async fn run_consume_script(
        &self,
        requests: &[ConsumeRequest],
        now: Option<Timestamp>,
        left_ms: i64,
        send_before: Monotonic,
    ) -> Result<Vec<ConsumeReply>> {
        if self.breaker.is_open() {
            return Err(Error::RedisBreakerOpen);
        }
        let retry_policy = RetryPolicy::for_consume(requests);
        let sent_at = Monotonic::now();
        let Some(valid_ms) = validity_ms(requests, left_ms, sent_at, send_before) else {
            return Err(self.connections.timeout_error());
        };
        // The clocks of a cluster's masters differ, so no deadline is right for all.
        let deadline = match now {
            None if !self.connections.is_cluster() => {
                self.redis_time.deadline_after_ms(valid_ms, sent_at)
            }
            None | Some(_) => None,
        };
        let arguments = |command: &mut Cmd| batch::encode_batch(command, requests, now, deadline);
        let reply: Vec<u8> = self
            .connections
            .run_script_without_timeout(&self.consume_script, retry_policy, arguments)
            .await?;
        let batch_reply = batch::decode_reply(requests, &reply)
            .ok_or_else(|| Error::Internal("the reply of the Redis script is too short".into()))?;
        let Some(replies) = batch_reply.replies else {
            self.redis_time.reset(batch_reply.redis_time, Monotonic::now());
            return Err(Error::RedisDeadlinePassed);
        };
        self.redis_time.record_reply(batch_reply.redis_time, Monotonic::now());
        requests
            .iter()
            .zip(&replies)
            .for_each(|(request, reply)| self.outage_windows.record_reply(request, reply));
        Ok(replies)
    }

    pub async fn ping(&self) -> Result<()> {
        self.connections.send::<String>(&redis::cmd("PING"), RetryPolicy::Once).await.map(drop)
    }

    /// Marks Redis as that of a region unless it is marked. Returns the region that it was marked with before.
    pub async fn mark_region(&self, key: &str, region: &str) -> Result<Option<String>> {
        let mut command = redis::cmd("SET");
        command.arg(key).arg(region).arg("NX").arg("GET");
        self.connections.send(&command, RetryPolicy::Once).await
    }

    /// Returns the region that Redis is marked with.
    pub async fn load_region(&self, key: &str) -> Result<Option<String>> {
        self.connections.send(redis::cmd("GET").arg(key), RetryPolicy::Once).await
    }

    /// Connects and waits for a reply for at most this time.
    pub async fn connect(&self, within: Duration) -> Result<()> {
        let ping = redis::cmd("PING");
        let pinging = self.connections.send_without_timeout::<String>(&ping, RetryPolicy::Once);
        let reply = budget::wait_with_timeout(within, pinging).await;
        reply.unwrap_or_else(|| Err(timeout_error(within))).map(drop)
    }

    /// Returns whether Redis accepts writes. A read-only replica would reply to a ping too.
    async fn is_writable(&self) -> bool {
        let mut command = redis::cmd("SET");
        command.arg(&self.probe_key).arg("").arg("PX").arg(1_000);
        let probing = self.connections.send_without_timeout::<String>(&command, RetryPolicy::Once);
        let timeout = self.connections.distance().call_timeout(PROBE_TIMEOUT);
        matches!(budget::wait_with_timeout(timeout, probing).await, Some(Ok(_)))
    }

    /// Awaits a call and reports its outcome to the circuit breaker. Returns the outcome.
    pub async fn record_outcome<T>(
        self: &Arc<Self>,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let outcome = call.await;
        self.count_outcome(&outcome);
        outcome
    }

    fn count_outcome<T>(self: &Arc<Self>, outcome: &Result<T>) {
        self.call_counter.inc();
        match outcome {
            Ok(_) => self.breaker.record_success(Monotonic::now()),
            Err(Error::RedisBreakerOpen) => {}
            Err(cause) => {
                self.failure_counter.inc();
                if self.breaker.record_failure(Monotonic::now()) {
                    tracing::warn!(error = %cause, "opened the Redis circuit breaker: {cause}");
                    tokio::spawn(probe_until_redis_replies(self.clone()));
                }
            }
        }
    }
}

/// Returns for how long Redis may execute requests that are sent now, in milliseconds, when the last of their callers waits
/// for another `left_ms`. `None`: they are too old to be sent.
fn validity_ms(
    requests: &[ConsumeRequest],
    left_ms: i64,
    sent_at: Monotonic,
    send_before: Monotonic,
) -> Option<i64> {
    if sent_at >= send_before {
        return None;
    }
    // Windows that lose a cost to a late reply are reconciled. A lease is not.
    let is_spent = requests.iter().any(|request| request.spend.is_some());
    let grace = if is_spent { Duration::ZERO } else { LATE_REPLY_MAX };
    let grace_ms = i64::try_from(grace.as_millis()).unwrap_or(0);
    Some((left_ms + grace_ms).min(send_before.as_ms() - sent_at.as_ms()))
}

/// Probes Redis until it replies, then sends due charges before any other request, and closes the circuit breaker.
async fn probe_until_redis_replies(runner: Arc<ScriptRunner>) {
    while !runner.is_writable().await {
        runner.connections.discard_connection();
        tokio::time::sleep(PROBE_PAUSE).await;
    }
    let charging = tokio::spawn({
        let runner = runner.clone();
        async move { runner.send_charges().await }
    });
    let _ = tokio::time::timeout(CHARGE_FIRST_MAX, charging).await;
    runner.breaker.close();
    tracing::info!("closed the Redis circuit breaker");
}

#[cfg(test)]
mod tests;
