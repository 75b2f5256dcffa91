//! A model of a streaming standby: it replays the commits of the database in their order, some time later.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::database::{Database, ReplayedChange};
use crate::executor::{Node, Sim, lock};
use crate::network::{Lost, Network};

pub const STANDBY: Node = 110;
const READ_TIMEOUT: Duration = Duration::from_millis(100);

#[derive(Default)]
pub struct Standby {
    /// How long after a commit it is replayed.
    pub lag_us: u64,
    replayed_count: usize,
    keys: BTreeMap<usize, i64>,
    heartbeats: BTreeMap<String, i64>,
}

impl Standby {
    /// Replays what is due. It never goes back, whatever becomes of the lag.
    fn replay(&mut self, sim: &Sim, database: &Database) {
        let due = |at_us: u64| at_us + self.lag_us <= sim.now_us();
        let new = database.wal[self.replayed_count..].iter().take_while(|record| due(record.at_us));
        for record in new.cloned().collect::<Vec<_>>() {
            match record.change {
                ReplayedChange::Key(key, value) => drop(self.keys.insert(key, value)),
                ReplayedChange::Heartbeat(replica, number) => {
                    self.heartbeats.insert(replica, number);
                }
            }
            self.replayed_count += 1;
        }
    }
}

/// Changes the lag: milliseconds, or up to two seconds, or the replay stands still.
pub async fn change_lag(sim: Sim, standby: Arc<Mutex<Standby>>) {
    loop {
        let lag_ms = match sim.random(4) {
            0 => sim.random(5),
            1 => sim.random(200),
            2 => sim.random(2_000),
            _ => 60_000,
        };
        sim.trace(|| format!("the standby lags by {lag_ms} ms"));
        lock(&standby).lag_us = lag_ms * 1_000;
        sim.sleep_ms(sim.random(3_000)).await;
    }
}

/// A client of the standby.
#[derive(Clone)]
pub struct StandbyClient {
    pub network: Network,
    pub node: Node,
    pub database: Arc<Mutex<Database>>,
    pub standby: Arc<Mutex<Standby>>,
}

impl StandbyClient {
    /// Returns the value of a key if it is not absent, and the last heartbeat of a process in the same snapshot.
    pub async fn load_key(
        &self,
        key: usize,
        replica: String,
    ) -> Result<Option<(i64, Option<i64>)>, Lost> {
        let Self { network, node, database, standby } = self.clone();
        let sim = network.sim.clone();
        let read = network.call(node, STANDBY, async move {
            let mut standby = lock(&standby);
            standby.replay(&sim, &lock(&database));
            let value = standby.keys.get(&key).copied();
            value.map(|value| (value, standby.heartbeats.get(&replica).copied()))
        });
        self.network.sim.timeout(READ_TIMEOUT, read).await.unwrap_or(Err(Lost))
    }
}
