//! The kinds of faults, and what each affects.

use std::fmt;
use std::time::Duration;

pub const REPLICAS: usize = 3;
/// The regions, and the replicas of each, of a run with several regions. Replicas are numbered over all of them, those of
/// the first region first.
pub const REGIONS: usize = 3;
pub const REPLICAS_PER_REGION: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// kill -9, and restarted after the fault's duration.
    KillReplica(usize),
    /// SIGSTOP, then SIGCONT.
    StopReplica(usize),
    /// Its connections to Redis break, and no new one is made.
    CutRedis(usize),
    /// Its connections to Redis stay, and no data passes.
    HoleRedis(usize),
    /// Its requests to Redis and the replies take some milliseconds longer.
    SlowRedis(usize),
    CutPostgres(usize),
    HolePostgres(usize),
    /// Cut off from both.
    Isolate(usize),
    /// kill -9, and restarted with its append-only file.
    RestartRedis,
    /// kill -9, and restarted without data.
    WipeRedis,
    /// SIGSTOP, then SIGCONT.
    StopRedis,
    /// SIGSTOP for 60 ms, repeatedly.
    StallRedis,
    /// Its follower is promoted and it is demoted, while it keeps its connections; the address leads to the new master
    /// after the fault's duration.
    DemoteRedis,
    /// Its follower lags for the fault's duration; then the master is killed and the follower promoted.
    FailOver,
    /// kill -9 of all its processes, and restarted.
    KillPostgres,
    /// SIGSTOP of all its processes, then SIGCONT.
    StopPostgres,
    /// Its statements and their replies take some milliseconds longer.
    SlowPostgres(usize),
    /// A transaction locks the table of keys.
    LockPostgres,
    /// The connection with its change feed breaks, and no new one is made; all others stay.
    CutFeed(usize),
    /// Redis forgets its scripts.
    FlushScripts,
    /// Redis has no memory left, and rejects what would need more.
    FillRedis,
    /// The follower is promoted and used by all replicas but this one, which continues with the old master.
    SplitRedis(usize),
    /// SIGTERM, and restarted with another version or much later. Never chosen by the seed.
    ReplaceReplica(usize),
    /// A fault of a region, with more than one of them.
    InRegion(usize, RegionFault),
}

/// What happens to a region, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegionFault {
    /// Like the faults of the only Redis with these names.
    RestartRedis,
    WipeRedis,
    StopRedis,
    DemoteRedis,
    FailOver,
    /// The connections between the region and all others break, and no new one is made.
    CutOff,
    /// These connections stay, and no data passes.
    HoleOff,
}

use FaultKind::{
    CutFeed, CutPostgres, CutRedis, DemoteRedis, FailOver, FillRedis, FlushScripts, HolePostgres,
    HoleRedis, InRegion, Isolate, KillPostgres, KillReplica, LockPostgres, ReplaceReplica,
    RestartRedis, SlowPostgres, SlowRedis, SplitRedis, StallRedis, StopPostgres, StopRedis,
    StopReplica, WipeRedis,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The time since the load started.
    pub at: Duration,
    pub duration: Duration,
    pub kind: FaultKind,
}

impl Fault {
    pub fn end(&self) -> Duration {
        self.at + self.duration
    }
}

impl FaultKind {
    pub fn name(&self) -> &'static str {
        match self {
            KillReplica(_) => "kill-replica",
            StopReplica(_) => "stop-replica",
            CutRedis(_) => "cut-redis",
            HoleRedis(_) => "hole-redis",
            SlowRedis(_) => "slow-redis",
            CutPostgres(_) => "cut-postgres",
            HolePostgres(_) => "hole-postgres",
            Isolate(_) => "isolate",
            RestartRedis => "restart-redis",
            WipeRedis => "wipe-redis",
            StopRedis => "stop-redis",
            StallRedis => "stall-redis",
            DemoteRedis => "demote-redis",
            FailOver => "fail-over",
            KillPostgres => "kill-postgres",
            StopPostgres => "stop-postgres",
            SlowPostgres(_) => "slow-postgres",
            LockPostgres => "lock-postgres",
            CutFeed(_) => "cut-feed",
            FlushScripts => "flush-scripts",
            FillRedis => "fill-redis",
            SplitRedis(_) => "split-redis",
            ReplaceReplica(_) => "replace-replica",
            InRegion(_, fault) => match fault {
                RegionFault::RestartRedis => "restart-redis-of-region",
                RegionFault::WipeRedis => "wipe-redis-of-region",
                RegionFault::StopRedis => "stop-redis-of-region",
                RegionFault::DemoteRedis => "demote-redis-of-region",
                RegionFault::FailOver => "fail-over-of-region",
                RegionFault::CutOff => "cut-off-region",
                RegionFault::HoleOff => "hole-off-region",
            },
        }
    }

    /// Whether the kind occurs only if it is named: it may make credits vanish, which would hide that other faults make
    /// them vanish.
    pub fn is_only_by_name(&self) -> bool {
        matches!(self, SplitRedis(_))
    }

    /// Returns the only replica that the fault affects.
    pub fn replica(&self) -> Option<usize> {
        match self {
            KillReplica(r) | StopReplica(r) | CutRedis(r) | HoleRedis(r) | SlowRedis(r)
            | CutPostgres(r) | HolePostgres(r) | SlowPostgres(r) | Isolate(r) | CutFeed(r)
            | ReplaceReplica(r) => Some(*r),
            RestartRedis | WipeRedis | StopRedis | StallRedis | DemoteRedis | FailOver
            | KillPostgres | StopPostgres | LockPostgres | FlushScripts | FillRedis
            | SplitRedis(_) | InRegion(..) => None,
        }
    }

    /// Returns the region whose Redis, or whose way to all others, the fault affects.
    pub fn region(&self) -> Option<usize> {
        match self {
            InRegion(region, _) => Some(*region),
            _ => None,
        }
    }

    fn concerns(&self, replica: usize) -> bool {
        self.replica().is_none_or(|only| only == replica)
    }

    /// Whether this replica itself is killed, stopped or replaced.
    pub fn stops_replica(&self, replica: usize) -> bool {
        matches!(self, KillReplica(_) | StopReplica(_) | ReplaceReplica(_))
            && self.concerns(replica)
    }

    /// Whether Redis is unreachable, or may appear so, for this replica.
    pub fn affects_redis(&self, replica: usize) -> bool {
        let kind = matches!(
            self,
            CutRedis(_)
                | HoleRedis(_)
                | SlowRedis(_)
                | Isolate(_)
                | RestartRedis
                | WipeRedis
                | StopRedis
                | StallRedis
                | DemoteRedis
                | FailOver
                | FillRedis
                | SplitRedis(_)
                | InRegion(..)
        );
        kind && self.concerns(replica)
    }

    /// Whether Postgres is unreachable, or may appear so, for this replica.
    pub fn affects_postgres(&self, replica: usize) -> bool {
        let kind = matches!(
            self,
            CutPostgres(_)
                | HolePostgres(_)
                | SlowPostgres(_)
                | Isolate(_)
                | KillPostgres
                | StopPostgres
                | LockPostgres
        );
        kind && self.concerns(replica)
    }

    /// Whether this replica cannot read the change log.
    pub fn hides_change_log(&self, replica: usize) -> bool {
        self.affects_postgres(replica) && !matches!(self, SlowPostgres(_) | LockPostgres)
    }

    /// Whether Redis may return with less data than it had.
    pub fn loses_counters(&self) -> bool {
        match self {
            RestartRedis | WipeRedis | FailOver | DemoteRedis | SplitRedis(_) => true,
            InRegion(_, fault) => !matches!(
                fault,
                RegionFault::StopRedis | RegionFault::CutOff | RegionFault::HoleOff
            ),
            _ => false,
        }
    }

    /// Whether two faults would affect the same thing.
    pub fn conflicts_with(&self, other: FaultKind) -> bool {
        let server = |kind: &FaultKind| match kind {
            RestartRedis | WipeRedis | StopRedis | StallRedis | DemoteRedis | FailOver
            | FlushScripts | FillRedis | SplitRedis(_) => Some(("redis", 0)),
            InRegion(region, _) => Some(("redis", *region)),
            KillPostgres | StopPostgres | LockPostgres => Some(("postgres", 0)),
            _ => None,
        };
        match (server(self), server(&other)) {
            (Some(one), Some(two)) => one == two,
            (None, None) => self.replica() == other.replica(),
            _ => false,
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.replica(), self.region()) {
            (Some(replica), _) => write!(f, "{} of replica {replica}", self.name()),
            (None, Some(region)) => write!(f, "{} {region}", self.name()),
            (None, None) => write!(f, "{}", self.name()),
        }
    }
}
