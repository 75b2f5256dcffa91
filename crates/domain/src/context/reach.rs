//! Decides how a writer makes sure, before it commits, that every replica that relies on announcements has its intent.
//!
//! A [`ReplicaReach`] calls neither Redis nor the database: the writer performs the [`ReachStep`]s.

use std::time::Duration;

use foundation::clock::Monotonic;

/// How long to retry to announce an intent. In this time, replicas can acknowledge it in the change log, which they
/// read twice a second.
pub(crate) const REACH_TIMEOUT: Duration = Duration::from_secs(2);
const REACH_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// What a writer does next, in the transaction that it is about to commit unless stated otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReachStep {
    /// Announce the intent in every region, and pass the eras of the feeds that contain it on.
    Publish,
    /// List the replicas that have not received the intent, which was announced in these eras.
    ListUnreached,
    /// Insert the intent into the change log, in a transaction of its own, and commit that.
    LogIntent,
    Pause(Duration),
    /// Every replica was reached: commit.
    Commit,
    /// Some replicas were not reached: roll back.
    RollBack,
}

/// The attempts of one writer.
#[derive(Debug)]
pub struct ReplicaReach {
    /// The eras of the feeds that contain the intent.
    eras: Vec<String>,
    /// Whether the feeds of all regions contain it.
    is_everywhere: bool,
    /// When the intent was in the change log.
    logged_at: Option<Monotonic>,
    next: ReachStep,
}

impl ReplicaReach {
    /// Begins. `is_redis_suspended`: the circuit breaker is open, so that a first announcement would fail.
    pub fn new(is_redis_suspended: bool) -> Self {
        let next = if is_redis_suspended { ReachStep::ListUnreached } else { ReachStep::Publish };
        Self { eras: Vec::new(), is_everywhere: false, logged_at: None, next }
    }

    /// Returns what to do next.
    pub fn next_step(&self) -> ReachStep {
        self.next
    }

    /// Returns the eras of the feeds that contain the intent, and whether those are the feeds of all regions.
    pub fn eras(&self) -> (&[String], bool) {
        (&self.eras, self.is_everywhere)
    }

    /// Records the result of [`ReachStep::Publish`].
    pub fn record_published(&mut self, (eras, is_everywhere): (Vec<String>, bool)) {
        self.eras = eras;
        self.is_everywhere = is_everywhere;
        self.next = ReachStep::ListUnreached;
    }

    /// Records the result of [`ReachStep::ListUnreached`].
    pub fn record_unreached(&mut self, has_unreached: bool, now: Monotonic) {
        self.next = match self.logged_at {
            _ if !has_unreached => ReachStep::Commit,
            None => ReachStep::LogIntent,
            Some(logged_at) if now.since(logged_at) >= REACH_TIMEOUT => ReachStep::RollBack,
            Some(_) => ReachStep::Pause(REACH_POLL_INTERVAL),
        };
    }

    /// Records that the change log contains the intent.
    pub fn record_logged(&mut self, now: Monotonic) {
        self.logged_at = Some(now);
        self.try_again();
    }

    /// Records the end of [`ReachStep::Pause`].
    pub fn try_again(&mut self) {
        // A busy machine occasionally exceeds the timeout of a call, and a change has more time than a verification.
        self.next = if self.is_everywhere { ReachStep::ListUnreached } else { ReachStep::Publish };
    }
}

#[cfg(test)]
mod tests {
    use super::ReachStep::{Commit, ListUnreached, LogIntent, Pause, Publish, RollBack};
    use super::*;

    /// Runs a writer. `publish` returns the era at a time, `is_reached` whether all replicas are reached by it then.
    fn run(
        is_redis_suspended: bool,
        publish: impl Fn(u64) -> &'static str,
        is_reached: impl Fn(&str, u64) -> bool,
    ) -> (Vec<ReachStep>, u64) {
        let (mut reach, mut steps, mut ms) = (ReplicaReach::new(is_redis_suspended), vec![], 0);
        loop {
            let step = reach.next_step();
            steps.push(step);
            assert!(steps.len() < 1_000, "the writer does not end");
            let now = Monotonic::from_ms(ms);
            match step {
                Publish => {
                    let era = publish(ms);
                    let eras = Some(era.to_owned()).filter(|era| !era.is_empty());
                    reach.record_published((eras.into_iter().collect(), !era.is_empty()));
                }
                ListUnreached => {
                    let era = reach.eras().0.first().map_or("", String::as_str).to_owned();
                    reach.record_unreached(!is_reached(&era, ms), now);
                }
                LogIntent => reach.record_logged(now),
                Pause(pause) => {
                    ms += u64::try_from(pause.as_millis()).expect("a short pause");
                    reach.try_again();
                }
                Commit | RollBack => return (steps, ms),
            }
        }
    }

    #[test]
    fn intent_is_announced_once_when_every_replica_reads_it() {
        let (steps, _) = run(false, |_| "a", |era, _| era == "a");

        assert_eq!(steps, [Publish, ListUnreached, Commit]);
    }

    #[test]
    fn writer_commits_without_redis_when_no_replica_relies_on_announcements() {
        let (steps, _) = run(true, |_| "", |_, _| true);

        assert_eq!(steps, [ListUnreached, Commit]);
    }

    #[test]
    fn intent_is_announced_again_when_the_first_announcement_failed() {
        let (steps, ms) = run(false, |ms| if ms < 50 { "" } else { "a" }, |era, _| era == "a");

        let pause = Pause(REACH_POLL_INTERVAL);
        let first = [Publish, ListUnreached, LogIntent, Publish, ListUnreached, pause];
        assert_eq!(steps, [&first[..], &[Publish, ListUnreached, Commit]].concat());
        assert_eq!(ms, 50);
    }

    #[test]
    fn writer_waits_for_acknowledgements_when_replicas_read_another_feed() {
        let (steps, ms) = run(false, |_| "b", |_, ms| ms >= 600);

        assert_eq!(steps[..3], [Publish, ListUnreached, LogIntent]);
        assert_eq!(steps.iter().filter(|step| **step == Publish).count(), 1);
        assert_eq!((steps.last(), ms), (Some(&Commit), 600));
    }

    #[test]
    fn writer_rolls_back_when_a_replica_is_not_reached_within_two_seconds() {
        let (steps, ms) = run(true, |_| "", |_, _| false);

        assert_eq!((steps.last(), ms), (Some(&RollBack), 2_000));
    }
}
