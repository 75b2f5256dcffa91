//! Divides a period into spans of rollups whose units are as coarse as possible, so that few rollups are added up.

use foundation::clock::{DAY_MS, Timestamp};
use foundation::model::{EventKind, RollupUnit};
use store::events::RollupSpan;

use crate::Analytics;

/// Returns the spans that together have the same events as the rollups of a unit that begin in a period. The end is exclusive.
pub fn of_period(
    analytics: &Analytics,
    kind: EventKind,
    unit: RollupUnit,
    from: Timestamp,
    until: Timestamp,
) -> Vec<RollupSpan> {
    let retention = analytics.retention.for_kind(kind);
    let now = analytics.clock.now();
    let retained_since =
        |unit| now.plus_ms(-i64::from(retention.rollup_days(unit)).saturating_mul(DAY_MS));
    let whole =
        RollupSpan { unit, from_time: from, until_time: unit.start_of_next(until.plus_ms(-1)) };
    divide(whole, &retained_since)
}

/// Divides a span whose end is the start of one of its units. Older rollups than those that are retained may be deleted: a
/// coarser unit would still count their events, or no longer.
fn divide(span: RollupSpan, retained_since: &impl Fn(RollupUnit) -> Timestamp) -> Vec<RollupSpan> {
    let RollupSpan { unit, from_time, until_time } = span;
    let coarser = RollupUnit::ALL.into_iter().find(|coarser| *coarser > unit);
    let since = |unit| from_time.max(retained_since(unit));
    let Some(coarser) = coarser else { return vec![span] };
    let first = coarser.start_of_next(since(unit).max(since(coarser)).plus_ms(-1));
    let last = coarser.start_of(until_time);
    if first >= last {
        return vec![span];
    }
    let before = RollupSpan { until_time: first, ..span };
    let within = RollupSpan { unit: coarser, from_time: first, until_time: last };
    let after = RollupSpan { from_time: last, ..span };
    let is_empty = |span: &RollupSpan| span.from_time >= span.until_time;
    let edges = [before, after].into_iter().filter(|span| !is_empty(span));
    edges.chain(divide(within, retained_since)).collect()
}

#[cfg(test)]
mod tests {
    use foundation::clock::HOUR_MS;

    use super::*;

    /// The start of March 2026.
    const MARCH: i64 = 1_772_323_200_000;

    fn spans(
        unit: RollupUnit,
        from: i64,
        until: i64,
        retained_since: i64,
    ) -> Vec<(RollupUnit, i64, i64)> {
        let span = RollupSpan { unit, from_time: Timestamp(from), until_time: Timestamp(until) };
        let spans = divide(span, &|_| Timestamp(retained_since));
        spans.into_iter().map(|span| (span.unit, span.from_time.0, span.until_time.0)).collect()
    }

    #[test]
    fn whole_days_and_months_replace_their_hours() {
        let (from, until) = (MARCH - DAY_MS - HOUR_MS, MARCH + 33 * DAY_MS + HOUR_MS);

        assert_eq!(
            spans(RollupUnit::Hour, from, until, 0),
            [
                (RollupUnit::Hour, from, MARCH - DAY_MS),
                (RollupUnit::Hour, MARCH + 33 * DAY_MS, until),
                (RollupUnit::Day, MARCH - DAY_MS, MARCH),
                (RollupUnit::Day, MARCH + 31 * DAY_MS, MARCH + 33 * DAY_MS),
                (RollupUnit::Month, MARCH, MARCH + 31 * DAY_MS),
            ]
        );
    }

    #[test]
    fn bounds_of_units_leave_no_edges() {
        for (unit, coarser, length) in [
            (RollupUnit::Minute, RollupUnit::Hour, HOUR_MS),
            (RollupUnit::Hour, RollupUnit::Day, DAY_MS),
            (RollupUnit::Day, RollupUnit::Month, 31 * DAY_MS),
        ] {
            let until = MARCH + length;
            assert_eq!(spans(unit, MARCH, until, 0), [(coarser, MARCH, until)]);
            let early = [(unit, MARCH + 1, until)];
            assert_eq!(spans(unit, MARCH + 1, until, 0), early, "the first one begins before");
            let ending = [(unit, MARCH, until - 1)];
            assert_eq!(spans(unit, MARCH, until - 1, 0), ending, "the last one ends after");
        }
    }

    #[test]
    fn units_that_may_be_deleted_are_not_replaced() {
        let (from, until) = (MARCH, MARCH + 3 * DAY_MS);

        assert_eq!(
            spans(RollupUnit::Hour, from, until, MARCH + 1),
            [(RollupUnit::Hour, from, MARCH + DAY_MS), (RollupUnit::Day, MARCH + DAY_MS, until)]
        );
        assert_eq!(spans(RollupUnit::Hour, from, until, until), [(RollupUnit::Hour, from, until)]);
    }

    #[test]
    fn empty_period_is_one_span() {
        assert_eq!(spans(RollupUnit::Hour, MARCH, MARCH, 0), [(RollupUnit::Hour, MARCH, MARCH)]);
    }
}
