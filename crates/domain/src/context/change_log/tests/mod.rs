//! Drives readers of the change log through rare schedules, in virtual time, against a model of the database.

mod bounds;
mod log_model;

use std::collections::BTreeSet;

use super::*;
use log_model::{LogModel, SECOND_MS};

/// Returns a database, and a reader that has read it.
fn log_and_reader() -> (LogModel, ChangeLogReader) {
    let (mut log, mut reader) = (LogModel::new(), ChangeLogReader::new(Monotonic::default()));
    log.commit_with(&["first"]);
    assert_eq!(log.read(&mut reader), ["first"]);
    assert!(!log.has_listed_rows());
    (log, reader)
}

/// Returns a database with a transaction that wrote its row, `old`, more than a minute ago and is still running, and a reader
/// that has read nothing.
fn log_with_old_writer() -> (LogModel, i64, ChangeLogReader) {
    let mut log = LogModel::new();
    let old = log.begin_with(&["old"]);
    log.commit_with(&["b"]);
    log.now_ms = 60_001;
    let reader = ChangeLogReader::new(log.now());
    (log, old, reader)
}

const NOTHING: [&str; 0] = [];

#[test]
fn rows_are_applied_once_when_transactions_commit_out_of_order() {
    let (mut log, mut reader) = log_and_reader();
    let (early, late) = (log.begin_with(&["a", "b"]), log.begin_with(&["c"]));
    log.commit(late);
    assert_eq!(log.read(&mut reader), ["c"]);
    log.commit(early);

    assert_eq!(log.read(&mut reader), ["a", "b"]);
    assert_eq!(log.read(&mut reader), NOTHING);
}

#[test]
fn missing_row_is_applied_when_its_transaction_commits_late() {
    let (mut log, mut reader) = log_and_reader();
    let late = log.begin_with(&["late"]);
    log.commit_with(&["b"]);
    assert_eq!(log.read(&mut reader), ["b"]);
    for _ in 0..100 {
        assert_eq!(log.read_after(SECOND_MS, &mut reader), NOTHING);
        assert!(log.has_listed_rows());
    }
    log.commit(late);

    assert_eq!(log.read(&mut reader), ["late"]);
}

#[test]
fn missing_row_is_forgotten_when_its_transaction_was_rolled_back_two_seconds_ago() {
    let (mut log, mut reader) = log_and_reader();
    let undone = log.begin_with(&["undone"]);
    log.commit_with(&["b"]);
    log.roll_back(undone);
    assert_eq!(log.read(&mut reader), ["b"]);
    assert_eq!(log.read_after(1_999, &mut reader), NOTHING);
    assert_eq!(log.read_after(1, &mut reader), NOTHING);
    assert!(log.has_listed_rows(), "the query that is the last one");

    assert_eq!(log.read(&mut reader), NOTHING);
    assert!(!log.has_listed_rows());
}

#[test]
fn writers_are_found_when_another_transaction_runs_for_long() {
    let (mut log, mut reader) = log_and_reader();
    let foreign = log.begin();
    let undone = log.begin_with(&["undone"]);
    log.commit_with(&["b"]);
    log.roll_back(undone);
    assert_eq!(log.read(&mut reader), ["b"]);
    assert_eq!(log.read_after(1_999, &mut reader), NOTHING);
    assert!(!log.has_found_writers(), "the check is expensive");
    assert!(log.has_listed_rows());

    // The foreign transaction has written nothing to the log, so the row is known to be gone.
    assert_eq!(log.read_after(1, &mut reader), NOTHING);
    assert!(log.has_found_writers());
    assert_eq!(log.read(&mut reader), NOTHING);
    assert!(!log.has_listed_rows());
    log.commit(foreign);
    log.read(&mut reader);
    log.read(&mut reader);
    assert!(!log.has_found_writers());
}

#[test]
fn row_of_long_transaction_is_applied_when_it_is_written_late() {
    let (mut log, mut reader) = log_and_reader();
    let long = log.begin();
    for _ in 0..100 {
        assert_eq!(log.read_after(SECOND_MS, &mut reader), NOTHING);
    }
    log.write(long, "late");
    log.commit_with(&["b"]);
    assert_eq!(log.read_after(SECOND_MS, &mut reader), ["b"]);
    log.read_after(10 * SECOND_MS, &mut reader);
    log.commit(long);

    assert_eq!(log.read(&mut reader), ["late"]);
}

#[test]
fn reader_begins_with_rows_that_are_a_minute_old() {
    let mut log = LogModel::new();
    log.commit_with(&["old"]);
    log.now_ms = 60_001;
    log.commit_with(&["new"]);
    let mut reader = ChangeLogReader::new(log.now());

    assert_eq!(log.read(&mut reader), ["new"]);
    assert!(!log.has_found_writers());
    assert_eq!(log.read(&mut reader), NOTHING);
}

#[test]
fn everything_is_invalidated_when_first_read_is_late() {
    let mut log = LogModel::new();
    let mut reader = ChangeLogReader::new(log.now());
    assert_eq!(log.read_after(30_001, &mut reader), ["ALL"]);
    assert_eq!(log.read(&mut reader), NOTHING);

    let mut in_time = ChangeLogReader::new(log.now());
    assert_eq!(log.read_after(30_000, &mut in_time), NOTHING);
}

#[test]
fn everything_is_invalidated_in_each_pass_until_writers_of_the_first_read_have_ended() {
    let (mut log, old, mut reader) = log_with_old_writer();
    assert_eq!(log.read(&mut reader), ["ALL", "ALL"]);
    assert_eq!(log.read_after(SECOND_MS, &mut reader), ["ALL"]);
    log.commit(old);

    assert_eq!(log.read(&mut reader), ["ALL"], "the row is below the position");
    assert_eq!(log.read(&mut reader), NOTHING);
}

#[test]
fn change_is_not_lost_when_it_commits_while_the_first_read_asks_for_writers() {
    let (mut log, old, mut reader) = log_with_old_writer();
    reader.begin_pass(log.now());
    assert_eq!(log.step(&mut reader, &mut |_| {}), Some(Vec::new()));

    log.commit(old);

    let rest: Vec<_> =
        std::iter::from_fn(|| log.step(&mut reader, &mut |_| {})).flatten().collect();
    assert_eq!(rest, ["ALL"], "the row is below the start");
}

#[test]
fn first_read_invalidates_once_when_running_transactions_have_written_nothing() {
    let mut log = LogModel::new();
    log.begin();
    let mut reader = ChangeLogReader::new(log.now());

    assert_eq!(log.read(&mut reader), ["ALL"]);
    assert!(log.has_found_writers());
    assert_eq!(log.read(&mut reader), NOTHING);
}

#[test]
fn everything_is_invalidated_until_skipped_transactions_have_ended_when_reader_is_behind() {
    let (mut log, mut reader) = log_and_reader();
    let slow = log.begin_with(&["slow"]);
    log.next_seq += BEHIND_ROWS_MAX;
    log.commit_with(&["b"]);

    assert_eq!(log.read(&mut reader), ["ALL", "ALL"]);
    assert_eq!(log.read_after(10 * SECOND_MS, &mut reader), ["ALL"]);
    log.commit(slow);
    log.commit_with(&["c"]);
    assert_eq!(log.read(&mut reader), ["c", "ALL"]);
    assert_eq!(log.read(&mut reader), NOTHING);
}

#[test]
fn everything_is_invalidated_for_two_seconds_when_rows_were_skipped() {
    let (mut log, mut reader) = log_and_reader();
    log.next_seq += BEHIND_ROWS_MAX + 1;

    assert_eq!(log.read(&mut reader), ["ALL", "ALL"]);
    assert_eq!(log.read_after(1_999, &mut reader), ["ALL"]);
    assert_eq!(log.read_after(1, &mut reader), ["ALL"]);
    assert_eq!(log.read(&mut reader), NOTHING);
}

#[test]
fn everything_is_invalidated_when_log_is_shorter_than_position() {
    let (mut log, mut reader) = log_and_reader();
    log.commit_with(&["a", "b"]);
    assert_eq!(log.read(&mut reader), ["a", "b"]);
    let mut restored = LogModel::new();
    restored.commit_with(&["x"]);

    assert_eq!(restored.read(&mut reader), ["ALL", "ALL"]);
    restored.commit_with(&["y"]);
    assert_eq!(restored.read_after(2 * SECOND_MS, &mut reader), ["y", "ALL"]);
    assert_eq!(restored.read(&mut reader), NOTHING);
}

#[test]
fn everything_is_invalidated_when_reader_has_slept_while_the_log_was_pruned() {
    let (mut log, mut reader) = log_and_reader();
    log.commit_with(&["pruned"]);
    log.rows.clear();
    // The clock of the reader stood still.
    log.slept_ms = LOG_GAP_MAX_MS + 1;
    log.commit_with(&["b"]);

    assert_eq!(log.read(&mut reader), ["ALL", "ALL"]);
    log.commit_with(&["c"]);
    assert_eq!(log.read_after(2 * SECOND_MS, &mut reader), ["c", "ALL"]);
    assert_eq!(log.read(&mut reader), NOTHING);
}

#[test]
fn everything_is_invalidated_when_too_many_rows_are_missing() {
    let (mut log, mut reader) = log_and_reader();
    let import = log.begin_with(&["import"]);
    log.next_seq += MISSING_ROWS_MAX;
    log.commit_with(&["b"]);

    assert_eq!(log.read(&mut reader), ["b", "ALL", "ALL"]);
    assert_eq!(log.read_after(60 * SECOND_MS, &mut reader), ["ALL"]);
    assert!(!log.has_listed_rows());
    log.commit(import);
    assert_eq!(log.read(&mut reader), ["ALL"]);
    assert_eq!(log.read(&mut reader), NOTHING);
}

#[test]
fn everything_is_invalidated_when_reading_takes_too_long() {
    let (mut log, mut reader) = log_and_reader();
    let many = vec!["a"; 3 * PAGE_ROWS];
    log.commit_with(&many);
    reader.begin_pass(log.now());
    let mut slow = |log: &mut LogModel| log.now_ms += 150;

    let effects: Vec<_> =
        std::iter::from_fn(|| log.step(&mut reader, &mut slow)).flatten().collect();

    assert_eq!(effects.iter().filter(|effect| *effect == "a").count(), PAGE_ROWS);
    assert_eq!(effects[PAGE_ROWS..], ["ALL", "ALL"]);
    assert_eq!(log.read_after(2 * SECOND_MS, &mut reader), ["ALL"]);
    assert_eq!(log.read(&mut reader), NOTHING);
}

#[test]
fn missing_pages_are_skipped_when_they_appear_at_once() {
    let (mut log, mut reader) = log_and_reader();
    let many = log.begin_with(&vec!["a"; PAGE_ROWS]);
    log.commit_with(&["b"]);
    assert_eq!(log.read(&mut reader), ["b"]);
    log.commit(many);

    assert_eq!(log.read(&mut reader), ["ALL", "ALL"]);
}

#[test]
fn next_pass_continues_when_a_pass_is_abandoned() {
    let (mut log, mut reader) = log_and_reader();
    let late = log.begin_with(&["late"]);
    log.commit_with(&["b", "intent 9\nkey:a\n"]);
    reader.begin_pass(log.now());
    assert_eq!(log.step(&mut reader, &mut |_| {}), Some(vec!["b".to_owned(), "intent 9".into()]));
    log.commit(late);
    // The query of the missing rows fails.
    assert!(matches!(reader.next_step(log.now()), LogStep::ListRows { .. }));

    assert_eq!(log.read(&mut reader), ["late"]);
    assert_eq!(log.read(&mut reader), NOTHING);
}

#[test]
fn pass_returns_head_and_intents_that_it_found() {
    let (mut log, mut reader) = log_and_reader();
    log.commit_with(&["intent 7\nkey:a\n", "intent 8\nkey:b\n"]);

    assert_eq!(log.read(&mut reader), ["intent 7", "intent 8"]);

    let end = LogPass { head: log.head(), intents: vec![7, 8] };
    assert_eq!(reader.next_step(log.now()), LogStep::End(end));
}

#[test]
fn delay_is_measured_for_rows_that_are_written_after_the_first_pass() {
    let delays = |reader: &mut ChangeLogReader, log: &LogModel| -> Vec<Option<Duration>> {
        let reply = log.reply(&reader.next_step(log.now())).expect("a page");
        let effects = reader.apply_reply(&reply, log.now());
        let delay = |effect: &LogEffect<'_>| match effect {
            LogEffect::Invalidate { delay, .. } => *delay,
            LogEffect::InvalidateAll | LogEffect::OpenIntent { .. } => None,
        };
        effects.iter().map(delay).collect()
    };
    let (mut log, mut reader) = (LogModel::new(), ChangeLogReader::new(Monotonic::default()));
    log.commit_with(&["a"]);
    log.now_ms = 300;
    assert_eq!(delays(&mut reader, &log), [], "the head");
    assert_eq!(delays(&mut reader, &log), [None]);
    log.commit_with(&["b"]);
    log.now_ms = 500;
    reader.begin_pass(log.now());

    assert_eq!(delays(&mut reader, &log), [Some(Duration::from_millis(200))]);
}

#[test]
fn reader_is_behind_when_too_many_rows_are_unread_or_log_is_shorter() {
    let head = LogHead { top: 150_000, ..LogHead::default() };

    assert!(!is_behind(50_000, &head));
    assert!(is_behind(49_999, &head));
    assert!(!is_behind(150_000, &head));
    assert!(is_behind(150_001, &head));
    assert!(!is_behind(7, &LogHead::default()), "all rows were pruned");
}

/// Random transactions begin, write, commit and are rolled back between the steps of a reader.
#[test]
fn every_change_is_applied_by_the_first_pass_that_begins_after_its_commit() {
    for seed in 1..400_u64 {
        let mut state = seed;
        let mut random = |below: u64| {
            // xorshift64*
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % below
        };
        let (mut log, mut reader) = (LogModel::new(), ChangeLogReader::new(Monotonic::default()));
        // The tags that were committed and not applied.
        let mut unapplied = BTreeSet::new();
        let mut tag_count = 0;
        let mut act = |log: &mut LogModel, unapplied: &mut BTreeSet<String>| {
            log.now_ms += random(400);
            for _ in 0..random(4) {
                let running: Vec<_> = log.running.iter().copied().collect();
                let pick = usize::try_from(random(64)).expect("a small number");
                let picked = (!running.is_empty()).then(|| running[pick % running.len()]);
                match (random(9), picked) {
                    (0..3, _) => drop(log.begin()),
                    (3..6, Some(transaction)) => {
                        tag_count += 1;
                        log.write(transaction, &format!("tag {tag_count}"));
                    }
                    (6, Some(transaction)) => log.roll_back(transaction),
                    (7, _) if random(100) == 0 => log.next_seq += BEHIND_ROWS_MAX,
                    (_, Some(transaction)) => {
                        log.commit(transaction);
                        let of_this =
                            log.rows.values().filter(|(writer, _)| *writer == transaction);
                        unapplied.extend(of_this.map(|(_, row)| row.subject.clone()));
                    }
                    (_, None) => {}
                }
            }
        };
        for _ in 0..60 {
            act(&mut log, &mut unapplied);
            let committed = unapplied.clone();
            reader.begin_pass(log.now());
            while let Some(effects) = log.step(&mut reader, &mut |_| {}) {
                for effect in effects {
                    match effect == "ALL" {
                        true => unapplied.clear(),
                        false => drop(unapplied.remove(&effect)),
                    }
                }
                act(&mut log, &mut unapplied);
            }
            let lost: Vec<_> = committed.intersection(&unapplied).collect();
            assert!(lost.is_empty(), "seed {seed}: {lost:?}");
        }
    }
}
