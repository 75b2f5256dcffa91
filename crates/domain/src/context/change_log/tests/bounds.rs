//! Tests readers at the bounds of what they read, and passes that several rare events meet.

use super::*;

#[test]
fn last_page_is_read_however_late_and_others_within_a_quarter_of_a_second() {
    let (mut log, mut reader) = log_and_reader();
    log.commit_with(&vec!["a"; PAGE_ROWS + 1]);
    reader.begin_pass(log.now());
    let mut slow = |log: &mut LogModel| log.now_ms += 250;

    let effects: Vec<_> =
        std::iter::from_fn(|| log.step(&mut reader, &mut slow)).flatten().collect();

    assert_eq!(effects.len(), PAGE_ROWS + 1);
    assert!(effects.iter().all(|effect| effect == "a"));
}

#[test]
fn rows_are_read_when_the_last_read_was_an_hour_ago() {
    let (mut log, mut reader) = log_and_reader();
    log.slept_ms = LOG_GAP_MAX_MS;
    log.commit_with(&["b"]);

    assert_eq!(log.read(&mut reader), ["b"]);
}

#[test]
fn ten_thousand_missing_rows_are_queried() {
    let (mut log, mut reader) = log_and_reader();
    let import = log.begin_with(&["import"]);
    log.next_seq += MISSING_ROWS_MAX - 1;
    log.commit_with(&["b"]);
    assert_eq!(log.read(&mut reader), ["b"]);
    log.commit(import);

    assert_eq!(log.read(&mut reader), ["import"]);
}

#[test]
fn everything_is_invalidated_after_a_skip_also_by_passes_that_query_missing_rows() {
    let (mut log, mut reader) = log_and_reader();
    let slow = log.begin_with(&["slow"]);
    log.next_seq += BEHIND_ROWS_MAX;
    assert_eq!(log.read(&mut reader), ["ALL", "ALL"]);
    let late = log.begin_with(&["late"]);
    log.commit_with(&["c", "intent 9\nkey:a\n"]);

    assert_eq!(log.read(&mut reader), ["c", "intent 9", "ALL"]);
    assert!(log.has_listed_rows());
    let end = LogPass { head: log.head(), intents: vec![9] };
    assert_eq!(reader.next_step(log.now()), LogStep::End(end));
    log.commit(slow);
    log.commit(late);
    assert_eq!(log.read_after(2 * SECOND_MS, &mut reader), ["late", "ALL"]);
    assert_eq!(log.read(&mut reader), NOTHING);
}

#[test]
fn everything_is_invalidated_once_when_writers_end_during_the_first_pass() {
    let (mut log, old, mut reader) = log_with_old_writer();
    reader.begin_pass(log.now());
    // The head, and the transactions that have written to the log.
    assert_eq!(log.step(&mut reader, &mut |_| {}), Some(Vec::new()));
    assert_eq!(log.step(&mut reader, &mut |_| {}), Some(vec!["ALL".to_owned()]));
    log.commit(old);

    let effects: Vec<_> =
        std::iter::from_fn(|| log.step(&mut reader, &mut |_| {})).flatten().collect();

    assert_eq!(effects, ["ALL"]);
    assert_eq!(log.read(&mut reader), NOTHING);
}

#[test]
fn everything_is_invalidated_until_writers_have_ended_whatever_other_transactions_run() {
    let mut log = LogModel::new();
    let old = log.begin_with(&["old"]);
    log.commit_with(&["b"]);
    log.begin();
    log.now_ms = 60_001;
    let mut reader = ChangeLogReader::new(log.now());
    assert_eq!(log.read(&mut reader), ["ALL", "ALL"]);
    log.commit(old);

    assert_eq!(log.read(&mut reader), ["ALL"]);
    assert_eq!(log.read(&mut reader), NOTHING);
}
