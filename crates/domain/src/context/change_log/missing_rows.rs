//! Ranges of rows of the change log that have not been read although later ones have.

use super::LogMoment;

/// A range of missing rows, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissingRange {
    pub first_seq: i64,
    pub last_seq: i64,
    pub missed_at: LogMoment,
}

/// Returns the number of missing rows.
pub fn count_missing(gaps: &[MissingRange]) -> i64 {
    gaps.iter().map(|gap| gap.last_seq - gap.first_seq + 1).sum()
}

/// Returns the gaps without the rows that were found. `found` is sorted.
pub fn remove_found(gaps: &[MissingRange], found: &[i64]) -> Vec<MissingRange> {
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
    use foundation::clock::Monotonic;

    use super::*;

    fn missing_range(first: i64, last: i64) -> MissingRange {
        MissingRange {
            first_seq: first,
            last_seq: last,
            missed_at: LogMoment { next_transaction: 0, at: Monotonic::default() },
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
}
