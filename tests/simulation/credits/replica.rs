//! A replica that verifies keys with credits: the program's own state machines, driven as `credits::metered` and
//! `credits::leases` drive them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::context::{LeaseHolder, OwnRegion};
use domain::credits::closing_steps::AccountStep;
use domain::credits::debit_batching::DebitQueues;
use domain::credits::lease_spend::LeaseRef;
use domain::credits::retries::LockRetry;
use domain::credits::top_up::{LeaseObservation, LeaseProblem, TopUpChange, TopUpResult};
use domain::credits::top_up_attempts::{AfterTopUp, Attempt, TopUpAttempts};
use domain::credits::{LeaseSpendTracker, OutdatedAccounts, TopUpLocks};
use domain::resolved_key::LeaseHint;
use foundation::error::{Error, Result};
use foundation::fault_injection::Safeguard;
use foundation::id::KeyId;
use futures_util::future::BoxFuture;
use limiter::{CloseResult, TopUp};

use super::check::{Checker, check_leased};
use super::database::{Database, DatabaseClient, Tx};
use super::debits::Debit;
use super::redis::RedisClient;
use crate::executor::{Node, Sim, lock, now};

/// How long a transaction waits for a locked account.
pub const LOCK_WAIT: Duration = Duration::from_millis(20);
/// For how long a transaction is retried while its account is locked: less than in production, because simulated processes
/// are paused only briefly.
pub const RETRY_TIMEOUT: Duration = Duration::from_secs(1);

/// A verification that costs credits.
#[derive(Debug, Clone)]
pub struct Request {
    pub number: u64,
    pub node: Node,
    pub key: KeyId,
    pub cost: i64,
}

/// The state of one process; a replica that is killed starts with a new one.
pub struct Replica {
    pub node: Node,
    /// The id of the process.
    pub id: String,
    pub sim: Sim,
    pub database: DatabaseClient,
    pub redis: RedisClient,
    pub checker: Arc<Mutex<Checker>>,
    pub is_registered: AtomicBool,
    pub lease_spend: LeaseSpendTracker,
    pub outdated_accounts: OutdatedAccounts,
    rows: Mutex<BTreeMap<KeyId, Arc<KeyRow>>>,
    top_up_locks: TopUpLocks,
    pub debit_queues: Mutex<DebitQueues<Debit>>,
}

/// What the process has read of a key.
struct KeyRow {
    last_lease_number: i64,
    lease_hint: LeaseHint,
}

/// Returns the name of a lease in Redis.
pub fn lease_name(key: &KeyId, lease_number: i64) -> String {
    format!("{}:{lease_number}", key.as_str())
}

impl Replica {
    pub fn new(id: String, database: DatabaseClient, redis: RedisClient) -> Self {
        Self {
            node: database.node,
            id,
            sim: database.network.sim.clone(),
            checker: database.checker.clone(),
            database,
            redis,
            is_registered: AtomicBool::default(),
            lease_spend: LeaseSpendTracker::default(),
            outdated_accounts: OutdatedAccounts::default(),
            rows: Mutex::default(),
            top_up_locks: TopUpLocks::default(),
            debit_queues: Mutex::default(),
        }
    }

    /// Verifies a key, and records the answer.
    pub async fn verify(self: Arc<Self>, key: KeyId, cost: i64) {
        let request = lock(&self.checker).begin_request(self.node, &key, cost);
        let result = self.consume(&request).await;
        self.sim.trace(|| format!("{} answers {request:?}: {result:?}", self.id));
        let database = lock(&self.database.database);
        lock(&self.checker).end_request(&self.sim, &database, &request, result.ok());
    }

    /// Spends the cost of a request. Returns whether there was enough.
    async fn consume(self: &Arc<Self>, request: &Request) -> Result<bool> {
        let since = now();
        if !self.is_registered.load(Ordering::Relaxed) {
            let since = self.redis.breaker.is_open().then_some(since);
            return self.debit_directly(request, since).await;
        }
        let row = self.load_row(&request.key).await?;
        match self.consume_from_lease(request, &row).await {
            Err(cause) if cause.is_redis_outage() => {
                row.lease_hint.mark_balance_stale();
                self.debit_directly(request, Some(since)).await
            }
            result => result,
        }
    }

    /// Returns the cached row of a key, which is read again now and then.
    async fn load_row(&self, key: &KeyId) -> Result<Arc<KeyRow>> {
        let cached = lock(&self.rows).get(key).cloned();
        if let Some(row) = cached.filter(|_| !self.sim.is_once_in(30)) {
            return Ok(row);
        }
        let mark_generation = self.lease_spend.mark_generation();
        let number = self.database.load_last_lease_number(key.clone(), self.id.clone());
        let row = KeyRow { last_lease_number: number.await?, lease_hint: LeaseHint::default() };
        row.lease_hint.record_read(mark_generation);
        let row = Arc::new(row);
        lock(&self.rows).insert(key.clone(), row.clone());
        Ok(row)
    }

    async fn consume_from_lease(&self, request: &Request, row: &KeyRow) -> Result<bool> {
        let lease = row.last_known_lease();
        let first = self.try_consume(request, lease, None).await?;
        let Some(problem) = find_problem(&first, request, row) else {
            return Ok(first.reply.is_admitted);
        };
        let mut top_up_lock = self.top_up_locks.for_key(&request.key);
        let has_waited = top_up_lock.wait().await?;
        let running = self.consume_with_top_ups(request, row, has_waited, (lease, first, problem));
        running.await.map_err(|cause| top_up_lock.fail(cause))
    }

    async fn consume_with_top_ups(
        &self,
        request: &Request,
        row: &KeyRow,
        has_waited: bool,
        (mut lease, mut last, mut problem): (LeaseRef, Attempt, LeaseProblem),
    ) -> Result<bool> {
        if has_waited {
            lease = row.last_known_lease();
            last = self.try_consume(request, lease, None).await?;
            match find_problem(&last, request, row) {
                Some(found) => problem = found,
                None => return Ok(last.reply.is_admitted),
            }
        }
        let mut attempts = TopUpAttempts::default();
        while !attempts.are_exhausted() {
            let observed = LeaseObservation {
                lease_number: lease.lease_number,
                redis_generation: last.lease_status.redis_generation,
                units: last.lease_status.units,
                spent: last.lease_status.spent_units,
                problem,
            };
            let mark_generation = self.lease_spend.mark_generation();
            let top_up = || -> BoxFuture<'_, _> { Box::pin(self.top_up(request, observed)) };
            let result = self.retry_while_locked(top_up).await?;
            let top_up = match attempts.apply_top_up(result) {
                AfterTopUp::ConsumeWithoutAccount => return Err(Error::StoreNotReady),
                AfterTopUp::DebitAccount { closes_lease } => {
                    return self.debit_account(request, closes_lease).await;
                }
                AfterTopUp::Consume { lease_number, top_up, pause } => {
                    lease = LeaseRef { lease_number, generation: mark_generation };
                    self.sim.sleep(pause.unwrap_or_default()).await;
                    top_up
                }
            };
            row.lease_hint.record_top_up(lease.lease_number, mark_generation, now());
            last = self.try_consume(request, lease, Some(top_up)).await?;
            match find_problem(&last, request, row) {
                Some(found) => problem = found,
                None => return Ok(last.reply.is_admitted),
            }
            let pause = attempts.record_problem(&mut problem, last.lease_status.state);
            self.sim.sleep(pause.unwrap_or_default()).await;
        }
        self.debit_account(request, true).await
    }

    async fn try_consume(
        &self,
        request: &Request,
        lease: LeaseRef,
        top_up: Option<TopUp>,
    ) -> Result<Attempt> {
        let reply = self.redis.consume(request, lease.lease_number, top_up).await?;
        let status = reply.lease.expect("the status of the lease");
        let is_trusted = status.account_balance.is_none()
            || self.lease_spend.record_spend(&request.key, lease, status.spent_units);
        Ok(Attempt::new(reply, status, top_up, is_trusted))
    }

    /// Debits a top-up from the account.
    async fn top_up(&self, request: &Request, observed: LeaseObservation) -> Result<TopUpResult> {
        let Request { key, cost, .. } = request.clone();
        let tx = self.begin_registered().await?;
        let account = tx.lock_account(&key).await?;
        let now = account.database_time;
        let replica = LeaseHolder { id: &self.id, region: OwnRegion::default() };
        let mut change = TopUpChange::new(account, observed, cost, replica, now);
        loop {
            let step = change.next_step();
            if step == AccountStep::End {
                break;
            }
            if let Some(result) = self.perform(&tx, &key, step).await? {
                change.apply_close(result);
            }
        }
        let result = change.result();
        if matches!(result, TopUpResult::Lease(_, top_up) if top_up.top_up > 0) {
            let sim = self.sim.clone();
            let check = move |database: &mut Database, _| check_leased(&sim, database, &key, cost);
            tx.write(check).await?;
        }
        if Safeguard::DebitFirst.is_disabled() {
            let sim = self.sim.clone();
            self.sim.spawn(self.node, async move {
                sim.sleep_ms(500).await;
                let _ = tx.commit().await;
            });
            return Ok(result);
        }
        tx.commit().await?;
        Ok(result)
    }

    async fn begin_registered(&self) -> Result<Tx> {
        for _ in 0..2 {
            let tx = self.database.begin_within(LOCK_WAIT).await?;
            if tx.lock_registration(self.id.clone()).await? {
                return Ok(tx);
            }
            drop(tx);
            self.database.register(self.id.clone()).await?;
        }
        Err(Error::RedisBreakerOpen)
    }

    /// Performs a step of a transaction. Returns the result of closing a lease.
    pub async fn perform(
        &self,
        tx: &Tx,
        key: &KeyId,
        step: AccountStep<'_>,
    ) -> Result<Option<CloseResult>> {
        self.sim.trace(|| format!("{} performs {step:?}", self.id));
        match step {
            AccountStep::ForfeitLeases => {
                let key = key.clone();
                tx.write(move |database, now| database.forfeit_leases(&key, now)).await?;
            }
            AccountStep::CloseLease { lease, idle } => {
                let name = lease_name(key, lease.lease_number);
                let closing = self.redis.close_lease(name, lease.redis_generation, idle);
                return closing.await.map(Some);
            }
            AccountStep::UpsertLease(lease) => tx.upsert_lease(key, lease).await?,
            AccountStep::DeleteLease(lease) => tx.delete_lease(key, lease.lease_number).await?,
            AccountStep::UpdateBalance(credits) => tx.update_balance(key, credits).await?,
            AccountStep::End => {}
        }
        Ok(None)
    }

    pub async fn retry_while_locked<'a, T>(
        &self,
        transaction: impl Fn() -> BoxFuture<'a, Result<T>>,
    ) -> Result<T> {
        let (mut retry, began_us) = (LockRetry::new(now(), RETRY_TIMEOUT), self.sim.now_us());
        loop {
            lock(&self.checker).check_retry(&self.sim, self.node, began_us);
            let result = transaction().await;
            let is_locked = matches!(result, Err(Error::DebitTimeout));
            let pause = is_locked.then(|| retry.next_pause(now())).flatten();
            let Some(pause) = pause else { return result };
            self.sim.sleep(pause).await;
        }
    }
}

impl KeyRow {
    fn last_known_lease(&self) -> LeaseRef {
        match self.lease_hint.last_lease() {
            (0, generation) => LeaseRef { lease_number: self.last_lease_number, generation },
            (lease_number, generation) => LeaseRef { lease_number, generation },
        }
    }
}

fn find_problem(attempt: &Attempt, request: &Request, row: &KeyRow) -> Option<LeaseProblem> {
    attempt.find_problem(&[], request.cost, &row.lease_hint, now)
}
