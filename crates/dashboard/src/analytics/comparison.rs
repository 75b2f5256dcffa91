//! Compares the traffic of a time range with that of the period before.

use std::fmt::Write as _;

use domain::analytics_access::{self, Traffic, TrafficCoverage};
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::model::{EventKind, RollupUnit};
use futures_util::future::try_join3;

use super::super::page_request::WorkspaceRequest;
use super::figures::{Figure, build_figures};
use super::range::{Period, TimeRange, format_moment};
use super::selection::Selection;
use super::traffic::{OUTCOMES, TrafficSeries};

/// The traffic of a time range, and what it is compared with.
pub struct Comparison {
    pub series: TrafficSeries,
    /// The sum over the time range.
    pub total: Traffic,
    /// The sum over the period before; `None` if that is not known.
    pub before: Option<Traffic>,
    pub figures: Vec<Figure>,
    /// What is compared, or why nothing is, in sentences.
    pub text: String,
}

/// Whether the events of an earlier period are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Availability {
    /// Events are known since before the period.
    Complete,
    /// The first event of the workspace is in this unit, within the period.
    Partial(Timestamp),
    /// No event of the period is known, or some may be deleted. The time is that of the first ones that are known.
    Missing(Option<Timestamp>),
}

impl Comparison {
    /// Loads the traffic of a selection in a time range and in the period before.
    pub async fn load(
        request: &WorkspaceRequest,
        selection: &Selection,
        range: &TimeRange,
    ) -> Result<Self> {
        let (app, unit) = (&request.page_request.app, range.rollup_unit());
        let (traffic, before, coverage) = try_join3(
            selection.load_traffic(request, range.period, unit),
            selection.load_total(request, range.previous, unit),
            analytics_access::find_coverage(&app.analytics, &request.caller, selection.kind, unit),
        )
        .await?;
        let series = TrafficSeries::new(range, &traffic);
        let availability = Availability::of_period(range.previous, &coverage);
        let before: Option<Traffic> = match availability {
            Availability::Complete | Availability::Partial(_) => Some(before),
            Availability::Missing(_) => None,
        };
        let total = series.total();
        let figures = build_figures(selection.kind, &total, before.as_ref());
        let has_requests = total.total_count() > 0;
        let text = describe(range, unit, availability, has_requests, app.context.clock.now());
        Ok(Self { series, total, before, figures, text })
    }

    /// Adds the figure of the selected outcome, if one is selected.
    pub fn with_outcome(mut self, kind: EventKind, outcome: &str) -> Self {
        let mut styles = OUTCOMES.iter();
        if let Some(style) = styles.find(|style| style.kind == kind && style.value == outcome) {
            let before = self.before.as_ref().map(|before| style.count(before));
            let figure = Figure::count(style.label, style.count(&self.total), before);
            self.figures.insert(1, figure);
            self.text.push_str(" The other figures include all outcomes.");
        }
        self
    }
}

impl Availability {
    fn of_period(period: Period, coverage: &TrafficCoverage) -> Self {
        match coverage.first_at {
            None => Self::Missing(None),
            Some(first) if period.from < coverage.retained_since || period.until <= first => {
                Self::Missing(Some(first.max(coverage.retained_since)))
            }
            Some(first) if period.from < first => Self::Partial(first),
            Some(_) => Self::Complete,
        }
    }
}

/// Says what is compared with what.
fn describe(
    range: &TimeRange,
    unit: RollupUnit,
    availability: Availability,
    has_requests: bool,
    now: Timestamp,
) -> String {
    let (shown, previous) = (range.period.format(), range.previous.format());
    let mut text = match availability {
        Availability::Complete => format!("{shown}, compared with {previous}."),
        Availability::Partial(first) => {
            let first = format_moment(first);
            format!("{shown}, compared with {previous}. No data before {first}.")
        }
        Availability::Missing(Some(first)) => {
            let first = format_moment(first);
            format!("{shown}. No data before {first} to compare with: {previous} is not complete.")
        }
        // Verifications that found no key.
        Availability::Missing(None) if has_requests => format!("{shown}. No data to compare with."),
        Availability::Missing(None) => format!("{shown}. No data yet."),
    };
    if range.period.until > now {
        let _ = write!(text, " The last {} is not over.", unit.as_str());
    }
    text.push_str(" Times are in UTC.");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn availability(retained: i64, first: Option<i64>) -> Availability {
        let period = Period { from: Timestamp(100), until: Timestamp(200) };
        let coverage =
            TrafficCoverage { retained_since: Timestamp(retained), first_at: first.map(Timestamp) };
        Availability::of_period(period, &coverage)
    }

    #[test]
    fn period_is_complete_if_retained_and_after_the_first_event() {
        assert_eq!(availability(100, Some(100)), Availability::Complete);
        assert_eq!(availability(100, Some(101)), Availability::Partial(Timestamp(101)));
        assert_eq!(availability(100, Some(199)), Availability::Partial(Timestamp(199)));
    }

    #[test]
    fn period_is_missing_if_deleted_in_part_or_before_the_first_event() {
        assert_eq!(availability(101, Some(1)), Availability::Missing(Some(Timestamp(101))));
        assert_eq!(availability(1, Some(200)), Availability::Missing(Some(Timestamp(200))));
        assert_eq!(availability(101, Some(300)), Availability::Missing(Some(Timestamp(300))));
        assert_eq!(availability(1, None), Availability::Missing(None));
    }
}
