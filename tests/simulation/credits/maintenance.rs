//! What a replica does beside verifications, as `credits::withheld`, `credits::closing` and `src/background` do it:
//! registrations, closing of leases, reports of lost leases, and changes of balances.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use domain::credits::closing_steps::{AccountStep, CloseScope, LeaseClosing};
use domain::credits::retries::{ChangeRetry, ChangeStep};
use foundation::error::{Error, Result};
use foundation::fault_injection::Safeguard;
use foundation::id::KeyId;
use foundation::model::{CreditAccount, Lease};

use super::database::Tx;
use super::replica::Replica;
use crate::executor::lock;

const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);
const LEASES_INTERVAL: Duration = Duration::from_millis(500);
const WITHHELD_INTERVAL: Duration = Duration::from_secs(1);
const LEASES_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a lease is idle before it is closed.
const IDLE: Duration = Duration::from_secs(2);
const VISIBILITY_DELAY_MAX_MS: i64 = 10_000;

/// A change of the credits of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreditsUpdate {
    Set(i64),
    Increment(i64),
}

impl Replica {
    /// Starts the background tasks.
    pub fn start_maintenance(self: &Arc<Self>) {
        self.sim.spawn(self.node, self.clone().send_heartbeats());
        self.sim.spawn(self.node, self.clone().close_leases());
        self.sim.spawn(self.node, self.clone().return_all_withheld());
    }

    async fn send_heartbeats(self: Arc<Self>) {
        loop {
            if self.database.register(self.id.clone()).await.is_ok() {
                self.is_registered.store(true, Ordering::Relaxed);
            }
            self.sim.sleep(HEARTBEAT_INTERVAL).await;
        }
    }

    async fn close_leases(self: Arc<Self>) {
        loop {
            self.sim.sleep(LEASES_INTERVAL).await;
            let closing = async {
                let last_ms = self.lease_spend.last_withheld_at_ms();
                self.report_since(last_ms.saturating_sub(VISIBILITY_DELAY_MAX_MS).max(0)).await?;
                for key in self.list_idle_leases().await? {
                    self.close_key_leases(&key, CloseScope::Idle(IDLE)).await?;
                }
                Ok::<_, Error>(())
            };
            let _ = self.sim.timeout(LEASES_TIMEOUT, closing).await;
            let _ = self.sim.timeout(LEASES_TIMEOUT, self.close_outdated()).await;
        }
    }

    async fn return_all_withheld(self: Arc<Self>) {
        loop {
            let _ = self.database.deregister_silent_replicas().await;
            let sweep = async {
                self.report_since(0).await?;
                let all = self.database.list_unreported(String::new(), 0).await?;
                self.return_withheld(all.into_iter().map(|lease| lease.key_id).collect()).await
            };
            let _ = self.sim.timeout(LEASES_TIMEOUT, sweep).await;
            self.sim.sleep(WITHHELD_INTERVAL).await;
        }
    }

    /// Reports what this process has spent from every lease withheld since then.
    async fn report_since(&self, since: i64) -> Result<()> {
        let unreported = self.database.list_unreported(self.id.clone(), since).await?;
        let Some(last) = unreported.iter().map(|lease| lease.since.0).max() else { return Ok(()) };
        let spent = self.lease_spend.freeze(&unreported);
        self.sim.trace(|| format!("{} reports {spent:?}", self.id));
        let (tx, id) = (self.database.begin().await?, self.id.clone());
        tx.write(move |database, _| database.insert_reports(&id, &spent)).await?;
        tx.commit().await?;
        self.lease_spend.record_reported_until(last);
        self.return_withheld(unreported.into_iter().map(|lease| lease.key_id).collect()).await
    }

    /// Returns the withheld credits of these keys whose leases every replica has reported.
    async fn return_withheld(&self, keys: BTreeSet<KeyId>) -> Result<()> {
        let only_proven = !Safeguard::EveryReport.is_disabled();
        for key in keys {
            let tx = self.database.begin().await?;
            if tx.claim_account(&key).await?.is_none() {
                continue;
            }
            let of = key.clone();
            let withheld =
                tx.client.query(move |database, _| database.list_withheld(&of, only_proven));
            let withheld = withheld.await?;
            if withheld.is_empty() {
                continue;
            }
            self.sim.trace(|| format!("{} returns {withheld:?} of {key:?}", self.id));
            tx.write(move |database, _| {
                let credits = database.accounts.get_mut(&key).expect("the account");
                credits.last_lease_number += 1;
                for (lease_number, units) in withheld {
                    credits.balance += units;
                    database.leases.remove(&(key.clone(), lease_number));
                }
            })
            .await?;
            tx.commit().await?;
        }
        Ok(())
    }

    async fn list_idle_leases(&self) -> Result<BTreeSet<KeyId>> {
        let idle_ms = i64::try_from(IDLE.as_millis()).expect("short");
        let list = self.database.query(move |database, now| {
            let is_idle = |lease: &Lease| {
                lease.withheld_at.is_none() && lease.topped_up_at.0 < now.0 - idle_ms
            };
            let idle = database.leases.iter().filter(|(_, (_, lease))| is_idle(lease));
            idle.map(|((key, _), _)| key.clone()).collect()
        });
        list.await
    }

    async fn close_outdated(&self) -> Result<()> {
        if self.redis.breaker.is_open() {
            return Ok(());
        }
        let mut outdated = self.outdated_accounts.list();
        outdated.sort_unstable();
        for (key, number) in outdated {
            if self.close_key_leases(&key, CloseScope::All).await? {
                self.outdated_accounts.remove(&key, number);
            }
        }
        Ok(())
    }

    /// Closes the leases of a key. Returns whether each is closed or withheld.
    pub async fn close_key_leases(&self, key: &KeyId, scope: CloseScope) -> Result<bool> {
        let tx = self.database.begin().await?;
        let mut account = tx.lock_account(key).await?;
        self.close_account_leases(&tx, key, &mut account, scope).await?;
        tx.update_balance(key, &account.credits).await?;
        tx.commit().await?;
        Ok(account.leases.iter().all(Lease::is_ended))
    }

    /// Closes the leases of a locked account. Returns whether all are closed.
    pub async fn close_account_leases(
        &self,
        tx: &Tx,
        key: &KeyId,
        account: &mut CreditAccount,
        scope: CloseScope,
    ) -> Result<bool> {
        let mut closing = LeaseClosing::new(scope, account.database_time);
        loop {
            let step = closing.next_step(&mut account.leases);
            if step == AccountStep::End {
                break;
            }
            match self.perform(tx, key, step).await {
                Ok(Some(result)) => drop(closing.apply_result(&mut account.leases, result)),
                Ok(None) => {}
                Err(cause) if cause.is_redis_outage() => closing.record_outage(&account.leases),
                Err(cause) => return Err(cause),
            }
        }
        closing.summary().add_to(account);
        Ok(!closing.summary().has_unconfirmed)
    }

    /// Changes the credits of a key, as a management request does.
    pub async fn update_credits(self: Arc<Self>, key: KeyId, update: CreditsUpdate) {
        let mut retry = ChangeRetry::default();
        loop {
            let step = retry.next_step();
            let result = match step {
                ChangeStep::Change => self.update_credits_once(&key, update).await,
                ChangeStep::Pause(pause) => {
                    self.sim.sleep(pause).await;
                    Ok(())
                }
                ChangeStep::CloseLeases => {
                    self.close_key_leases(&key, CloseScope::AllOrWithhold).await.map(drop)
                }
                ChangeStep::End { is_outdated } => {
                    if is_outdated {
                        self.outdated_accounts.record([key]);
                    }
                    return;
                }
            };
            self.sim
                .trace(|| format!("{} {step:?} for {update:?} of {key:?}: {result:?}", self.id));
            retry.record_result(result.as_ref().err());
        }
    }

    async fn update_credits_once(&self, key: &KeyId, update: CreditsUpdate) -> Result<()> {
        let tx = self.database.begin().await?;
        let mut account = tx.lock_account(key).await?;
        let is_closed = Safeguard::CloseLease.is_disabled()
            || self.close_account_leases(&tx, key, &mut account, CloseScope::All).await?;
        if !is_closed && matches!(update, CreditsUpdate::Set(_)) {
            return Err(Error::LeaseNotClosed);
        }
        let (key, checker, balance) = (key.clone(), self.checker.clone(), account.credits.balance);
        tx.write(move |database, now| {
            let (mut checker, mut balance) = (lock(&checker), balance);
            match update {
                CreditsUpdate::Set(value) => {
                    database.forfeit_leases(&key, now);
                    checker.record_set(&key, value);
                    balance = value;
                }
                CreditsUpdate::Increment(value) => {
                    checker.record_increment(&key, value);
                    balance += value;
                }
            }
            let credits = database.accounts.get_mut(&key).expect("the account");
            (credits.balance, credits.last_lease_number) = (balance, credits.last_lease_number + 1);
        })
        .await?;
        tx.commit().await
    }

    /// Closes the leases that this replica topped up, and reports all that it has spent, before it stops.
    pub async fn stop(&self) -> Result<()> {
        let id = self.id.clone();
        let own = self.database.query(move |database, _| {
            let is_own = |lease: &Lease| lease.withheld_at.is_none() && lease.topped_up_by == id;
            let own = database.leases.iter().filter(|(_, (_, lease))| is_own(lease));
            own.map(|((key, _), _)| key.clone()).collect::<BTreeSet<_>>()
        });
        for key in own.await? {
            self.close_key_leases(&key, CloseScope::All).await?;
        }
        let mut all = self.lease_spend.freeze_all();
        all.sort_unstable();
        let (tx, id) = (self.database.begin().await?, self.id.clone());
        tx.write(move |database, _| {
            database.raise_spends(&all);
            database.delete_replica(&id);
        })
        .await?;
        tx.commit().await
    }
}
