//! Keeps the statistics of Postgres current during imports. Until a table that has grown is analyzed, which Postgres does by
//! itself within a minute, its plans for lists of keys read all of them.

use std::sync::atomic::{AtomicU64, Ordering};

use foundation::error::Result;

use super::Context;

/// The number of imported keys from which on the statistics are outdated, at least.
const IMPORTED_MIN: u64 = 10_000;
/// The statistics are also current while fewer keys than one in this number were imported since.
const SHARE: u64 = 5;

/// Counts the keys that this process has imported since the database was last analyzed.
#[derive(Debug, Default)]
pub struct ImportedKeys {
    imported: AtomicU64,
    /// The number of all keys when the database was last analyzed.
    analyzed: AtomicU64,
}

impl ImportedKeys {
    /// Records keys whose import was committed.
    pub fn record(&self, keys: usize) {
        self.imported.fetch_add(u64::try_from(keys).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns how many keys were imported, if they are so many that the statistics are outdated.
    fn outdated_by(&self) -> Option<u64> {
        let imported = self.imported.load(Ordering::Relaxed);
        let bound = IMPORTED_MIN.max(self.analyzed.load(Ordering::Relaxed) / SHARE);
        (imported >= bound).then_some(imported)
    }
}

/// Analyzes the tables of keys if the statistics are outdated.
pub async fn refresh_statistics(context: &Context) -> Result<()> {
    let counts = &context.imported_keys;
    let Some(imported) = counts.outdated_by() else { return Ok(()) };
    let keys = context.store.store()?.analyze_keys().await?;
    counts.analyzed.store(keys, Ordering::Relaxed);
    counts.imported.fetch_sub(imported, Ordering::Relaxed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_outdated_by_ten_thousand_keys_and_by_a_fifth_of_all() {
        for (analyzed, bound) in
            [(0, 10_000), (50_000, 10_000), (50_005, 10_001), (1_000_000, 200_000)]
        {
            let counts = ImportedKeys { analyzed: analyzed.into(), ..ImportedKeys::default() };
            counts.record(bound - 1);
            assert_eq!(counts.outdated_by(), None, "{analyzed}");
            counts.record(1);
            assert_eq!(counts.outdated_by(), Some(bound as u64), "{analyzed}");
        }
    }
}
