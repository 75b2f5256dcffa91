//! Determines which faults occur when, as a pure function of the seed.

use std::fmt;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};

pub const REPLICAS: usize = 3;
/// The time without faults at the start and at the end.
const QUIET_AT_THE_ENDS: Duration = Duration::from_secs(3);

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
}

use FaultKind::{
    CutFeed, CutPostgres, CutRedis, DemoteRedis, FailOver, FillRedis, FlushScripts, HolePostgres,
    HoleRedis, Isolate, KillPostgres, KillReplica, LockPostgres, ReplaceReplica, RestartRedis,
    SlowPostgres, SlowRedis, SplitRedis, StallRedis, StopPostgres, StopRedis, StopReplica,
    WipeRedis,
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

/// Returns the faults of a run of this length, ordered by start. At most two overlap, and every kind occurs once before
/// any occurs twice. `allowed_kinds` has the names of the kinds that may occur; empty means all.
pub fn faults(seed: u64, length: Duration, allowed_kinds: &[String]) -> Vec<Fault> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut deck = Vec::new();
    let mut faults: Vec<Fault> = Vec::new();
    let mut at = QUIET_AT_THE_ENDS;
    loop {
        let kind = draw(&mut random, &mut deck, allowed_kinds, None);
        let Some(kind) = kind else { return faults };
        let first = Fault { at, duration: duration(&mut random, kind), kind };
        let mut end = first.end();
        let mut now = vec![first];
        if random.random_bool(0.4)
            && let Some(kind) = draw(&mut random, &mut deck, allowed_kinds, Some(kind))
        {
            let into = first.duration.mul_f64(random.random_range(0.1..0.9));
            let second = Fault { at: at + into, duration: duration(&mut random, kind), kind };
            end = end.max(second.end());
            now.push(second);
        }
        if end + QUIET_AT_THE_ENDS > length {
            return faults;
        }
        faults.extend(now);
        at = end + between(&mut random, 1_500, 2_200);
    }
}

/// Whether this kind exists; `none` excludes all.
pub fn is_known(name: &str) -> bool {
    let kinds = every(&mut StdRng::seed_from_u64(0));
    name == "none" || kinds.iter().any(|kind| kind.name() == name)
}

/// Returns the next kind: one that does not conflict with `beside`.
fn draw(
    random: &mut StdRng,
    deck: &mut Vec<FaultKind>,
    allowed_kinds: &[String],
    beside: Option<FaultKind>,
) -> Option<FaultKind> {
    if deck.is_empty() {
        deck.extend(every(random).into_iter().filter(|kind| match allowed_kinds.is_empty() {
            true => !kind.is_only_by_name(),
            false => allowed_kinds.iter().any(|name| name == kind.name()),
        }));
        deck.shuffle(random);
    }
    let fits = |kind: &FaultKind| beside.is_none_or(|other| !kind.conflicts_with(other));
    let index = deck.iter().rposition(fits)?;
    Some(deck.remove(index))
}

fn every(random: &mut StdRng) -> Vec<FaultKind> {
    let mut any = || random.random_range(0..REPLICAS);
    vec![
        KillReplica(any()),
        StopReplica(any()),
        CutRedis(any()),
        HoleRedis(any()),
        SlowRedis(any()),
        CutPostgres(any()),
        HolePostgres(any()),
        Isolate(any()),
        RestartRedis,
        WipeRedis,
        StopRedis,
        StallRedis,
        DemoteRedis,
        FailOver,
        KillPostgres,
        StopPostgres,
        SlowPostgres(any()),
        LockPostgres,
        CutFeed(any()),
        FlushScripts,
        FillRedis,
        SplitRedis(any()),
    ]
}

fn duration(random: &mut StdRng, kind: FaultKind) -> Duration {
    match kind {
        KillReplica(_) | RestartRedis | WipeRedis => between(random, 50, 1_500),
        StopReplica(_) => between(random, 100, 3_000),
        StallRedis => between(random, 600, 1_500),
        FailOver | DemoteRedis => between(random, 300, 1_200),
        Isolate(_) => between(random, 2_000, 6_000),
        KillPostgres | StopPostgres | LockPostgres | CutPostgres(_) | HolePostgres(_) => {
            between(random, 300, 2_500)
        }
        FillRedis | SplitRedis(_) | SlowPostgres(_) | CutFeed(_) => between(random, 1_000, 4_000),
        FlushScripts | ReplaceReplica(_) => between(random, 50, 200),
        CutRedis(_) | HoleRedis(_) | SlowRedis(_) | StopRedis => between(random, 300, 2_000),
    }
}

fn between(random: &mut StdRng, least_ms: u64, most_ms: u64) -> Duration {
    Duration::from_millis(random.random_range(least_ms..=most_ms))
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
        }
    }

    /// Whether the kind occurs only if it is named: it may make credits vanish, which would hide that other faults make
    /// them vanish.
    fn is_only_by_name(&self) -> bool {
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
            | SplitRedis(_) => None,
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
        matches!(self, RestartRedis | WipeRedis | FailOver | DemoteRedis | SplitRedis(_))
    }

    /// Whether two faults would affect the same thing.
    fn conflicts_with(&self, other: FaultKind) -> bool {
        let server = |kind: &FaultKind| match kind {
            RestartRedis | WipeRedis | StopRedis | StallRedis | DemoteRedis | FailOver
            | FlushScripts | FillRedis | SplitRedis(_) => Some("redis"),
            KillPostgres | StopPostgres | LockPostgres => Some("postgres"),
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
        match self.replica() {
            Some(replica) => write!(f, "{} of replica {replica}", self.name()),
            None => write!(f, "{}", self.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_mins(5);

    #[test]
    fn faults_depend_on_the_seed_alone() {
        assert_eq!(faults(7, LONG, &[]), faults(7, LONG, &[]));
        assert_ne!(faults(7, LONG, &[]), faults(8, LONG, &[]));
    }

    #[test]
    fn at_most_two_faults_overlap_with_quiet_gaps() {
        for seed in 0..200 {
            let faults = faults(seed, LONG, &[]);

            for fault in &faults {
                let beside = faults.iter().filter(|other| {
                    *other != fault && other.at < fault.end() && fault.at < other.end()
                });
                assert!(beside.count() <= 1, "seed {seed}: {fault:?}");
                let next = faults.iter().map(|other| other.at).find(|at| *at >= fault.end());
                let covered =
                    faults.iter().any(|other| other.at < fault.end() && other.end() > fault.end());
                assert!(
                    covered || next.is_none_or(|at| at >= fault.end() + Duration::from_secs(1))
                );
            }
        }
    }

    #[test]
    fn only_allowed_kinds_occur() {
        let allowed_kinds = ["kill-replica".to_owned(), "cut-postgres".to_owned()];

        let faults = faults(3, LONG, &allowed_kinds);

        assert!(faults.len() > 10);
        assert!(
            faults.iter().all(|fault| allowed_kinds.iter().any(|name| name == fault.kind.name()))
        );
    }
}
