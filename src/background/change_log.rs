//! Reads the change log: each row once, in whatever order transactions commit.
//!
//! Rows are numbered when they are written, and visible when their transaction commits. So a number that is missing may
//! still appear, or never, if its transaction was rolled back. It is queried again in each pass until all transactions
//! have ended that were running when it was missed.

use std::time::Duration;

use domain::context::Context;
use domain::context::feed::Announcement;
use foundation::clock::Stopwatch;
use foundation::error::Result;
use foundation::fault_injection::Safeguard;
use store::{ChangeRow, LogHead, LogPage, PAGE_ROWS, Reads};

/// A reader that is further behind than this, in rows or in time, treats everything as changed and continues at the
/// end.
const BEHIND_ROWS_MAX: i64 = 100_000;
const BEHIND_DURATION_MAX: Duration = Duration::from_secs(1);
/// Rows of the log are stored for a day. A reader that has not read for this long, by the database's clock, treats
/// everything as changed. Its own clock may have stopped together with its machine.
const LOG_GAP_MAX_MS: i64 = 3_600_000;
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

/// The position of a reader in the change log.
pub struct ChangeLogCursor {
    stopwatch: Stopwatch,
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
}

/// A range of missing rows, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MissingRange {
    first_seq: i64,
    last_seq: i64,
    missed_at: LogMoment,
}

/// The moment at which rows were skipped.
#[derive(Debug, Clone, Copy)]
struct SkippedRows {
    skipped_at: LogMoment,
    /// The minimum time until the transactions of the skipped rows are visible.
    delay_min: Duration,
}

/// A moment, identified by the transactions that were running.
#[derive(Debug, Clone, Copy)]
struct LogMoment {
    next_transaction: i64,
    stopwatch: Stopwatch,
}

impl PartialEq for LogMoment {
    fn eq(&self, other: &Self) -> bool {
        self.next_transaction == other.next_transaction
    }
}

impl Eq for LogMoment {}

impl LogMoment {
    fn from_head(head: &LogHead) -> Self {
        Self { next_transaction: head.next, stopwatch: Stopwatch::new() }
    }

    /// Returns whether all transactions have ended that were running at this moment.
    fn is_settled(self, head: &LogHead) -> bool {
        head.ended_below >= self.next_transaction
    }
}

/// The result of one pass over the change log.
pub struct LogPass {
    /// The state of the database when the pass began.
    pub head: LogHead,
    /// The positions of the intents that were found.
    pub intents: Vec<i64>,
}

impl ChangeLogCursor {
    pub fn new() -> Self {
        Self {
            stopwatch: Stopwatch::new(),
            position: None,
            missing_ranges: Vec::new(),
            skipped_rows: None,
            awaited_moment: None,
            read_at: None,
            is_caught_up: false,
        }
    }

    /// Reads to the end of the log. Every change committed before the call is applied afterwards.
    pub async fn read(&mut self, context: &Context) -> Result<LogPass> {
        let began = Stopwatch::new();
        let mut reader = context.store.store()?.read_reserved().await?;
        // A transaction of another application may run for hours.
        let is_long = self
            .awaited_moment
            .is_some_and(|awaited| awaited.stopwatch.elapsed() >= LONG_TRANSACTION_MIN);
        let writers_ended_below = match is_long || self.skipped_rows.is_some() {
            true => reader.load_writers_ended_below().await?,
            false => 0,
        };
        let mut page = match self.position {
            Some(position) => reader.load_log_page(position, &context.replica_id).await?,
            None => self.load_first_page(context, &mut *reader).await?,
        };
        self.awaited_moment = self.awaited_moment.filter(|awaited| !awaited.is_settled(&page.head));
        self.awaited_moment.get_or_insert_with(|| LogMoment::from_head(&page.head));
        let ended_below = page.head.ended_below.max(writers_ended_below);
        let head = LogHead { ended_below, ..page.head.clone() };
        let mut intents = Vec::new();
        loop {
            let is_last = page.rows.len() < PAGE_ROWS;
            let is_late = !is_last && began.elapsed() > BEHIND_DURATION_MAX;
            let position = self.position.unwrap_or_default();
            let has_slept = self.read_at.is_some_and(|read_at| head.now - read_at > LOG_GAP_MAX_MS);
            if is_late || has_slept || is_behind(position, &page.head) {
                self.skip_to(context, &mut *reader, page.head.top).await?;
                break;
            }
            self.apply_page(context, &page, &mut intents);
            if count_missing(&self.missing_ranges) > MISSING_ROWS_MAX {
                self.skip_to(context, &mut *reader, page.head.top).await?;
                break;
            }
            if is_last {
                break;
            }
            page = reader
                .load_log_page(self.position.unwrap_or_default(), &context.replica_id)
                .await?;
        }
        self.read_missing(context, &mut *reader, &head, &mut intents).await?;
        if let Some(skipped) = self.skipped_rows {
            context.freshness.invalidate_all();
            let SkippedRows { skipped_at: at, delay_min: min } = skipped;
            // What was determined at the beginning of this pass does not cover rows that were skipped after it.
            let is_of_before = min.is_zero() || at.stopwatch.elapsed() > began.elapsed();
            let is_over = is_of_before && at.is_settled(&head) && at.stopwatch.elapsed() >= min;
            self.skipped_rows = Some(skipped).filter(|_| !is_over);
        }
        self.is_caught_up = true;
        self.read_at = Some(head.now);
        Ok(LogPass { head, intents })
    }

    /// Finds where reading begins. Returns the page from there.
    async fn load_first_page(
        &mut self,
        context: &Context,
        reader: &mut dyn Reads,
    ) -> Result<LogPage> {
        let LogPage { head, .. } = reader.load_log_page(i64::MAX, &context.replica_id).await?;
        // A row that is a minute old was committed or never will be, unless its transaction is still running.
        let ended_below = match head.ended_below >= head.next {
            true => head.ended_below,
            false => reader.load_writers_ended_below().await?,
        };
        if self.stopwatch.elapsed() > FIRST_READ_DELAY_MAX {
            // Values cached since then may be older than the first row that is read.
            context.freshness.invalidate_all();
        }
        let skip =
            SkippedRows { skipped_at: LogMoment::from_head(&head), delay_min: Duration::ZERO };
        self.skipped_rows = Some(skip).filter(|_| ended_below < head.next);
        self.position = Some(head.settled);
        match is_behind(head.settled, &head) {
            true => Ok(LogPage { head, rows: Vec::new() }),
            false => reader.load_log_page(head.settled, &context.replica_id).await,
        }
    }

    /// Treats everything as changed, and continues after `top`. The transaction of any row up to there that is not
    /// committed is already running.
    async fn skip_to(&mut self, context: &Context, reader: &mut dyn Reads, top: i64) -> Result<()> {
        let LogPage { head, .. } = reader.load_log_page(i64::MAX, &context.replica_id).await?;
        self.position = Some(top);
        self.missing_ranges.clear();
        if Safeguard::Skip.is_disabled() {
            return Ok(());
        }
        self.skipped_rows = Some(SkippedRows {
            skipped_at: LogMoment::from_head(&head),
            delay_min: MISSING_DURATION_MIN,
        });
        context.freshness.invalidate_all();
        Ok(())
    }

    fn apply_page(&mut self, context: &Context, page: &LogPage, intents: &mut Vec<i64>) {
        let mut position = self.position.unwrap_or_default();
        for row in &page.rows {
            if row.seq > position + 1 {
                let missed = LogMoment::from_head(&page.head);
                self.missing_ranges.push(MissingRange {
                    first_seq: position + 1,
                    last_seq: row.seq - 1,
                    missed_at: missed,
                });
            }
            position = row.seq;
            self.apply_row(context, row, page.head.now, intents);
        }
        self.position = Some(position);
    }

    fn apply_row(&self, context: &Context, row: &ChangeRow, now: i64, intents: &mut Vec<i64>) {
        if let Some(Announcement::Intent { position, cache_tags }) =
            Announcement::parse(&row.subject)
        {
            context.freshness.intents.open(position, cache_tags);
            return intents.push(position);
        }
        context.freshness.record_invalidation_text(&row.subject);
        if self.is_caught_up {
            let age_ms = u64::try_from(now - row.at).unwrap_or(0);
            context.metrics.change_delay.observe(Duration::from_millis(age_ms));
        }
    }

    /// Queries the missing rows.
    async fn read_missing(
        &mut self,
        context: &Context,
        reader: &mut dyn Reads,
        head: &LogHead,
        intents: &mut Vec<i64>,
    ) -> Result<()> {
        if self.missing_ranges.is_empty() {
            return Ok(());
        }
        let ranges: Vec<_> =
            self.missing_ranges.iter().map(|gap| (gap.first_seq, gap.last_seq)).collect();
        let rows = reader.list_changes_in_ranges(&ranges).await?;
        if rows.len() >= PAGE_ROWS {
            let top = self.position.unwrap_or_default();
            return self.skip_to(context, reader, top).await;
        }
        for row in &rows {
            self.apply_row(context, row, head.now, intents);
        }
        let found: Vec<_> = rows.iter().map(|row| row.seq).collect();
        self.missing_ranges = remove_found(&self.missing_ranges, &found);
        let is_open = |gap: &MissingRange| {
            !gap.missed_at.is_settled(head)
                || gap.missed_at.stopwatch.elapsed() < MISSING_DURATION_MIN
        };
        self.missing_ranges.retain(is_open);
        Ok(())
    }
}

/// Returns whether too many rows are unread to be worth reading, or the log is not the one that was read before.
fn is_behind(position: i64, head: &LogHead) -> bool {
    head.top - position > BEHIND_ROWS_MAX || (head.top > 0 && head.top < position)
}

/// Returns the number of missing rows.
fn count_missing(gaps: &[MissingRange]) -> i64 {
    gaps.iter().map(|gap| gap.last_seq - gap.first_seq + 1).sum()
}

/// Returns the gaps without the rows that were found. `found` is sorted.
fn remove_found(gaps: &[MissingRange], found: &[i64]) -> Vec<MissingRange> {
    let mut remaining = Vec::with_capacity(gaps.len());
    for gap in gaps {
        let mut first = gap.first_seq;
        for seq in found.iter().filter(|seq| (gap.first_seq..=gap.last_seq).contains(seq)) {
            if *seq > first {
                remaining.push(MissingRange { first_seq: first, last_seq: seq - 1, ..*gap });
            }
            first = seq + 1;
        }
        if first <= gap.last_seq {
            remaining.push(MissingRange { first_seq: first, ..*gap });
        }
    }
    remaining
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing_range(first: i64, last: i64) -> MissingRange {
        MissingRange {
            first_seq: first,
            last_seq: last,
            missed_at: LogMoment { next_transaction: 0, stopwatch: Stopwatch::new() },
        }
    }

    #[test]
    fn remove_found_splits_missing_ranges() {
        let gaps = [missing_range(3, 5), missing_range(8, 8), missing_range(10, 20)];

        assert_eq!(remove_found(&gaps, &[]), gaps);
        assert_eq!(count_missing(&gaps), 15);
        assert_eq!(
            remove_found(&gaps, &[3, 8, 12, 13, 20]),
            [missing_range(4, 5), missing_range(10, 11), missing_range(14, 19)]
        );
        assert_eq!(remove_found(&gaps, &[3, 4, 5]), [missing_range(8, 8), missing_range(10, 20)]);
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
}
