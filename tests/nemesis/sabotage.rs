//! Each safeguard is missed when it is off: the shortest faults that it is there for, and the check that finds what
//! comes of them. The same faults with the safeguard on are found to do no harm.

use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use sqlx::Connection as _;
use sqlx::postgres::PgConnection;

use crate::caller::{Caller, Shared};
use crate::check::{self, Finding};
use crate::fleet::{Fleet, Replica, Stalls};
use crate::proxy::Way;
use crate::record::{AccountLock, Act, Asked, Change, Done, Ending, KeyFacts, KeyNo, Run};
use crate::schedule::{Fault, Kind};
use crate::servers::{Lock, block_on};
use crate::{alone, leases, load};

/// One safeguard, the faults that it is there for, and what the checks say when it is off.
struct Case {
    /// Its name in `KEYWARD_DISABLE_SAFEGUARD`.
    safeguard: &'static str,
    promise: &'static str,
    /// A part of the violation.
    found: &'static str,
    faults: fn(&mut Stage),
}

const CASES: [Case; 22] = [
    Case {
        safeguard: "fence",
        promise: "P1 credits",
        found: "credits were spent and at most",
        faults: fail_over_to_a_redis_that_is_behind,
    },
    Case {
        safeguard: "debit-first",
        promise: "P1 credits",
        found: "credits were spent and at most",
        faults: kill_a_replica_that_has_spent,
    },
    Case {
        safeguard: "atomic-take",
        promise: "P2 windows",
        found: "while Redis lost its data 0 times",
        faults: crowd_at_a_window,
    },
    Case {
        safeguard: "close-purse",
        promise: "P1 credits",
        found: "1 credits were spent of 0, set",
        faults: spend_where_a_change_is_not_known,
    },
    Case {
        safeguard: "format",
        promise: "P2 windows",
        found: "while Redis lost its data 0 times",
        faults: count_beside_a_later_version,
    },
    Case {
        safeguard: "refill-once",
        promise: "P1 credits",
        found: "credits were spent and at most",
        faults: spend_for_a_day_and_the_next,
    },
    Case {
        safeguard: "share",
        promise: "P2 windows",
        found: "and its share is",
        faults: fill_a_window_without_redis,
    },
    Case {
        safeguard: "timeout",
        promise: "P4 outages of Redis",
        found: "during outages of Redis, p99 was",
        faults: ask_while_redis_hangs,
    },
    Case {
        safeguard: "charge",
        promise: "P2 windows",
        found: "with and without Redis, which stalled 1 times",
        faults: use_up_a_window_while_redis_stalls,
    },
    Case {
        safeguard: "run-time",
        promise: "P4 outages of Redis",
        found: "decided without Redis, which was there",
        faults: use_up_a_window_while_replicas_are_throttled,
    },
    Case {
        safeguard: "absent",
        promise: "P5 outages of Postgres",
        found: "a key that there is was called unknown",
        faults: ask_without_postgres,
    },
    Case {
        safeguard: "reach",
        promise: "P6 revocations",
        found: "was ended",
        faults: end_a_key_where_redis_is_away_for_one_and_postgres_for_another,
    },
    Case {
        safeguard: "gap",
        promise: "P6 revocations",
        found: "was ended",
        faults: lose_an_announcement,
    },
    Case {
        safeguard: "majority",
        promise: "P6 revocations",
        found: "was ended",
        faults: end_a_key_beside_another_master,
    },
    Case {
        safeguard: "lease-bound",
        promise: "P1 credits",
        found: "credits are withheld, and at most",
        faults: leases::begin_at_once_and_lose_redis_and_a_replica,
    },
    Case {
        safeguard: "proven-closed",
        promise: "P1 credits",
        found: "credits were spent of 0, set",
        faults: leases::set_a_balance_beside_another_master,
    },
    Case {
        safeguard: "reported",
        promise: "P1 credits",
        found: "credits were spent and at most",
        faults: leases::spend_from_another_master_after_the_report,
    },
    Case {
        safeguard: "every-report",
        promise: "P1 credits",
        found: "credits were spent and at most",
        faults: leases::lose_redis_while_a_replica_stands_still,
    },
    Case {
        safeguard: "debit-queue",
        promise: "P4 locked accounts",
        found: "were refused while the account of key",
        faults: debit_beside_a_locked_account,
    },
    Case {
        safeguard: "claim",
        promise: "P4 locked accounts",
        found: "were refused while the account of key",
        faults: leases::give_credits_back_beside_a_locked_account,
    },
    Case {
        safeguard: "intent",
        promise: "P6 revocations",
        found: "was ended",
        faults: die_before_a_result_is_announced,
    },
    // The last one: whoever reads the change log later begins far behind, too.
    Case {
        safeguard: "skip",
        promise: "P6 revocations",
        found: "was ended",
        faults: fall_behind_the_change_log,
    },
];

#[test]
fn each_safeguard_is_missed_when_it_is_off() {
    let _turn = alone();
    let mut fleet = Fleet::start(0);
    let mut wrong = Vec::new();
    for Case { safeguard, promise, found, faults } in CASES {
        let on = plays(&mut fleet, None, faults, promise, |finding| finding.violations.is_empty());
        let off = plays(&mut fleet, Some(safeguard), faults, promise, |finding| {
            finding.violations.iter().any(|violation| violation.contains(found))
        });
        wrong.extend(on.map(|on| format!("{safeguard} is on, and the promise is broken: {on:#?}")));
        wrong.extend(off.map(|off| format!("{safeguard} is off, and nobody notices: {off:#?}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_balance_that_is_set_where_redis_is_away_is_not_overspent_elsewhere() {
    let _turn = alone();
    let mut fleet = Fleet::start(0);

    let finding = play(&mut fleet, None, set_a_balance_without_redis, "P1 credits");

    assert!(finding.violations.is_empty(), "{finding:#?}");
}

/// How often a play may have to be repeated where the moment at which something happens is left to the machine, or a
/// deadline of milliseconds to how busy it is.
const PLAYS: usize = 3;

/// Plays until what is found is right. Returns what was found last where it never was.
fn plays(
    fleet: &mut Fleet,
    off: Option<&str>,
    faults: fn(&mut Stage),
    promise: &str,
    is_right: impl Fn(&Finding) -> bool,
) -> Option<Finding> {
    let is_left_to_the_machine = off.is_some() || promise.starts_with("P4");
    let mut last = None;
    for _ in 0..if is_left_to_the_machine { PLAYS } else { 1 } {
        let finding = play(fleet, off, faults, promise);
        if is_right(&finding) {
            return None;
        }
        last = Some(finding);
    }
    last
}

/// Starts the replicas with this safeguard off, does what is to be done, and holds the answers against a promise.
fn play(fleet: &mut Fleet, off: Option<&str>, faults: fn(&mut Stage), promise: &str) -> Finding {
    fleet.replicas.iter_mut().for_each(Replica::kill);
    // Nobody waits for reports of those that were killed.
    fleet.postgres.execute("DELETE FROM replicas");
    for replica in &mut fleet.replicas {
        replica.set("KEYWARD_DISABLE_SAFEGUARD", off);
        replica.start();
    }
    fleet.replicas.iter().for_each(Replica::await_ready);
    // Until all know how many they are.
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
        endings: Vec::new(),
    };
    faults(&mut stage);
    let Stage { caller, faults, locks, days, endings, .. } = stage;
    let (began_unix_ms, keys) = (shared.began_unix_ms, shared.keys().clone());
    let acts = caller.acts;
    let mut run = Run { began_unix_ms, days, acts, faults, locks, keys, endings, ..Run::default() };
    run.sort();
    let findings = check::all(&run);
    findings.into_iter().find(|finding| finding.promise == promise).expect("a check of the promise")
}

pub struct Stage<'a> {
    pub shared: &'a Shared,
    pub fleet: &'a mut Fleet,
    pub caller: Caller<'a>,
    faults: Vec<Done>,
    locks: Vec<AccountLock>,
    /// How many days the database was made to believe have passed.
    days: i64,
    /// What there was at the end, where that was asked.
    pub endings: Vec<Ending>,
}

impl Stage<'_> {
    fn key(&mut self, facts: KeyFacts) -> KeyNo {
        self.caller.create(0, facts).expect("a key")
    }

    pub fn metered(&mut self, credits: i64) -> KeyNo {
        self.key(KeyFacts { credits: Some(credits), ..KeyFacts::default() })
    }

    fn limited(&mut self, limit: i64) -> KeyNo {
        let limits = vec![("requests".to_owned(), limit, 60_000)];
        self.key(KeyFacts { limits, ..KeyFacts::default() })
    }

    pub fn verify(&mut self, replica: usize, key: KeyNo, cost: i64) -> bool {
        self.caller.ask(replica, Asked::Verify { key, cost }).is_valid()
    }

    /// Spends at a replica until nothing is left, or too much has been spent.
    pub fn drain(&mut self, replica: usize, key: KeyNo, cost: i64, times_max: usize) {
        (0..times_max).any(|_| !self.verify(replica, key, cost));
    }

    /// Spends for so long, so that the purse is filled by demand.
    pub fn spend_for(&mut self, ms: u64, replica: usize, key: KeyNo, cost: i64) {
        let until = self.shared.began.elapsed() + Duration::from_millis(ms);
        while self.shared.began.elapsed() < until {
            self.verify(replica, key, cost);
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    /// Verifies at a replica for so long.
    fn watch(&mut self, replica: usize, key: KeyNo, ms: u64) {
        let until = self.shared.began.elapsed() + Duration::from_millis(ms);
        while self.shared.began.elapsed() < until {
            self.verify(replica, key, 0);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Spends at replica 0 until nothing has been left for two seconds, in which what is withheld comes back.
    pub fn spend_all(&mut self, key: KeyNo, cost: i64) {
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

    /// Replaces a replica that signs off: no other one waits for it.
    pub fn replace(&mut self, replica: usize) {
        let replica = &mut self.fleet.replicas[replica];
        replica.stop();
        replica.start();
        replica.await_ready();
    }

    /// Locks the account of a key meanwhile.
    pub fn while_locked(&mut self, key: KeyNo, act: impl FnOnce(&mut Self)) {
        let id = self.shared.keys()[key].id.clone();
        let lock = Lock::of_account(self.fleet.postgres.url(), &id);
        let began = self.shared.began.elapsed();
        act(self);
        self.locks.push(AccountLock { key, began, ended: self.shared.began.elapsed() });
        drop(lock);
    }

    pub fn during(&mut self, kind: Kind, act: impl FnOnce(&mut Self)) {
        let at = self.shared.began.elapsed();
        let fault = Fault { at, lasts: Duration::ZERO, kind };
        self.fleet.begin(&fault);
        // Known before it ends, for what is asked meanwhile.
        self.faults.push(Done { fault, began: at, ended: at });
        let place = self.faults.len() - 1;
        act(self);
        self.fleet.end(&fault);
        self.faults[place].ended = self.shared.began.elapsed();
    }
}

/// All is spent, but the follower has not heard of it. It holds what was in the purses before.
fn fail_over_to_a_redis_that_is_behind(stage: &mut Stage) {
    let keys = [10_000, 10_000, 10_000].map(|credits| stage.metered(credits));
    for key in keys {
        stage.spend_for(300, 0, key, 50);
    }
    stage.during(Kind::FailOver, |stage| {
        for key in keys {
            stage.drain(0, key, 50, 400);
        }
    });
    // The replicas find the promoted one.
    std::thread::sleep(Duration::from_millis(500));
    for key in keys {
        stage.spend_for(100, 1, key, 1);
    }
}

fn kill_a_replica_that_has_spent(stage: &mut Stage) {
    let key = stage.metered(1_000);
    stage.verify(0, key, 250);
    stage.during(Kind::KillReplica(0), |_| {});
    stage.drain(1, key, 250, 8);
    stage.fleet.replicas[0].await_ready();
}

fn crowd_at_a_window(stage: &mut Stage) {
    for _ in 0..3 {
        let key = stage.limited(20);
        crowd(stage, key, (12, 6), Duration::ZERO);
    }
}

/// A window is full, and a later version of the program keeps its count in another place.
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

/// So many callers verify a key so many times each, and rest in between.
fn crowd(stage: &mut Stage, key: KeyNo, (callers, times): (u64, usize), rest: Duration) {
    let shared = stage.shared;
    let acts: Vec<Vec<Act>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..callers)
            .map(|n| {
                let mut caller = Caller::new(shared, StdRng::seed_from_u64(n));
                scope.spawn(move || {
                    let replica = (n % 3) as usize;
                    for _ in 0..times {
                        caller.ask(replica, Asked::Verify { key, cost: 0 });
                        std::thread::sleep(rest);
                    }
                    caller.acts
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a caller")).collect()
    });
    stage.caller.acts.extend(acts.into_iter().flatten());
}

/// A limit that two seconds of a crowd use up.
fn wide(stage: &mut Stage) -> KeyNo {
    let limits = vec![("requests".to_owned(), 400, 3_600_000)];
    stage.key(KeyFacts { limits, ..KeyFacts::default() })
}

fn use_up_a_window_while_redis_stalls(stage: &mut Stage) {
    let key = wide(stage);
    stage.during(Kind::StallRedis, |stage| {
        crowd(stage, key, (9, 60), Duration::from_millis(15));
    });
    crowd(stage, key, (9, 30), Duration::ZERO);
}

/// Each replica runs for 40 of 100 ms, as under a CPU quota.
fn use_up_a_window_while_replicas_are_throttled(stage: &mut Stage) {
    let key = wide(stage);
    let stalls: Vec<_> =
        stage.fleet.replicas.iter().map(|replica| Stalls::of(replica.pid())).collect();
    crowd(stage, key, (9, 60), Duration::ZERO);
    drop(stalls);
}

/// Replica 1 hears of changes half a second late: from Redis, and not at all from Postgres.
fn spend_where_a_change_is_not_known(stage: &mut Stage) {
    stage.fleet.replicas[1].set("KEYWARD_REDIS_TIMEOUT_MS", Some("5000"));
    stage.restart(1);
    let key = stage.metered(50_000);
    stage.spend_for(1_200, 1, key, 10);
    stage.during(Kind::HolePostgres(1), |stage| {
        let late = Way::Slow(Duration::from_millis(500));
        stage.fleet.replicas[1].redis.set(Way::Open, late);
        stage.caller.ask(0, Asked::Credits { key, change: Change::Set(0) });
        let (shared, patient) = (stage.shared, StdRng::seed_from_u64(2));
        let acts = std::thread::scope(|scope| {
            let asked = scope.spawn(move || {
                let mut caller = Caller::new(shared, patient);
                caller.ask(1, Asked::Verify { key, cost: 1 });
                caller.acts
            });
            std::thread::sleep(Duration::from_millis(1_200));
            stage.fleet.replicas[1].redis.mend();
            stage.fleet.replicas[1].postgres.mend();
            asked.join().expect("a caller")
        });
        stage.caller.acts.extend(acts);
    });
    stage.fleet.replicas[1].set("KEYWARD_REDIS_TIMEOUT_MS", None);
}

/// Replica 0 cannot close the purse that replica 1 spends from.
fn set_a_balance_without_redis(stage: &mut Stage) {
    let keys = [50_000, 50_000, 50_000].map(|credits| stage.metered(credits));
    for key in keys {
        stage.spend_for(400, 1, key, 10);
    }
    stage.during(Kind::CutRedis(0), |stage| {
        for key in keys {
            stage.caller.ask(0, Asked::Credits { key, change: Change::Set(0) });
            stage.drain(1, key, 1, 200);
        }
    });
}

fn spend_for_a_day_and_the_next(stage: &mut Stage) {
    let facts = KeyFacts { credits: Some(20), refill: Some(20), ..KeyFacts::default() };
    let key = stage.key(facts);
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
    stage.during(Kind::RestartRedis, |stage| {
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
    let acts = std::thread::scope(|scope| {
        let asked = scope.spawn(move || {
            let mut caller = Caller::new(shared, StdRng::seed_from_u64(3));
            for _ in 0..20 {
                std::thread::sleep(Duration::from_millis(20));
                caller.ask(0, Asked::Control);
                caller.ask(0, Asked::Verify { key, cost: 0 });
            }
            caller.acts
        });
        stage.during(Kind::StopRedis, |_| std::thread::sleep(Duration::from_secs(1)));
        asked.join().expect("a caller")
    });
    stage.caller.acts.extend(acts);
}

/// The replica knows who asks, and not the key that it is asked for.
fn ask_without_postgres(stage: &mut Stage) {
    let [cached, uncached] = [0, 0].map(|_| stage.key(KeyFacts::default()));
    stage.verify(1, cached, 0);
    stage.during(Kind::CutPostgres(1), |stage| {
        stage.verify(1, uncached, 0);
    });
}

/// Replica 0 cannot announce what replica 1 could only hear of.
fn end_a_key_where_redis_is_away_for_one_and_postgres_for_another(stage: &mut Stage) {
    let key = stage.key(KeyFacts::default());
    stage.verify(1, key, 0);
    // Until announcements are relied on.
    std::thread::sleep(Duration::from_millis(1_500));
    stage.during(Kind::CutPostgres(1), |stage| {
        stage.during(Kind::CutRedis(0), |stage| {
            stage.caller.ask(0, Asked::Disable { key });
            stage.watch(1, key, 3_000);
        });
    });
}

/// Replica 1 hears of the change neither from the Redis that is gone, nor from the one that took its place.
fn lose_an_announcement(stage: &mut Stage) {
    let key = stage.key(KeyFacts::default());
    stage.verify(1, key, 0);
    // Until announcements are relied on.
    std::thread::sleep(Duration::from_millis(1_500));
    stage.during(Kind::CutPostgres(1), |stage| {
        stage.during(Kind::CutRedis(1), |stage| {
            stage.during(Kind::FailOver, |stage| {
                stage.caller.ask(0, Asked::Disable { key });
                // Until all others know what became of it: they would announce it again in the Redis that comes.
                std::thread::sleep(Duration::from_millis(500));
            });
        });
        stage.watch(1, key, 8_000);
    });
}

/// Replica 1 stays with the old master, without Postgres, and the others go on with the promoted one.
fn end_a_key_beside_another_master(stage: &mut Stage) {
    let key = stage.key(KeyFacts::default());
    stage.verify(1, key, 0);
    // Until announcements are relied on.
    std::thread::sleep(Duration::from_millis(1_500));
    stage.during(Kind::SplitRedis(1), |stage| {
        stage.during(Kind::CutPostgres(1), |stage| {
            // Until nobody waits for it.
            std::thread::sleep(Duration::from_millis(2_500));
            let until = stage.shared.began.elapsed() + Duration::from_secs(10);
            let end = Asked::Disable { key };
            while stage.shared.began.elapsed() < until
                && stage.caller.ask(0, end.clone()).status != 200
            {
                std::thread::sleep(Duration::from_millis(100));
            }
            stage.watch(1, key, 8_000);
        });
    });
}

/// Redis is away for replica 0, which debits accounts directly, and one of them is locked.
fn debit_beside_a_locked_account(stage: &mut Stage) {
    let keys = [1_000_000; 4].map(|credits| stage.metered(credits));
    let [locked, ..] = keys;
    for key in keys {
        stage.verify(0, key, 0);
    }
    let shared = stage.shared;
    stage.during(Kind::CutRedis(0), |stage| {
        stage.while_locked(locked, |stage| {
            let call = |key: KeyNo| {
                let mut caller = Caller::new(shared, StdRng::seed_from_u64(6));
                let until = shared.began.elapsed() + Duration::from_millis(1_500);
                while shared.began.elapsed() < until {
                    caller.ask(0, Asked::Verify { key, cost: 1 });
                    std::thread::sleep(Duration::from_millis(5));
                }
                caller.acts
            };
            let acts: Vec<_> = std::thread::scope(|scope| {
                let keys = [locked; 3].into_iter().chain(keys);
                let threads: Vec<_> = keys.map(|key| scope.spawn(move || call(key))).collect();
                threads.into_iter().flat_map(|it| it.join().expect("a caller")).collect()
            });
            stage.caller.acts.extend(acts);
        });
    });
}

/// Replica 0 dies after the commit, and replica 1 hears of the intent alone.
fn die_before_a_result_is_announced(stage: &mut Stage) {
    let key = stage.key(KeyFacts::default());
    stage.verify(1, key, 0);
    // It would find the result in the change log, and announce it.
    stage.fleet.replicas[2].stop();
    stage.fleet.replicas[0].set("KEYWARD_DISABLE_SAFEGUARD", Some("result"));
    stage.replace(0);
    // Until announcements are relied on.
    std::thread::sleep(Duration::from_millis(1_500));
    stage.during(Kind::CutPostgres(1), |stage| {
        // Until the change log was read too long ago to prove anything.
        std::thread::sleep(Duration::from_millis(2_100));
        stage.caller.ask(0, Asked::Disable { key });
        stage.fleet.replicas[0].set("KEYWARD_DISABLE_SAFEGUARD", None);
        stage.during(Kind::KillReplica(0), |_| {});
        stage.fleet.replicas[0].await_ready();
        // It knows nothing of the intent, and reads the key.
        stage.verify(0, key, 0);
        stage.watch(1, key, 2_000);
    });
}

/// Replica 1 hears of a change neither from the feed nor from the change log, of which it reads only the end afterwards.
fn fall_behind_the_change_log(stage: &mut Stage) {
    let key = stage.key(KeyFacts::default());
    stage.verify(1, key, 0);
    stage.fleet.replicas[1].redis.cut_feed();
    stage.during(Kind::HolePostgres(1), |stage| {
        stage.caller.ask(0, Asked::Disable { key });
        stage.fleet.postgres.execute(
            "INSERT INTO changes (at, subject)
            SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT), 'key:' || n
            FROM generate_series(1, 100001) n",
        );
    });
    // Until it has read the change log.
    std::thread::sleep(Duration::from_secs(1));
    stage.watch(1, key, 1_500);
    stage.fleet.replicas[1].redis.mend();
}
