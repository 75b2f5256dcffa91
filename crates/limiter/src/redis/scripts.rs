//! Calls to Redis: batches of takes, what becomes of those whose reply comes late, charges, and probes.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use foundation::clock::{Stopwatch, Timestamp};
use foundation::error::{Error, Result};
use foundation::metrics::Counter;
use futures_util::future::join_all;
use redis::Cmd;

use super::super::{ConsumeReply, ConsumeRequest, WindowCount};
use super::batch;
use super::breaker::Breaker;
use super::budget::{self, Deadlines as _};
use super::connections::{RedisConnections, RetryPolicy, Script};
use super::outage::{self, Charge, OutageWindows};
use super::queue::{Batch, Callers, Worker};
use super::server_clock::RedisTime;

/// How long a probe waits for its reply, and how long the next one waits after a failure.
const PROBE_TIMEOUT: Duration = Duration::from_millis(100);
const PROBE_PAUSE: Duration = Duration::from_millis(50);
/// How long a reply is awaited after all callers were sent away.
const LATE_MAX: Duration = Duration::from_secs(2);
/// For how long an outage goes on so that what was admitted in it is charged first.
const CHARGE_FIRST_MAX: Duration = Duration::from_millis(200);
/// How many windows are charged by one script.
const CHARGED_TOGETHER: usize = 64;

/// What the workers need.
pub struct ScriptRunner {
    pub lanes: RedisConnections,
    pub take: Script,
    pub charge: Script,
    /// A name that probes write to.
    pub probed: String,
    pub breaker: Breaker,
    pub time: RedisTime,
    pub outage: OutageWindows,
    pub asked: Counter,
    pub failed: Counter,
}

/// Runs batches in a task of its own.
pub fn spawn_worker(calls: &Arc<ScriptRunner>, worker: Worker) {
    tokio::spawn(work(calls.clone(), worker));
}

/// Runs batches until there is none.
async fn work(calls: Arc<ScriptRunner>, mut worker: Worker) {
    while let Some(Batch { takes, now, mut callers }) = worker.next_batch() {
        let outcome = loop {
            if !callers.expire() {
                break Err(calls.lanes.timed_out());
            }
            let mut running = pin!(calls.run(&takes, now, callers.longest_left_ms()));
            match budget::wait(running.as_mut(), &mut callers).await {
                // It has done nothing, so it may be sent again to those who still wait.
                Some(Err(Error::CountersLate)) => callers.observe(),
                Some(outcome) => break outcome,
                None => {
                    let timed_out = Err::<(), _>(calls.lanes.timed_out());
                    calls.count_outcome(&timed_out);
                    calls.lanes.discard_connection();
                    spawn_worker(&calls, worker);
                    return settle_late(&calls, &takes, callers, running).await;
                }
            }
        };
        calls.count_outcome(&outcome);
        calls.answer(&takes, callers, outcome);
    }
}

/// Goes on waiting for a reply, so that what it consumed and what was admitted meanwhile count once.
async fn settle_late(
    calls: &Arc<ScriptRunner>,
    takes: &[ConsumeRequest],
    callers: Callers,
    running: Pin<&mut impl Future<Output = Result<Vec<ConsumeReply>>>>,
) {
    // A reply that is lost counts as one that consumed nothing: too much is held back then, and never too much let
    // through.
    let watch = Stopwatch::new();
    let executed = tokio::time::timeout(LATE_MAX, running).await.ok().and_then(Result::ok);
    tracing::debug!(
        executed = executed.is_some(),
        "a reply came {} ms after its callers were sent away",
        watch.elapsed_ms()
    );
    for (place, decided) in callers.unsettled {
        if let Ok(admitted) = decided.await {
            let executed = executed.as_ref().and_then(|all| all.get(place));
            calls.outage.settle(&takes[place], executed, admitted);
        }
    }
    if !calls.breaker.is_open() {
        calls.charge_due();
    }
}

impl ScriptRunner {
    /// Answers those who still wait, and settles what others have decided meanwhile.
    fn answer(
        self: &Arc<Self>,
        takes: &[ConsumeRequest],
        mut callers: Callers,
        outcome: Result<Vec<ConsumeReply>>,
    ) {
        let outcome = outcome.map_err(Arc::new);
        callers.answer(|place| match &outcome {
            Ok(all) => Ok(all[place].clone()),
            Err(cause) => Err(Error::Shared(cause.clone()).into()),
        });
        for (place, decided) in callers.unsettled {
            let (calls, take) = (self.clone(), takes[place].clone());
            let executed = outcome.as_ref().ok().and_then(|all| all.get(place)).cloned();
            tokio::spawn(async move {
                if let Ok(admitted) = decided.await {
                    calls.outage.settle(&take, executed.as_ref(), admitted);
                    calls.charge_due();
                }
            });
        }
        if outcome.is_ok() {
            self.charge_due();
        }
    }

    /// Has what is due consumed in Redis, by one task at a time.
    pub fn charge_due(self: &Arc<Self>) {
        if self.outage.is_charge_due() {
            let calls = self.clone();
            tokio::spawn(async move { calls.charge().await });
        }
    }

    async fn charge(&self) {
        let Some(charging) = self.outage.start_charging() else { return };
        loop {
            let charges = charging.next(CHARGED_TOGETHER);
            if charges.is_empty() {
                return;
            }
            // In a cluster a script touches one slot only.
            let together = if self.lanes.is_cluster() { 1 } else { CHARGED_TOGETHER };
            let sent = charges.chunks(together).map(|part| self.charge_now(part));
            let outcomes = join_all(sent).await;
            let mut refused = Vec::new();
            for (charges, outcome) in charges.chunks(together).zip(outcomes) {
                match outcome {
                    Ok(counted) => self.outage.charged(charges, &counted),
                    // The server has refused it, so nothing was consumed.
                    Err(Error::Counters(e)) if e.code().is_some() => {
                        refused.extend_from_slice(charges);
                    }
                    Err(cause) => {
                        tracing::warn!(error = %cause, "failed to charge {} windows", charges.len());
                        self.outage.drop_charges(charges);
                    }
                }
            }
            if !refused.is_empty() {
                return self.outage.add(refused);
            }
        }
    }

    async fn charge_now(&self, charges: &[Charge]) -> Result<Vec<WindowCount>> {
        let arguments = |command: &mut Cmd| outage::write(command, charges, None);
        let charging =
            self.lanes.run_to_end::<Vec<u8>>(&self.charge, RetryPolicy::Never, arguments);
        let reply = tokio::time::timeout(LATE_MAX, charging).await;
        let reply = reply.unwrap_or_else(|_| Err(self.lanes.timed_out()))?;
        batch::read_counted(&reply, charges.len())
            .ok_or_else(|| Error::Internal("the script's reply is too short".into()))
    }

    async fn run(
        &self,
        takes: &[ConsumeRequest],
        now: Option<Timestamp>,
        left_ms: i64,
    ) -> Result<Vec<ConsumeReply>> {
        if self.breaker.is_open() {
            return Err(Error::CountersAway);
        }
        // What is put into a purse twice is given twice.
        let again = if takes.iter().any(ConsumeRequest::fills) {
            RetryPolicy::Never
        } else {
            RetryPolicy::Once
        };
        // What windows lose to a late reply is settled. What a purse loses is not.
        let is_spent = takes.iter().any(|take| take.spend.is_some());
        let beyond = if is_spent { Duration::ZERO } else { LATE_MAX };
        let beyond_ms = i64::try_from(beyond.as_millis()).unwrap_or(0);
        // The clocks of a cluster's masters differ, so there is no deadline that is right for all.
        let deadline = match now {
            None if !self.lanes.is_cluster() => self.time.deadline_after_ms(left_ms + beyond_ms),
            None | Some(_) => None,
        };
        let arguments = |command: &mut Cmd| batch::encode_batch(command, takes, now, deadline);
        let reply: Vec<u8> = self.lanes.run_to_end(&self.take, again, arguments).await?;
        let answer = batch::decode_reply(takes, &reply)
            .ok_or_else(|| Error::Internal("the script's reply is too short".into()))?;
        let Some(taken) = answer.taken else {
            self.time.reset(answer.at);
            return Err(Error::CountersLate);
        };
        self.time.record_reply(answer.at);
        takes.iter().zip(&taken).for_each(|(take, taken)| self.outage.record(take, taken));
        Ok(taken)
    }

    pub async fn ping(&self) -> Result<()> {
        self.lanes.send::<String>(&redis::cmd("PING"), RetryPolicy::Once).await.map(drop)
    }

    /// Whether Redis can be written: a replica answers a ping too.
    async fn probe(&self) -> bool {
        let mut command = redis::cmd("SET");
        command.arg(&self.probed).arg("").arg("PX").arg(1_000);
        let probing = self.lanes.send_to_end::<String>(&command, RetryPolicy::Once);
        matches!(budget::within(PROBE_TIMEOUT, probing).await, Some(Ok(_)))
    }

    /// The call's outcome, which the breaker hears of too.
    pub async fn record_outcome<T>(
        self: &Arc<Self>,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let outcome = call.await;
        self.count_outcome(&outcome);
        outcome
    }

    fn count_outcome<T>(self: &Arc<Self>, outcome: &Result<T>) {
        self.asked.inc();
        match outcome {
            Ok(_) => self.breaker.answered(),
            Err(Error::CountersAway) => {}
            Err(cause) => {
                self.failed.inc();
                if self.breaker.failed() {
                    tracing::warn!(error = %cause, "Redis is given up until it answers: {cause}");
                    tokio::spawn(probe(self.clone()));
                }
            }
        }
    }
}

/// Asks until Redis answers, and charges what is due before it is asked for anything else.
async fn probe(calls: Arc<ScriptRunner>) {
    while !calls.probe().await {
        calls.lanes.discard_connection();
        tokio::time::sleep(PROBE_PAUSE).await;
    }
    let charging = tokio::spawn({
        let calls = calls.clone();
        async move { calls.charge().await }
    });
    let _ = tokio::time::timeout(CHARGE_FIRST_MAX, charging).await;
    calls.breaker.close();
    tracing::info!("Redis answers again");
}
