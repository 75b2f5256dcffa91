//! Determines which faults occur when, as a pure function of the seed.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};

use crate::schedule::FaultKind::{
    self, CutFeed, CutPostgres, CutRedis, DemoteRedis, FailOver, FillRedis, FlushScripts,
    HolePostgres, HoleRedis, InRegion, Isolate, KillPostgres, KillReplica, LockPostgres,
    ReplaceReplica, RestartRedis, SlowPostgres, SlowRedis, SplitRedis, StallRedis, StopPostgres,
    StopRedis, StopReplica, WipeRedis,
};
use crate::schedule::{Fault, REGIONS, REPLICAS, REPLICAS_PER_REGION, RegionFault};

/// The time without faults at the start and at the end.
const QUIET_AT_THE_ENDS: Duration = Duration::from_secs(3);

/// Returns the kinds of faults that occur, each with random replicas.
type Kinds = fn(&mut StdRng) -> Vec<FaultKind>;

/// Returns the faults of a run of this length, ordered by start. At most two overlap, and every kind occurs once before
/// any occurs twice. `allowed_kinds` has the names of the kinds that may occur; empty means all.
pub fn faults(seed: u64, length: Duration, allowed_kinds: &[String]) -> Vec<Fault> {
    draw_all(seed, length, every, allowed_kinds)
}

/// Returns the faults of a run with several regions.
pub fn faults_in_regions(seed: u64, length: Duration, allowed_kinds: &[String]) -> Vec<Fault> {
    draw_all(seed, length, every_in_regions, allowed_kinds)
}

fn draw_all(seed: u64, length: Duration, kinds: Kinds, allowed_kinds: &[String]) -> Vec<Fault> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut deck = Vec::new();
    let mut faults: Vec<Fault> = Vec::new();
    let mut at = QUIET_AT_THE_ENDS;
    loop {
        let kind = draw(&mut random, &mut deck, (kinds, allowed_kinds), None);
        let Some(kind) = kind else { return faults };
        let first = Fault { at, duration: duration(&mut random, kind), kind };
        let mut end = first.end();
        let mut now = vec![first];
        if random.random_bool(0.4)
            && let Some(kind) = draw(&mut random, &mut deck, (kinds, allowed_kinds), Some(kind))
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
    let mut random = StdRng::seed_from_u64(0);
    let mut kinds = every(&mut random).into_iter().chain(every_in_regions(&mut random));
    name == "none" || kinds.any(|kind| kind.name() == name)
}

/// Returns the next kind: one that does not conflict with `beside`.
fn draw(
    random: &mut StdRng,
    deck: &mut Vec<FaultKind>,
    (kinds, allowed_kinds): (Kinds, &[String]),
    beside: Option<FaultKind>,
) -> Option<FaultKind> {
    if deck.is_empty() {
        deck.extend(kinds(random).into_iter().filter(|kind| match allowed_kinds.is_empty() {
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

fn every_in_regions(random: &mut StdRng) -> Vec<FaultKind> {
    use RegionFault::{CutOff, DemoteRedis, FailOver, HoleOff, RestartRedis, StopRedis, WipeRedis};
    let region_faults =
        [RestartRedis, WipeRedis, StopRedis, DemoteRedis, FailOver, CutOff, HoleOff, CutOff];
    let mut kinds: Vec<_> = (region_faults.into_iter())
        .map(|fault| InRegion(random.random_range(0..REGIONS), fault))
        .collect();
    let mut any = || random.random_range(0..REGIONS * REPLICAS_PER_REGION);
    kinds.extend([
        KillReplica(any()),
        StopReplica(any()),
        CutRedis(any()),
        HoleRedis(any()),
        CutPostgres(any()),
        CutFeed(any()),
        KillPostgres,
    ]);
    kinds
}

fn duration(random: &mut StdRng, kind: FaultKind) -> Duration {
    match kind {
        InRegion(_, RegionFault::RestartRedis | RegionFault::WipeRedis) => {
            between(random, 50, 1_500)
        }
        InRegion(_, RegionFault::CutOff | RegionFault::HoleOff) => between(random, 1_000, 5_000),
        InRegion(..) => between(random, 300, 1_500),
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
