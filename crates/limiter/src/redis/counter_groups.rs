//! Estimates how many counters the groups of a workspace have, with one `HyperLogLog` per period, so that all replicas
//! may record a counter any number of times.

use std::collections::HashSet;

use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::WorkspaceId;

use super::super::counter_groups::GroupPeriod;
use super::RedisCounters;
use super::connections::RetryPolicy;

/// The maximum number of counters that one command records.
const COUNTERS_PER_COMMAND_MAX: usize = 500;

impl RedisCounters {
    /// Removes expired group counters that this process counted while Redis did not reply.
    pub fn remove_expired_groups(&self) {
        self.script_runner.outage_windows.remove_expired_groups();
    }

    /// Records counters of a period by the hashes of their names.
    pub async fn record_group_counters(
        &self,
        period: &GroupPeriod,
        counters: &HashSet<u64>,
    ) -> Result<()> {
        let name = self.keyspace.group_period(period);
        let hashes: Vec<_> = counters.iter().map(|hash| hash.to_be_bytes()).collect();
        for hashes in hashes.chunks(COUNTERS_PER_COMMAND_MAX) {
            let mut command = redis::cmd("PFADD");
            command.arg(&name);
            for hash in hashes {
                command.arg(&hash[..]);
            }
            self.script_runner.connections.send::<i64>(&command, RetryPolicy::Once).await?;
        }
        let mut command = redis::cmd("PEXPIRE");
        command.arg(&name).arg(period.lifetime_ms());
        self.script_runner.connections.send::<i64>(&command, RetryPolicy::Once).await.map(drop)
    }

    /// Returns the approximate number of live counters in the groups of a workspace.
    pub async fn estimate_group_counters(
        &self,
        workspace: &WorkspaceId,
        now: Timestamp,
    ) -> Result<u64> {
        let mut command = redis::cmd("PFCOUNT");
        for period in GroupPeriod::list_live(workspace, now) {
            command.arg(self.keyspace.group_period(&period));
        }
        self.script_runner.connections.send(&command, RetryPolicy::Once).await
    }
}
