//! A model of Postgres: credit accounts, leases, replicas and their reports, in transactions that lock accounts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::id::KeyId;
use foundation::model::{CreditAccount, Credits, Lease};
use store::UnreportedLease;

use super::check::Checker;
use crate::executor::{Node, Sim, lock};
use crate::network::Network;

pub const DATABASE: Node = 100;
/// How long the database keeps the transaction of a client that has silently disappeared.
const ABANDONED_TRANSACTION_MAX: Duration = Duration::from_secs(2);
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(2);
/// After how many milliseconds of silence a replica is deregistered: much less than the program waits.
const SILENCE_MAX_MS: i64 = 3_000;

/// A change that a transaction makes when it commits.
type Write = Box<dyn FnOnce(&mut Database) + Send>;

#[derive(Default)]
pub struct Database {
    /// How far its clock is ahead of the virtual time, in milliseconds.
    pub clock_offset_ms: i64,
    last_transaction: u64,
    last_number: i64,
    running: BTreeMap<u64, Transaction>,
    pub accounts: BTreeMap<KeyId, Credits>,
    /// The leases, each with the number that was drawn when it was inserted.
    pub leases: BTreeMap<(KeyId, i64), (i64, Lease)>,
    replicas: BTreeMap<String, ReplicaRow>,
    /// The final reports of replicas about leases.
    reports: BTreeSet<(KeyId, i64, String)>,
}

#[derive(Default)]
struct Transaction {
    locked_accounts: BTreeSet<KeyId>,
    locked_registration: Option<String>,
    writes: Vec<Write>,
}

#[derive(Default)]
struct ReplicaRow {
    seen_at: i64,
    silent_seen_at: Option<i64>,
    gone: Option<i64>,
}

impl ReplicaRow {
    fn is_registered(&self) -> bool {
        self.silent_seen_at != Some(self.seen_at)
    }
}

impl Database {
    pub fn now(&self, sim: &Sim) -> Timestamp {
        let now_ms = i64::try_from(sim.now_us() / 1_000).expect("a short time");
        Timestamp(1_000_000_000 + self.clock_offset_ms + now_ms)
    }

    fn draw_number(&mut self) -> i64 {
        self.last_number += 1;
        self.last_number
    }

    pub fn leases_of<'a>(&'a self, key: &'a KeyId) -> impl Iterator<Item = &'a Lease> {
        self.leases.iter().filter(move |((of, _), _)| of == key).map(|(_, (_, lease))| lease)
    }

    fn is_locked(&self, key: &KeyId, id: u64) -> bool {
        self.running.iter().any(|(other, one)| *other != id && one.locked_accounts.contains(key))
    }

    /// Rolls all transactions back, as a restart does.
    pub fn restart(&mut self) {
        self.running.clear();
    }

    fn upsert_lease(&mut self, key: KeyId, number: i64, mut lease: Lease) {
        let entry = self.leases.entry((key, lease.lease_number));
        let (_, known) = entry.or_insert_with(|| (number, lease.clone()));
        lease.spent = lease.spent.max(known.spent);
        *known = lease;
    }

    /// Voids the credits in the leases of a key.
    pub fn forfeit_leases(&mut self, key: &KeyId, now: Timestamp) {
        self.leases.retain(|(of, _), (_, lease)| of != key || !lease.closed);
        for ((_, _), (_, lease)) in self.leases.iter_mut().filter(|((of, _), _)| of == key) {
            lease.granted = lease.spent;
            lease.withheld_at.get_or_insert(now);
        }
    }

    pub fn raise_spends(&mut self, spent: &[(KeyId, i64, i64)]) {
        for (key, lease_number, spent) in spent {
            if let Some((_, lease)) = self.leases.get_mut(&(key.clone(), *lease_number)) {
                lease.spent = lease.spent.max(*spent);
            }
        }
    }

    pub fn insert_reports(&mut self, replica: &str, spent: &[(KeyId, i64, i64)]) {
        self.raise_spends(spent);
        for (key, lease_number, _) in spent {
            let lease = self.leases.get(&(key.clone(), *lease_number));
            if lease.is_some_and(|(_, lease)| lease.withheld_at.is_some()) {
                self.reports.insert((key.clone(), *lease_number, replica.to_owned()));
            }
        }
    }

    pub fn delete_replica(&mut self, id: &str) {
        self.replicas.remove(id);
    }

    /// Returns the replicas that may know of a lease and have not reported it.
    pub fn list_unreported_by(&self, key: &KeyId, lease_number: i64) -> Vec<String> {
        let Some((number, _)) = self.leases.get(&(key.clone(), lease_number)) else {
            return Vec::new();
        };
        let may_know = |row: &ReplicaRow| {
            row.is_registered() || row.gone.is_none_or(|gone_number| gone_number > *number)
        };
        let has_reported =
            |id: &String| self.reports.contains(&(key.clone(), lease_number, id.clone()));
        let unreported =
            self.replicas.iter().filter(|(id, row)| may_know(row) && !has_reported(id));
        unreported.map(|(id, _)| id.clone()).collect()
    }

    /// Returns the withheld leases of a key, each with the credits that are missing.
    pub fn list_withheld(&self, key: &KeyId, only_proven: bool) -> Vec<(i64, i64)> {
        let is_proven = |lease: &Lease| self.list_unreported_by(key, lease.lease_number).is_empty();
        let withheld = self.leases_of(key).filter(|lease| lease.withheld_at.is_some());
        let withheld = withheld.filter(|lease| !only_proven || is_proven(lease));
        withheld.map(|lease| (lease.lease_number, lease.unspent_units())).collect()
    }

    fn list_unreported(&self, replica: &str, since: i64) -> Vec<UnreportedLease> {
        let unreported = self.leases.iter().filter_map(|((key, lease_number), (_, lease))| {
            let since = lease.withheld_at.filter(|at| at.0 >= since)?;
            let report = (key.clone(), *lease_number, replica.to_owned());
            let lease_number = *lease_number;
            (!self.reports.contains(&report)).then(|| UnreportedLease {
                since,
                key_id: key.clone(),
                lease_number,
            })
        });
        unreported.collect()
    }

    /// Counts out the replicas whose registration has ended, and then ends the registrations of silent ones.
    fn deregister_silent_replicas(&mut self, now: Timestamp) {
        let locked: BTreeSet<_> =
            self.running.values().filter_map(|one| one.locked_registration.clone()).collect();
        for (_, row) in self.replicas.iter_mut().filter(|(id, _)| !locked.contains(*id)) {
            if !row.is_registered() && row.gone.is_none() {
                self.last_number += 1;
                row.gone = Some(self.last_number);
            } else if row.is_registered() && row.seen_at < now.0 - SILENCE_MAX_MS {
                (row.silent_seen_at, row.gone) = (Some(row.seen_at), None);
            }
        }
    }
}

/// A client of the database. An error other than a lock timeout means that it is unknown whether the statement was
/// executed.
#[derive(Clone)]
pub struct DatabaseClient {
    pub network: Network,
    pub node: Node,
    pub database: Arc<Mutex<Database>>,
    pub checker: Arc<Mutex<Checker>>,
}

impl DatabaseClient {
    /// Executes a statement that takes no time in the database.
    pub async fn query<T: Send + 'static>(
        &self,
        statement: impl FnOnce(&mut Database, Timestamp) -> T + Send + 'static,
    ) -> Result<T> {
        let (database, sim) = (self.database.clone(), self.network.sim.clone());
        let executed = self.network.call(self.node, DATABASE, async move {
            let mut database = lock(&database);
            let now = database.now(&sim);
            statement(&mut database, now)
        });
        let executed = self.network.sim.timeout(STATEMENT_TIMEOUT, executed).await;
        executed.and_then(std::result::Result::ok).ok_or(Error::StoreNotReady)
    }

    pub async fn register(&self, id: String) -> Result<()> {
        self.query(move |database, now| {
            let row = ReplicaRow { seen_at: now.0, ..ReplicaRow::default() };
            database.replicas.insert(id, row);
        })
        .await
    }

    /// Returns the number of the last lease of a key, or 0 if this replica is not registered.
    pub async fn load_last_lease_number(&self, key: KeyId, replica: String) -> Result<i64> {
        self.query(move |database, _| {
            let is_registered =
                database.replicas.get(&replica).is_some_and(ReplicaRow::is_registered);
            if is_registered { database.accounts[&key].last_lease_number } else { 0 }
        })
        .await
    }

    pub async fn list_unreported(&self, id: String, since: i64) -> Result<Vec<UnreportedLease>> {
        self.query(move |database, _| database.list_unreported(&id, since)).await
    }

    pub async fn deregister_silent_replicas(&self) -> Result<()> {
        self.query(Database::deregister_silent_replicas).await
    }

    /// Begins a transaction that waits for locks for at most this long.
    pub async fn begin_within(&self, lock_wait: Duration) -> Result<Tx> {
        let id = self.query(|database, _| {
            database.last_transaction += 1;
            database.running.insert(database.last_transaction, Transaction::default());
            database.last_transaction
        });
        Ok(Tx { id: id.await?, client: self.clone(), lock_wait, has_ended: false })
    }

    pub async fn begin(&self) -> Result<Tx> {
        self.begin_within(STATEMENT_TIMEOUT).await
    }
}

/// A transaction, rolled back when it is dropped.
pub struct Tx {
    id: u64,
    pub client: DatabaseClient,
    lock_wait: Duration,
    has_ended: bool,
}

impl Tx {
    /// Executes a statement, unless the transaction has been rolled back.
    async fn execute<T: Send + 'static>(
        &self,
        statement: impl FnOnce(&mut Database, u64, Timestamp) -> T + Send + 'static,
    ) -> Result<T> {
        let id = self.id;
        let executed = self.client.query(move |database, now| {
            database.running.contains_key(&id).then(|| statement(database, id, now))
        });
        executed.await?.ok_or(Error::StoreNotReady)
    }

    /// Returns whether a replica is registered, and prevents that it is counted out until the transaction ends.
    pub async fn lock_registration(&self, replica: String) -> Result<bool> {
        self.execute(move |database, id, _| {
            let is_registered =
                database.replicas.get(&replica).is_some_and(ReplicaRow::is_registered);
            if let Some(one) = database.running.get_mut(&id).filter(|_| is_registered) {
                one.locked_registration = Some(replica);
            }
            is_registered
        })
        .await
    }

    /// Locks an account, unless another transaction has locked it.
    pub async fn claim_account(&self, key: &KeyId) -> Result<Option<CreditAccount>> {
        let key = key.clone();
        self.execute(move |database, id, database_time| {
            if database.is_locked(&key, id) {
                return None;
            }
            let leases = database.leases_of(&key).cloned().collect();
            let credits = database.accounts[&key];
            if let Some(one) = database.running.get_mut(&id) {
                one.locked_accounts.insert(key);
            }
            Some(CreditAccount { credits, leases, database_time })
        })
        .await
    }

    pub async fn lock_account(&self, key: &KeyId) -> Result<CreditAccount> {
        let sim = &self.client.network.sim;
        let until_us = sim.now_us() + u64::try_from(self.lock_wait.as_micros()).expect("short");
        loop {
            match self.claim_account(key).await? {
                Some(account) => return Ok(account),
                None if sim.now_us() >= until_us => return Err(Error::DebitTimeout),
                None => sim.sleep_ms(2).await,
            }
        }
    }

    pub async fn write(
        &self,
        write: impl FnOnce(&mut Database, Timestamp) + Send + 'static,
    ) -> Result<()> {
        self.execute(move |database, id, now| {
            let write: Write = Box::new(move |database| write(database, now));
            if let Some(one) = database.running.get_mut(&id) {
                one.writes.push(write);
            }
        })
        .await
    }

    pub async fn upsert_lease(&self, key: &KeyId, lease: &Lease) -> Result<()> {
        let (key, lease) = (key.clone(), lease.clone());
        let number = self.client.query(|database, _| database.draw_number()).await?;
        self.write(move |database, _| database.upsert_lease(key, number, lease)).await
    }

    pub async fn delete_lease(&self, key: &KeyId, lease_number: i64) -> Result<()> {
        let id = (key.clone(), lease_number);
        self.write(move |database, _| drop(database.leases.remove(&id))).await
    }

    pub async fn update_balance(&self, key: &KeyId, credits: &Credits) -> Result<()> {
        let (key, credits) = (key.clone(), *credits);
        self.write(move |database, _| {
            database.accounts.insert(key, credits);
        })
        .await
    }

    pub async fn commit(mut self) -> Result<()> {
        let (id, checker) = (self.id, self.client.checker.clone());
        let sim = self.client.network.sim.clone();
        super::faults::inject_commit_fault(&self.client, 2).await;
        let committed = self.execute(move |database, _, _| {
            let transaction = database.running.remove(&id).expect("it runs");
            transaction.writes.into_iter().for_each(|write| write(database));
            lock(&checker).check_database(&sim, database);
        });
        let committed = committed.await;
        // A commit on its way arrives late, or never.
        self.has_ended = committed.is_ok();
        super::faults::inject_commit_fault(&self.client, 1).await;
        committed
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let (id, client) = (self.id, self.client.clone());
        let network = client.network.clone();
        network.clone().spawn(async move {
            network.wait_until_noticed(client.node, DATABASE, ABANDONED_TRANSACTION_MAX).await;
            lock(&client.database).running.remove(&id);
        });
    }
}
