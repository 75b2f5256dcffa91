//! A model of the database, with running transactions, that replies to the steps of a reader.

use std::collections::{BTreeMap, BTreeSet};

use store::LogPage;

use super::super::*;

pub const SECOND_MS: u64 = 1_000;
/// The database's time when the model is created.
pub const DATABASE_EPOCH_MS: i64 = 1_000_000_000;

/// A database with running transactions and the rows that they have written to the change log.
pub struct LogModel {
    pub now_ms: u64,
    /// How far the database's clock has run ahead of the reader's: the reader's machine has slept.
    pub slept_ms: i64,
    pub next_seq: i64,
    pub next_transaction: i64,
    pub running: BTreeSet<i64>,
    /// The rows, with their transactions.
    pub rows: BTreeMap<i64, (i64, ChangeRow)>,
    pub steps: Vec<LogStep>,
}

impl LogModel {
    pub fn new() -> Self {
        Self {
            now_ms: 0,
            slept_ms: 0,
            next_seq: 1,
            next_transaction: 500,
            running: BTreeSet::new(),
            rows: BTreeMap::new(),
            steps: Vec::new(),
        }
    }

    pub fn now(&self) -> Monotonic {
        Monotonic::from_ms(self.now_ms)
    }

    pub fn database_now(&self) -> i64 {
        DATABASE_EPOCH_MS + self.slept_ms + i64::try_from(self.now_ms).expect("a short time")
    }

    pub fn begin(&mut self) -> i64 {
        self.next_transaction += 1;
        self.running.insert(self.next_transaction - 1);
        self.next_transaction - 1
    }

    pub fn write(&mut self, transaction: i64, subject: &str) {
        let row =
            ChangeRow { seq: self.next_seq, at: self.database_now(), subject: subject.to_owned() };
        self.rows.insert(self.next_seq, (transaction, row));
        self.next_seq += 1;
    }

    pub fn commit(&mut self, transaction: i64) {
        self.running.remove(&transaction);
    }

    pub fn roll_back(&mut self, transaction: i64) {
        self.running.remove(&transaction);
        self.rows.retain(|_, (writer, _)| *writer != transaction);
    }

    /// Begins a transaction that writes these rows. Returns its number.
    pub fn begin_with(&mut self, subjects: &[&str]) -> i64 {
        let transaction = self.begin();
        for subject in subjects {
            self.write(transaction, subject);
        }
        transaction
    }

    pub fn commit_with(&mut self, subjects: &[&str]) {
        let transaction = self.begin_with(subjects);
        self.commit(transaction);
    }

    pub fn visible_rows(&self) -> impl Iterator<Item = &ChangeRow> {
        let is_visible = |(writer, _): &&(i64, ChangeRow)| !self.running.contains(writer);
        self.rows.values().filter(is_visible).map(|(_, row)| row)
    }

    pub fn head(&self) -> LogHead {
        let now = self.database_now();
        let is_old = |row: &&ChangeRow| row.at < now - 60_000;
        LogHead {
            now,
            top: self.next_seq - 1,
            ended_below: self.running.first().copied().unwrap_or(self.next_transaction),
            next: self.next_transaction,
            settled: self.visible_rows().filter(is_old).map(|row| row.seq).max().unwrap_or(0),
            ..LogHead::default()
        }
    }

    pub fn reply(&self, step: &LogStep) -> Option<LogReply> {
        Some(match step {
            LogStep::End(_) => return None,
            LogStep::LoadPage { after } => {
                let rows = self.visible_rows().filter(|row| row.seq > *after);
                let rows = rows.take(PAGE_ROWS).cloned().collect();
                LogReply::Page(LogPage { head: self.head(), rows })
            }
            LogStep::LoadWritersEndedBelow => {
                let writers: BTreeSet<_> = self.rows.values().map(|(writer, _)| *writer).collect();
                let first = self.running.iter().find(|running| writers.contains(running));
                LogReply::WritersEndedBelow(first.copied().unwrap_or(self.next_transaction))
            }
            LogStep::ListRows { ranges } => {
                let is_asked = |row: &&ChangeRow| {
                    ranges.iter().any(|(first, last)| (*first..=*last).contains(&row.seq))
                };
                let rows = self.visible_rows().filter(is_asked).take(PAGE_ROWS);
                LogReply::Rows(rows.cloned().collect())
            }
        })
    }

    /// Performs one step of a pass, and then calls `between`. Returns the effects; `None` when the pass has ended.
    pub fn step(
        &mut self,
        reader: &mut ChangeLogReader,
        between: &mut dyn FnMut(&mut Self),
    ) -> Option<Vec<String>> {
        let step = reader.next_step(self.now());
        let reply = self.reply(&step)?;
        self.steps.push(step);
        assert!(self.steps.len() < 10_000, "the pass does not end");
        between(self);
        let effect = |effect: &LogEffect<'_>| match effect {
            LogEffect::InvalidateAll => "ALL".to_owned(),
            LogEffect::Invalidate { cache_tag, .. } => (*cache_tag).to_owned(),
            LogEffect::OpenIntent { position, .. } => format!("intent {position}"),
        };
        Some(reader.apply_reply(&reply, self.now()).iter().map(effect).collect())
    }

    /// Reads to the end of the log. Returns the effects.
    pub fn read(&mut self, reader: &mut ChangeLogReader) -> Vec<String> {
        self.steps.clear();
        reader.begin_pass(self.now());
        std::iter::from_fn(|| self.step(reader, &mut |_| {})).flatten().collect()
    }

    /// Reads to the end of the log this much later.
    pub fn read_after(&mut self, ms: u64, reader: &mut ChangeLogReader) -> Vec<String> {
        self.now_ms += ms;
        self.read(reader)
    }

    /// Returns whether the last pass queried missing rows.
    pub fn has_listed_rows(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, LogStep::ListRows { .. }))
    }

    pub fn has_found_writers(&self) -> bool {
        self.steps.contains(&LogStep::LoadWritersEndedBelow)
    }
}
