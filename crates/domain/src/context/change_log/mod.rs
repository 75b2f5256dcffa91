//! Decides how the change log is read: each row once, in whatever order transactions commit.
//!
//! Rows are numbered when they are written, and visible when their transaction commits. So a number that is missing may
//! still appear, or never, if its transaction was rolled back. It is queried again in each pass until all transactions
//! have ended that were running when it was missed.
//!
//! A [`ChangeLogReader`] queries nothing itself and reads no clock: its owner performs the [`LogStep`]s and passes the
//! replies and the time to it.

mod missing_rows;
mod steps;
#[cfg(test)]
mod tests;

use std::time::Duration;

use foundation::clock::Monotonic;
use foundation::fault_injection::Safeguard;
use store::{ChangeRow, LogHead, PAGE_ROWS};

use self::missing_rows::{MissingRange, count_missing, remove_found};
use super::feed::Announcement;

pub use self::steps::{LogEffect, LogPass, LogReply, LogStep};

/// A reader that is further behind than this, in rows or in time, treats everything as changed and continues at the
/// end.
const BEHIND_ROWS_MAX: i64 = 100_000;
const BEHIND_DURATION_MAX: Duration = Duration::from_millis(250);
/// Rows of the log are stored for a day. A reader that has not read for this long, by the database's clock, treats
/// everything as changed. Its own clock may have stopped together with its machine.
const LOG_GAP_MAX_MS: i64 = foundation::clock::HOUR_MS;
/// The maximum number of missing rows to query. If more are missing, a large transaction is running or was rolled back,
/// and querying its rows in each pass would cost more than reloading what is in use.
const MISSING_ROWS_MAX: i64 = 10_000;
/// The minimum time for which a missing row is queried: a number is assigned a moment before its transaction is
/// visible.
const MISSING_DURATION_MIN: Duration = Duration::from_secs(2);

/// How long a transaction must have been running before the reader checks whether it has written to the change log. The
/// check reads all locks.
const LONG_TRANSACTION_MIN: Duration = Duration::from_secs(2);

/// How long after its creation a reader may read for the first time: it begins with rows that are a minute old.
const FIRST_READ_DELAY_MAX: Duration = Duration::from_secs(30);

/// The position of a reader in the change log, and the pass in progress.
#[derive(Debug)]
pub struct ChangeLogReader {
    created_at: Monotonic,
    /// The last row that was read; 0: none. Absent: nothing has been read yet.
    position: Option<i64>,
    /// Rows below the position that have not been read.
    missing_ranges: Vec<MissingRange>,
    /// Set when rows were skipped, some of which may not have been committed at that time.
    skipped_rows: Option<SkippedRows>,
    /// A moment at which transactions were running that have not all ended.
    awaited_moment: Option<LogMoment>,
    /// The database's time of the last read.
    read_at: Option<i64>,
    /// Whether the reader has caught up with the past, so that rows read from now on are new.
    is_caught_up: bool,
    pass: PassState,
}

/// The moment at which rows were skipped.
#[derive(Debug, Clone, Copy)]
struct SkippedRows {
    skipped_at: LogMoment,
    /// The minimum time until the transactions of the skipped rows are visible.
    delay_min: Duration,
}

/// A moment, identified by the transactions that were running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LogMoment {
    next_transaction: i64,
    at: Monotonic,
}

impl LogMoment {
    fn new(head: &LogHead, at: Monotonic) -> Self {
        Self { next_transaction: head.next, at }
    }

    /// Returns whether all transactions have ended that were running at this moment.
    fn is_settled(self, head: &LogHead) -> bool {
        head.ended_below >= self.next_transaction
    }
}

/// The pass in progress. It is discarded when the next one begins, and what it has applied stays applied.
#[derive(Debug)]
struct PassState {
    began_at: Monotonic,
    stage: PassStage,
    /// What [`LogStep::LoadWritersEndedBelow`] returned when the pass began; 0 if it was not necessary.
    writers_ended_below: i64,
    /// Absent until the first page has been read.
    head: Option<LogHead>,
    intents: Vec<i64>,
}

/// What the pass in progress does next.
#[derive(Debug)]
enum PassStage {
    Begin,
    ReadPage,
    /// Determine whether reading can begin at this head without the rows of transactions that are still running.
    FindStart(LogHead),
    /// Continue after this row.
    Skip(i64),
    ReadMissing,
    End,
}

impl ChangeLogReader {
    pub fn new(now: Monotonic) -> Self {
        Self {
            created_at: now,
            position: None,
            missing_ranges: Vec::new(),
            skipped_rows: None,
            awaited_moment: None,
            read_at: None,
            is_caught_up: false,
            pass: PassState::new(now),
        }
    }

    /// Begins a pass, which reads to the end of the log: once it has ended, every change committed before this call is
    /// applied. A pass that has not ended, because a query failed, is abandoned.
    pub fn begin_pass(&mut self, now: Monotonic) {
        self.pass = PassState::new(now);
    }

    /// Returns what to do next.
    pub fn next_step(&self, now: Monotonic) -> LogStep {
        let pass = &self.pass;
        match &pass.stage {
            PassStage::Begin if self.must_find_writers(now) => LogStep::LoadWritersEndedBelow,
            PassStage::Begin | PassStage::ReadPage => {
                LogStep::LoadPage { after: self.position.unwrap_or(i64::MAX) }
            }
            PassStage::FindStart(_) => LogStep::LoadWritersEndedBelow,
            PassStage::Skip(_) => LogStep::LoadPage { after: i64::MAX },
            PassStage::ReadMissing => {
                let ranges = self.missing_ranges.iter().map(|gap| (gap.first_seq, gap.last_seq));
                LogStep::ListRows { ranges: ranges.collect() }
            }
            PassStage::End => LogStep::End(LogPass {
                head: pass.head.clone().unwrap_or_default(),
                intents: pass.intents.clone(),
            }),
        }
    }

    /// A transaction of another application may run for hours.
    fn must_find_writers(&self, now: Monotonic) -> bool {
        let is_long = self
            .awaited_moment
            .is_some_and(|awaited| now.since(awaited.at) >= LONG_TRANSACTION_MIN);
        is_long || self.skipped_rows.is_some()
    }

    /// Applies the reply to the step that [`ChangeLogReader::next_step`] returned. `now` is the time at which it arrived.
    /// A reply of another kind is ignored.
    pub fn apply_reply<'a>(&mut self, reply: &'a LogReply, now: Monotonic) -> Vec<LogEffect<'a>> {
        let mut effects = Vec::new();
        match (std::mem::replace(&mut self.pass.stage, PassStage::End), reply) {
            (PassStage::Begin, LogReply::WritersEndedBelow(number)) => {
                self.pass.writers_ended_below = *number;
                self.pass.stage = PassStage::ReadPage;
            }
            (PassStage::Begin | PassStage::ReadPage, LogReply::Page(page)) => match self.position {
                Some(_) => self.apply_page(&page.head, &page.rows, now, &mut effects),
                // A row that is a minute old was committed or never will be, unless its transaction is still running.
                None if page.head.ended_below >= page.head.next => {
                    self.start(&page.head, page.head.ended_below, now, &mut effects);
                }
                None => self.pass.stage = PassStage::FindStart(page.head.clone()),
            },
            (PassStage::FindStart(head), LogReply::WritersEndedBelow(number)) => {
                // A transaction that was running at the head may have committed before the reply, which then does not name
                // it, with a row below the start.
                effects.push(LogEffect::InvalidateAll);
                self.start(&head, *number, now, &mut effects);
            }
            (PassStage::Skip(top), LogReply::Page(page)) => {
                self.skip_to(top, &page.head, now, &mut effects);
                self.end_pass(now, &mut effects);
            }
            (PassStage::ReadMissing, LogReply::Rows(rows)) => {
                self.apply_missing(rows, now, &mut effects);
            }
            (stage, _) => self.pass.stage = stage,
        }
        effects
    }

    /// Decides where reading begins.
    fn start(
        &mut self,
        head: &LogHead,
        ended_below: i64,
        now: Monotonic,
        effects: &mut Vec<LogEffect<'_>>,
    ) {
        if now.since(self.created_at) > FIRST_READ_DELAY_MAX {
            // Values cached since then may be older than the first row that is read.
            effects.push(LogEffect::InvalidateAll);
        }
        let skip = SkippedRows { skipped_at: LogMoment::new(head, now), delay_min: Duration::ZERO };
        self.skipped_rows = Some(skip).filter(|_| ended_below < head.next);
        self.position = Some(head.settled);
        match is_behind(head.settled, head) {
            true => self.apply_page(head, &[], now, effects),
            false => self.pass.stage = PassStage::ReadPage,
        }
    }

    fn apply_page<'a>(
        &mut self,
        head: &LogHead,
        rows: &'a [ChangeRow],
        now: Monotonic,
        effects: &mut Vec<LogEffect<'a>>,
    ) {
        let pass_now = match &self.pass.head {
            Some(pass_head) => pass_head.now,
            None => self.apply_head(head, now),
        };
        let is_last = rows.len() < PAGE_ROWS;
        let is_late = !is_last && now.since(self.pass.began_at) > BEHIND_DURATION_MAX;
        let has_slept = self.read_at.is_some_and(|read_at| pass_now - read_at > LOG_GAP_MAX_MS);
        if is_late || has_slept || is_behind(self.position.unwrap_or_default(), head) {
            self.pass.stage = PassStage::Skip(head.top);
            return;
        }
        self.apply_rows(head, rows, now, effects);
        if count_missing(&self.missing_ranges) > MISSING_ROWS_MAX {
            self.pass.stage = PassStage::Skip(head.top);
        } else if !is_last {
            self.pass.stage = PassStage::ReadPage;
        } else if self.missing_ranges.is_empty() {
            self.end_pass(now, effects);
        } else {
            self.pass.stage = PassStage::ReadMissing;
        }
    }

    /// Applies the head of the first page of a pass. Returns the database's time.
    fn apply_head(&mut self, head: &LogHead, now: Monotonic) -> i64 {
        self.awaited_moment = self.awaited_moment.filter(|awaited| !awaited.is_settled(head));
        self.awaited_moment.get_or_insert_with(|| LogMoment::new(head, now));
        let ended_below = head.ended_below.max(self.pass.writers_ended_below);
        self.pass.head = Some(LogHead { ended_below, ..head.clone() });
        head.now
    }

    fn apply_rows<'a>(
        &mut self,
        head: &LogHead,
        rows: &'a [ChangeRow],
        now: Monotonic,
        effects: &mut Vec<LogEffect<'a>>,
    ) {
        let mut position = self.position.unwrap_or_default();
        for row in rows {
            if row.seq > position + 1 && !Safeguard::MissingRows.is_disabled() {
                self.missing_ranges.push(MissingRange {
                    first_seq: position + 1,
                    last_seq: row.seq - 1,
                    missed_at: LogMoment::new(head, now),
                });
            }
            position = row.seq;
            effects.push(self.apply_row(row, head.now));
        }
        self.position = Some(position);
    }

    fn apply_row<'a>(&mut self, row: &'a ChangeRow, database_now: i64) -> LogEffect<'a> {
        if let Some(Announcement::Intent { position, cache_tags }) =
            Announcement::parse(&row.subject)
        {
            self.pass.intents.push(position);
            return LogEffect::OpenIntent { position, cache_tags };
        }
        let delay = || Duration::from_millis(u64::try_from(database_now - row.at).unwrap_or(0));
        LogEffect::Invalidate { cache_tag: &row.subject, delay: self.is_caught_up.then(delay) }
    }

    /// Applies those of the missing rows that have appeared.
    fn apply_missing<'a>(
        &mut self,
        rows: &'a [ChangeRow],
        now: Monotonic,
        effects: &mut Vec<LogEffect<'a>>,
    ) {
        if rows.len() >= PAGE_ROWS {
            self.pass.stage = PassStage::Skip(self.position.unwrap_or_default());
            return;
        }
        let Some(head) = self.pass.head.take() else { return };
        effects.extend(rows.iter().map(|row| self.apply_row(row, head.now)));
        let found: Vec<_> = rows.iter().map(|row| row.seq).collect();
        self.missing_ranges = remove_found(&self.missing_ranges, &found);
        self.missing_ranges.retain(|gap| {
            !gap.missed_at.is_settled(&head) || now.since(gap.missed_at.at) < MISSING_DURATION_MIN
        });
        self.pass.head = Some(head);
        self.end_pass(now, effects);
    }

    /// Treats everything as changed, and continues after `top`. The transaction of any row up to there that is not
    /// committed is already running at `head`.
    fn skip_to(
        &mut self,
        top: i64,
        head: &LogHead,
        now: Monotonic,
        effects: &mut Vec<LogEffect<'_>>,
    ) {
        self.position = Some(top);
        self.missing_ranges.clear();
        if Safeguard::Skip.is_disabled() {
            return;
        }
        self.skipped_rows = Some(SkippedRows {
            skipped_at: LogMoment::new(head, now),
            delay_min: MISSING_DURATION_MIN,
        });
        effects.push(LogEffect::InvalidateAll);
    }

    fn end_pass(&mut self, now: Monotonic, effects: &mut Vec<LogEffect<'_>>) {
        let Some(head) = &self.pass.head else { return };
        if let Some(skipped) = self.skipped_rows {
            effects.push(LogEffect::InvalidateAll);
            let SkippedRows { skipped_at, delay_min } = skipped;
            // What was determined at the beginning of this pass does not cover rows that were skipped after it.
            let is_of_before = delay_min.is_zero() || skipped_at.at < self.pass.began_at;
            let has_passed = now.since(skipped_at.at) >= delay_min;
            let is_over = is_of_before && skipped_at.is_settled(head) && has_passed;
            self.skipped_rows = Some(skipped).filter(|_| !is_over);
        }
        self.is_caught_up = true;
        self.read_at = Some(head.now);
        self.pass.stage = PassStage::End;
    }
}

impl PassState {
    fn new(began_at: Monotonic) -> Self {
        Self {
            began_at,
            stage: PassStage::Begin,
            writers_ended_below: 0,
            head: None,
            intents: Vec::new(),
        }
    }
}

/// Returns whether too many rows are unread to be worth reading, or the log is not the one that was read before.
fn is_behind(position: i64, head: &LogHead) -> bool {
    head.top - position > BEHIND_ROWS_MAX || (head.top > 0 && head.top < position)
}
