//! Tests that each safeguard is needed: injects the shortest faults that it protects against with the safeguard
//! disabled, and expects a violation. The same faults with the safeguard enabled do no harm.

use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use sqlx::Connection as _;
use sqlx::postgres::PgConnection;

use crate::caller::{Caller, Shared};
use crate::check::{self, Finding};
use crate::fleet::{Fleet, Replica, Stalls};
use crate::proxy::LinkState;
use crate::record::{
    AccountLock, Action, Call, Change, InjectedFault, KeyFinalState, KeyIndex, KeyInfo, Run,
};
use crate::schedule::{Fault, FaultKind};
use crate::servers::{Lock, block_on};
use crate::{acquire_turn, leases, load};

/// A safeguard, the faults that it protects against, and the violation when it is disabled.
struct Case {
    /// Its name in `KEYWARD_DISABLE_SAFEGUARD`.
    safeguard: &'static str,
    guarantee: &'static str,
    /// A part of the violation's text.
    found: &'static str,
    faults: fn(&mut Stage),
}

const CASES: [Case; 22] = [
    Case {
        safeguard: "fence",
        guarantee: "credits",
        found: "credits were spent and at most",
        faults: fail_over_to_a_redis_that_is_behind,
    },
    Case {
        safeguard: "debit-first",
        guarantee: "credits",
        found: "credits were spent and at most",
        faults: kill_a_replica_that_has_spent,
    },
    Case {
        safeguard: "atomic-take",
        guarantee: "windows",
        found: "while Redis lost its data 0 times",
        faults: crowd_at_a_window,
    },
    Case {
        safeguard: "close-purse",
        guarantee: "credits",
        found: "1 credits were spent of 0, set",
        faults: spend_where_a_change_is_not_known,
    },
    Case {
        safeguard: "format",
        guarantee: "windows",
        found: "while Redis lost its data 0 times",
        faults: count_beside_a_later_version,
    },
    Case {
        safeguard: "refill-once",
        guarantee: "credits",
        found: "credits were spent and at most",
        faults: spend_for_a_day_and_the_next,
    },
    Case {
        safeguard: "share",
        guarantee: "windows",
        found: "and its share is",
        faults: fill_a_window_without_redis,
    },
    Case {
        safeguard: "timeout",
        guarantee: "Redis outages",
        found: "during outages of Redis, p99 was",
        faults: ask_while_redis_hangs,
    },
    Case {
        safeguard: "charge",
        guarantee: "windows",
        found: "with and without Redis, which stalled 1 times",
        faults: use_up_a_window_while_redis_stalls,
    },
    Case {
        safeguard: "run-time",
        guarantee: "Redis outages",
        found: "decided without Redis, which was reachable",
        faults: use_up_a_window_while_replicas_are_throttled,
    },
    Case {
        safeguard: "absent",
        guarantee: "Postgres outages",
        found: "an existing key was reported as NOT_FOUND",
        faults: ask_without_postgres,
    },
    Case {
        safeguard: "reach",
        guarantee: "revocations",
        found: "was revoked",
        faults: end_a_key_where_redis_is_away_for_one_and_postgres_for_another,
    },
    Case {
        safeguard: "gap",
        guarantee: "revocations",
        found: "was revoked",
        faults: lose_an_announcement,
    },
    Case {
        safeguard: "majority",
        guarantee: "revocations",
        found: "was revoked",
        faults: end_a_key_beside_another_master,
    },
    Case {
        safeguard: "lease-bound",
        guarantee: "credits",
        found: "credits are withheld, and at most",
        faults: leases::begin_at_once_and_lose_redis_and_a_replica,
    },
    Case {
        safeguard: "proven-closed",
        guarantee: "credits",
        found: "credits were spent of 0, set",
        faults: leases::set_a_balance_beside_another_master,
    },
    Case {
        safeguard: "reported",
        guarantee: "credits",
        found: "credits were spent and at most",
        faults: leases::spend_from_another_master_after_the_report,
    },
    Case {
        safeguard: "every-report",
        guarantee: "credits",
        found: "credits were spent and at most",
        faults: leases::lose_redis_while_a_replica_stands_still,
    },
    Case {
        safeguard: "debit-queue",
        guarantee: "locked accounts",
        found: "were rejected while the account of key",
        faults: debit_beside_a_locked_account,
    },
    Case {
        safeguard: "claim",
        guarantee: "locked accounts",
        found: "were rejected while the account of key",
        faults: leases::give_credits_back_beside_a_locked_account,
    },
    Case {
        safeguard: "intent",
        guarantee: "revocations",
        found: "was revoked",
        faults: die_before_a_result_is_announced,
    },
    // The last one: a replica that reads the change log later is also far behind.
    Case {
        safeguard: "skip",
        guarantee: "revocations",
        found: "was revoked",
        faults: fall_behind_the_change_log,
    },
];

#[test]
fn checker_reports_fault_when_safeguard_is_disabled() {
    let _turn = acquire_turn();
    let mut fleet = Fleet::start(0);
    let mut wrong = Vec::new();
    for Case { safeguard, guarantee, found, faults } in CASES {
        let on = run_until_expected(&mut fleet, None, faults, guarantee, |finding| {
            finding.violations.is_empty()
        });
        let off = run_until_expected(&mut fleet, Some(safeguard), faults, guarantee, |finding| {
            finding.violations.iter().any(|violation| violation.contains(found))
        });
        wrong.extend(
            on.map(|on| format!("{safeguard} is on, and the guarantee is violated: {on:#?}")),
        );
        wrong.extend(
            off.map(|off| format!("{safeguard} is off, and no check reports it: {off:#?}")),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn balance_is_not_overspent_when_set_by_replica_without_redis() {
    let _turn = acquire_turn();
    let mut fleet = Fleet::start(0);

    let finding = run_case(&mut fleet, None, set_a_balance_without_redis, "credits");

    assert!(finding.violations.is_empty(), "{finding:#?}");
}

/// How often a case may be repeated if its timing depends on the machine, or on a deadline of milliseconds.
const ATTEMPTS_MAX: usize = 3;

/// Runs a case until the finding is as expected. Returns the last finding if it never was.
fn run_until_expected(
    fleet: &mut Fleet,
    off: Option<&str>,
    faults: fn(&mut Stage),
    guarantee: &str,
    is_right: impl Fn(&Finding) -> bool,
) -> Option<Finding> {
    let depends_on_timing =
        off.is_some() || ["Redis outages", "locked accounts"].contains(&guarantee);
    let mut last = None;
    for _ in 0..if depends_on_timing { ATTEMPTS_MAX } else { 1 } {
        let finding = run_case(fleet, off, faults, guarantee);
        if is_right(&finding) {
            return None;
        }
        last = Some(finding);
    }
    last
}

/// Starts the replicas with this safeguard disabled, injects the faults, and checks a guarantee.
fn run_case(
    fleet: &mut Fleet,
    off: Option<&str>,
    faults: fn(&mut Stage),
    guarantee: &str,
) -> Finding {
    fleet.replicas.iter_mut().for_each(Replica::kill);
    // Deletes the replicas that were killed, so that no replica waits for their reports.
    fleet.postgres.execute("DELETE FROM replicas");
    for replica in &mut fleet.replicas {
        replica.set("KEYWARD_DISABLE_SAFEGUARD", off);
        replica.start();
    }
    fleet.replicas.iter().for_each(Replica::await_ready);
    // Wait until all replicas know how many there are.
    std::thread::sleep(Duration::from_millis(700));
    let shared = load::open(fleet);
    let caller = Caller::new(&shared, StdRng::seed_from_u64(1));
    let mut stage = Stage {
        shared: &shared,
        fleet,
        caller,
        faults: Vec::new(),
        locks: Vec::new(),
        days: 0,
        final_states: Vec::new(),
    };
    faults(&mut stage);
    let Stage { caller, faults, locks, days, final_states, .. } = stage;
    let (began_unix_ms, keys) = (shared.began_unix_ms, shared.keys().clone());
    let calls = caller.calls;
    let mut run =
        Run { began_unix_ms, days, calls, faults, locks, keys, final_states, ..Run::default() };
    run.sort();
    let findings = check::all(&run);
    findings
        .into_iter()
        .find(|finding| finding.guarantee == guarantee)
        .expect("a check of the guarantee")
}

pub struct Stage<'a> {
    pub shared: &'a Shared,
    pub fleet: &'a mut Fleet,
    pub caller: Caller<'a>,
    faults: Vec<InjectedFault>,
    locks: Vec<AccountLock>,
    /// How many days the database was made to believe have passed.
    days: i64,
    /// The final state of keys, if the case reads it.
    pub final_states: Vec<KeyFinalState>,
}

impl Stage<'_> {
    fn key(&mut self, info: KeyInfo) -> KeyIndex {
        self.caller.create(0, info).expect("a key")
    }

    pub fn metered(&mut self, credits: i64) -> KeyIndex {
        self.key(KeyInfo { credits: Some(credits), ..KeyInfo::default() })
    }

    fn limited(&mut self, limit: i64) -> KeyIndex {
        let limits = vec![("requests".to_owned(), limit, 60_000)];
        self.key(KeyInfo { limits, ..KeyInfo::default() })
    }

    pub fn verify(&mut self, replica: usize, key: KeyIndex, cost: i64) -> bool {
        self.caller.send(replica, Action::Verify { key, cost }).is_valid()
    }

    /// Spends at a replica until nothing is left, or too much has been spent.
    pub fn drain(&mut self, replica: usize, key: KeyIndex, cost: i64, times_max: usize) {
        (0..times_max).any(|_| !self.verify(replica, key, cost));
    }

    /// Spends for this long, so that the top-ups of the lease follow the demand.
    pub fn spend_for(&mut self, ms: u64, replica: usize, key: KeyIndex, cost: i64) {
        let until = self.shared.began.elapsed() + Duration::from_millis(ms);
        while self.shared.began.elapsed() < until {
            self.verify(replica, key, cost);
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    /// Verifies at a replica for this long.
    fn watch(&mut self, replica: usize, key: KeyIndex, ms: u64) {
        let until = self.shared.began.elapsed() + Duration::from_millis(ms);
        while self.shared.began.elapsed() < until {
            self.verify(replica, key, 0);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Spends at replica 0 until nothing has been left for two seconds, in which withheld credits are returned.
    pub fn spend_all(&mut self, key: KeyIndex, cost: i64) {
        let mut spent = self.shared.began.elapsed();
        while self.shared.began.elapsed() < spent + Duration::from_secs(2) {
            match self.verify(0, key, cost) {
                true => spent = self.shared.began.elapsed(),
                false => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    fn restart(&mut self, replica: usize) {
        let replica = &mut self.fleet.replicas[replica];
        replica.kill();
        replica.start();
        replica.await_ready();
    }

    /// Replaces a replica that deregisters: no other replica waits for it.
    pub fn replace(&mut self, replica: usize) {
        let replica = &mut self.fleet.replicas[replica];
        replica.stop();
        replica.start();
        replica.await_ready();
    }

    /// Locks the account of a key during this function.
    pub fn with_locked_account(&mut self, key: KeyIndex, run: impl FnOnce(&mut Self)) {
        let id = self.shared.keys()[key].id.clone();
        let lock = Lock::of_account(self.fleet.postgres.url(), &id);
        let began = self.shared.began.elapsed();
        run(self);
        self.locks.push(AccountLock { key, began, ended: self.shared.began.elapsed() });
        drop(lock);
    }

    pub fn with_fault(&mut self, kind: FaultKind, run: impl FnOnce(&mut Self)) {
        let at = self.shared.began.elapsed();
        let fault = Fault { at, duration: Duration::ZERO, kind };
        self.fleet.begin(&fault);
        // Recorded before it ends, for calls during the fault.
        self.faults.push(InjectedFault { fault, began: at, ended: at });
        let index = self.faults.len() - 1;
        run(self);
        self.fleet.end(&fault);
        self.faults[index].ended = self.shared.began.elapsed();
    }
}

/// All credits are spent, but the follower lags and has the leases of before.
fn fail_over_to_a_redis_that_is_behind(stage: &mut Stage) {
    let keys = [10_000, 10_000, 10_000].map(|credits| stage.metered(credits));
    for key in keys {
        stage.spend_for(300, 0, key, 50);
    }
    stage.with_fault(FaultKind::FailOver, |stage| {
        for key in keys {
            stage.drain(0, key, 50, 400);
        }
    });
    // Wait until the replicas find the promoted Redis.
    std::thread::sleep(Duration::from_millis(500));
    for key in keys {
        stage.spend_for(100, 1, key, 1);
    }
}

fn kill_a_replica_that_has_spent(stage: &mut Stage) {
    let key = stage.metered(1_000);
    stage.verify(0, key, 250);
    stage.with_fault(FaultKind::KillReplica(0), |_| {});
    stage.drain(1, key, 250, 8);
    stage.fleet.replicas[0].await_ready();
}

fn crowd_at_a_window(stage: &mut Stage) {
    for _ in 0..3 {
        let key = stage.limited(20);
        verify_concurrently(stage, key, (12, 6), Duration::ZERO);
    }
}

/// A window is full, and a later version of the program stores its count in another format.
fn count_beside_a_later_version(stage: &mut Stage) {
    let key = stage.limited(9);
    stage.drain(0, key, 0, 9);
    stage.fleet.run_in_redis(
        "for _, key in ipairs(redis.call('KEYS', '*w:{*')) do \
        local number = string.sub(redis.call('GET', key), 1, 8) \
        local value = number .. string.rep(string.char(0), 16) .. string.char(2) .. 'nine' \
        redis.call('SET', key, value, 'KEEPTTL') \
        end",
    );
    stage.drain(1, key, 0, 12);
}

/// Verifies a key from this many callers, this many times each, with a pause in between.
fn verify_concurrently(
    stage: &mut Stage,
    key: KeyIndex,
    (callers, times): (u64, usize),
    rest: Duration,
) {
    let shared = stage.shared;
    let calls: Vec<Vec<Call>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..callers)
            .map(|n| {
                let mut caller = Caller::new(shared, StdRng::seed_from_u64(n));
                scope.spawn(move || {
                    let replica = (n % 3) as usize;
                    for _ in 0..times {
                        caller.send(replica, Action::Verify { key, cost: 0 });
                        std::thread::sleep(rest);
                    }
                    caller.calls
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a caller")).collect()
    });
    stage.caller.calls.extend(calls.into_iter().flatten());
}

/// Creates a key with a limit that two seconds of a crowd use up.
fn create_wide_limit(stage: &mut Stage) -> KeyIndex {
    let limits = vec![("requests".to_owned(), 400, 3_600_000)];
    stage.key(KeyInfo { limits, ..KeyInfo::default() })
}

fn use_up_a_window_while_redis_stalls(stage: &mut Stage) {
    let key = create_wide_limit(stage);
    stage.with_fault(FaultKind::StallRedis, |stage| {
        verify_concurrently(stage, key, (9, 60), Duration::from_millis(15));
    });
    verify_concurrently(stage, key, (9, 30), Duration::ZERO);
}

/// Each replica runs for 40 of 100 ms, as with a CPU quota.
fn use_up_a_window_while_replicas_are_throttled(stage: &mut Stage) {
    let key = create_wide_limit(stage);
    let stalls: Vec<_> =
        stage.fleet.replicas.iter().map(|replica| Stalls::of(replica.pid())).collect();
    verify_concurrently(stage, key, (9, 60), Duration::ZERO);
    drop(stalls);
}

/// Replica 1 learns of changes half a second late from Redis, and not at all from Postgres.
fn spend_where_a_change_is_not_known(stage: &mut Stage) {
    stage.fleet.replicas[1].set("KEYWARD_REDIS_TIMEOUT_MS", Some("5000"));
    stage.restart(1);
    let key = stage.metered(50_000);
    stage.spend_for(1_200, 1, key, 10);
    stage.with_fault(FaultKind::HolePostgres(1), |stage| {
        let late = LinkState::Slow(Duration::from_millis(500));
        stage.fleet.replicas[1].redis.set(LinkState::Open, late);
        stage.caller.send(0, Action::Credits { key, change: Change::Set(0) });
        let (shared, patient) = (stage.shared, StdRng::seed_from_u64(2));
        let calls = std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                let mut caller = Caller::new(shared, patient);
                caller.send(1, Action::Verify { key, cost: 1 });
                caller.calls
            });
            std::thread::sleep(Duration::from_millis(1_200));
            stage.fleet.replicas[1].redis.mend();
            stage.fleet.replicas[1].postgres.mend();
            thread.join().expect("a caller")
        });
        stage.caller.calls.extend(calls);
    });
    stage.fleet.replicas[1].set("KEYWARD_REDIS_TIMEOUT_MS", None);
}

/// Replica 0 cannot close the lease that replica 1 spends from.
fn set_a_balance_without_redis(stage: &mut Stage) {
    let keys = [50_000, 50_000, 50_000].map(|credits| stage.metered(credits));
    for key in keys {
        stage.spend_for(400, 1, key, 10);
    }
    stage.with_fault(FaultKind::CutRedis(0), |stage| {
        for key in keys {
            stage.caller.send(0, Action::Credits { key, change: Change::Set(0) });
            stage.drain(1, key, 1, 200);
        }
    });
}

fn spend_for_a_day_and_the_next(stage: &mut Stage) {
    let info = KeyInfo { credits: Some(20), refill: Some(20), ..KeyInfo::default() };
    let key = stage.key(info);
    stage.drain(0, key, 5, 10);
    let id = stage.shared.keys()[key].id.clone();
    block_on(async {
        let mut connection = PgConnection::connect(&stage.fleet.postgres.url()).await.expect("it");
        let update = "UPDATE keys SET refilled = refilled - 1 WHERE id = $1";
        let updated = sqlx::query(update).bind(id).execute(&mut connection).await;
        assert_eq!(updated.expect("the key").rows_affected(), 1);
    });
    stage.days = 1;
    stage.drain(1, key, 5, 20);
}

fn fill_a_window_without_redis(stage: &mut Stage) {
    let key = stage.limited(9);
    stage.with_fault(FaultKind::RestartRedis, |stage| {
        for replica in 0..3 {
            (0..12).for_each(|_| {
                stage.verify(replica, key, 0);
            });
        }
    });
}

fn ask_while_redis_hangs(stage: &mut Stage) {
    let key = stage.limited(1_000_000);
    stage.verify(0, key, 0);
    let shared = stage.shared;
    let calls = std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let mut caller = Caller::new(shared, StdRng::seed_from_u64(3));
            for _ in 0..20 {
                std::thread::sleep(Duration::from_millis(20));
                caller.send(0, Action::Control);
                caller.send(0, Action::Verify { key, cost: 0 });
            }
            caller.calls
        });
        stage.with_fault(FaultKind::StopRedis, |_| std::thread::sleep(Duration::from_secs(1)));
        thread.join().expect("a caller")
    });
    stage.caller.calls.extend(calls);
}

/// The replica knows the caller, and not the key.
fn ask_without_postgres(stage: &mut Stage) {
    let [cached, uncached] = [0, 0].map(|_| stage.key(KeyInfo::default()));
    stage.verify(1, cached, 0);
    stage.with_fault(FaultKind::CutPostgres(1), |stage| {
        stage.verify(1, uncached, 0);
    });
}

/// Replica 0 cannot announce what replica 1 could only learn from an announcement.
fn end_a_key_where_redis_is_away_for_one_and_postgres_for_another(stage: &mut Stage) {
    let key = stage.key(KeyInfo::default());
    stage.verify(1, key, 0);
    // Wait until announcements are relied on.
    std::thread::sleep(Duration::from_millis(1_500));
    stage.with_fault(FaultKind::CutPostgres(1), |stage| {
        stage.with_fault(FaultKind::CutRedis(0), |stage| {
            stage.caller.send(0, Action::Disable { key });
            stage.watch(1, key, 3_000);
        });
    });
}

/// Replica 1 learns of the change neither from the Redis that is lost, nor from the one that replaces it.
fn lose_an_announcement(stage: &mut Stage) {
    let key = stage.key(KeyInfo::default());
    stage.verify(1, key, 0);
    // Wait until announcements are relied on.
    std::thread::sleep(Duration::from_millis(1_500));
    stage.with_fault(FaultKind::CutPostgres(1), |stage| {
        stage.with_fault(FaultKind::CutRedis(1), |stage| {
            stage.with_fault(FaultKind::FailOver, |stage| {
                stage.caller.send(0, Action::Disable { key });
                // Wait until all other replicas know the outcome: they would announce it again in the new Redis.
                std::thread::sleep(Duration::from_millis(500));
            });
        });
        stage.watch(1, key, 8_000);
    });
}

/// Replica 1 stays with the old master, without Postgres, while the others use the promoted one.
fn end_a_key_beside_another_master(stage: &mut Stage) {
    let key = stage.key(KeyInfo::default());
    stage.verify(1, key, 0);
    // Wait until announcements are relied on.
    std::thread::sleep(Duration::from_millis(1_500));
    stage.with_fault(FaultKind::SplitRedis(1), |stage| {
        stage.with_fault(FaultKind::CutPostgres(1), |stage| {
            // Wait until no replica waits for it.
            std::thread::sleep(Duration::from_millis(2_500));
            let until = stage.shared.began.elapsed() + Duration::from_secs(10);
            let end = Action::Disable { key };
            while stage.shared.began.elapsed() < until
                && stage.caller.send(0, end.clone()).status != 200
            {
                std::thread::sleep(Duration::from_millis(100));
            }
            stage.watch(1, key, 8_000);
        });
    });
}

/// Redis is unreachable for replica 0, which debits accounts directly, and one of them is locked.
fn debit_beside_a_locked_account(stage: &mut Stage) {
    let keys = [1_000_000; 4].map(|credits| stage.metered(credits));
    let [locked, ..] = keys;
    for key in keys {
        stage.verify(0, key, 0);
    }
    let shared = stage.shared;
    stage.with_fault(FaultKind::CutRedis(0), |stage| {
        stage.with_locked_account(locked, |stage| {
            let call = |key: KeyIndex| {
                let mut caller = Caller::new(shared, StdRng::seed_from_u64(6));
                let until = shared.began.elapsed() + Duration::from_millis(1_500);
                while shared.began.elapsed() < until {
                    caller.send(0, Action::Verify { key, cost: 1 });
                    std::thread::sleep(Duration::from_millis(5));
                }
                caller.calls
            };
            let calls: Vec<_> = std::thread::scope(|scope| {
                let keys = [locked; 3].into_iter().chain(keys);
                let threads: Vec<_> = keys.map(|key| scope.spawn(move || call(key))).collect();
                threads.into_iter().flat_map(|it| it.join().expect("a caller")).collect()
            });
            stage.caller.calls.extend(calls);
        });
    });
}

/// Replica 0 dies after the commit, and replica 1 learns of the intent alone.
fn die_before_a_result_is_announced(stage: &mut Stage) {
    let key = stage.key(KeyInfo::default());
    stage.verify(1, key, 0);
    // It would find the result in the change log, and announce it.
    stage.fleet.replicas[2].stop();
    stage.fleet.replicas[0].set("KEYWARD_DISABLE_SAFEGUARD", Some("result"));
    stage.replace(0);
    // Wait until announcements are relied on.
    std::thread::sleep(Duration::from_millis(1_500));
    stage.with_fault(FaultKind::CutPostgres(1), |stage| {
        // Wait until the last read of the change log is too old to prove anything.
        std::thread::sleep(Duration::from_millis(2_100));
        stage.caller.send(0, Action::Disable { key });
        stage.fleet.replicas[0].set("KEYWARD_DISABLE_SAFEGUARD", None);
        stage.with_fault(FaultKind::KillReplica(0), |_| {});
        stage.fleet.replicas[0].await_ready();
        // It does not know the intent, and reads the key.
        stage.verify(0, key, 0);
        stage.watch(1, key, 2_000);
    });
}

/// Replica 1 learns of a change neither from the change feed nor from the change log, of which it reads only the end
/// afterwards.
fn fall_behind_the_change_log(stage: &mut Stage) {
    let key = stage.key(KeyInfo::default());
    stage.verify(1, key, 0);
    stage.fleet.replicas[1].redis.cut_feed();
    stage.with_fault(FaultKind::HolePostgres(1), |stage| {
        stage.caller.send(0, Action::Disable { key });
        stage.fleet.postgres.execute(
            "INSERT INTO changes (at, subject)
            SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT), 'key:' || n
            FROM generate_series(1, 100001) n",
        );
    });
    // Wait until it has read the change log.
    std::thread::sleep(Duration::from_secs(1));
    stage.watch(1, key, 1_500);
    stage.fleet.replicas[1].redis.mend();
}
