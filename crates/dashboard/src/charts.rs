//! Renders bar charts as SVG on the server, each with a table of its values.
//!
//! The SVG contains no text, so it can be stretched to any width. Scales and labels are HTML around it. A script
//! (`assets/chart.js`) replaces the SVG of a chart that has times by an interactive one.

use foundation::clock::Timestamp;
use foundation::model::RollupUnit;
use serde_json::json;

/// The width and height of a chart, in SVG units.
const WIDTH: i64 = 1_000;
const HEIGHT: i64 = 200;
/// The number of labels on the x axis.
const LABELS_MAX: usize = 4;

/// A bar chart. The series of a bar are stacked, or nested: each is behind the one before, which it includes, as a percentile
/// does.
pub struct BarChart {
    /// The title, also used as the accessible name.
    pub title: String,
    /// The header of the first table column.
    pub label_header: &'static str,
    /// The legend entries, from the bottom of a bar up.
    pub legend: Vec<LegendEntry>,
    pub bars: Vec<Bar>,
    /// The values on the y axis, from the top down.
    pub scale: [String; 3],
    /// The labels on the x axis, from the left.
    pub labels: Vec<String>,
    pub unit: &'static str,
    /// The times and values for the script, as JSON; `None` if the bars have no times.
    pub data: Option<String>,
    /// The page that shows a period which is selected in the chart, without the fields of the period.
    pub zoom_path: Option<String>,
    is_nested: bool,
    /// The values of each series.
    series: Vec<Vec<i64>>,
}

/// A legend entry.
pub struct LegendEntry {
    pub name: String,
    /// The CSS class that sets the color.
    pub class: &'static str,
    /// The sum over all bars; empty if it has no meaning.
    pub sum: String,
}

pub struct Bar {
    pub label: String,
    /// The sum over all series; their values if they are nested.
    pub sum: String,
    /// The formatted value of each series.
    pub values: Vec<String>,
    pub segments: Vec<BarSegment>,
}

/// A rectangle of a bar, in SVG units.
pub struct BarSegment {
    pub x: String,
    pub y: String,
    pub width: String,
    pub height: String,
    pub class: &'static str,
}

/// A data series of a chart.
pub struct ChartSeries {
    pub name: String,
    pub class: &'static str,
    /// One value per bar.
    pub values: Vec<i64>,
}

impl BarChart {
    /// Creates a chart of stacked series. `labels` and each series have one item per bar; `format_value` formats a value.
    pub fn new(
        title: String,
        of: &'static str,
        labels: &[String],
        series: &[ChartSeries],
        unit: &'static str,
        format_value: impl Fn(i64) -> String,
    ) -> Self {
        let value = |series: &ChartSeries, at: usize| series.values.get(at).copied().unwrap_or(0);
        let sum = |at: usize| series.iter().map(|series| value(series, at)).sum::<i64>();
        let top =
            round_up_scale(labels.iter().enumerate().map(|(at, _)| sum(at)).max().unwrap_or(0));
        let slot = ratio_hundredths(WIDTH, i64::try_from(labels.len()).unwrap_or(1).max(1));
        // Leave a gap between bars that are wide enough.
        let width = if slot > 400 { slot * 4 / 5 } else { slot };
        let bar = |(at, label): (usize, &String)| {
            let (mut boxes, mut below) = (Vec::new(), 0);
            for series in series {
                let value = value(series, at);
                if value <= 0 {
                    continue;
                }
                // At least one unit, so that small values stay visible.
                let height = ratio_hundredths(value * HEIGHT, top).max(100);
                let x = i64::try_from(at).unwrap_or(0) * slot + (slot - width) / 2;
                boxes.push(BarSegment {
                    x: format_hundredths(x),
                    y: format_hundredths(HEIGHT * 100 - below - height),
                    width: format_hundredths(width),
                    height: format_hundredths(height),
                    class: series.class,
                });
                below += height;
            }
            Bar {
                label: label.clone(),
                sum: format_value(sum(at)),
                values: series.iter().map(|series| format_value(value(series, at))).collect(),
                segments: boxes,
            }
        };
        let part = |series: &ChartSeries| LegendEntry {
            name: series.name.clone(),
            class: series.class,
            sum: format_value(series.values.iter().sum()),
        };
        Self {
            title,
            label_header: of,
            legend: series.iter().map(part).collect(),
            bars: labels.iter().enumerate().map(bar).collect(),
            scale: [format_value(top), format_value(top / 2), format_value(0)],
            labels: pick_labels(labels),
            unit,
            data: None,
            zoom_path: None,
            is_nested: false,
            series: series.iter().map(|series| series.values.clone()).collect(),
        }
    }

    /// Creates a chart of nested series, whose values do not decrease from one series to the next.
    pub fn nested(
        title: String,
        of: &'static str,
        labels: &[String],
        series: &[ChartSeries],
        format_value: impl Fn(i64) -> String,
    ) -> Self {
        let mut below = vec![0; labels.len()];
        let step = |series: &ChartSeries| {
            let differences = series.values.iter().zip(&below).map(|(value, below)| value - below);
            let values = differences.collect();
            below.clone_from(&series.values);
            ChartSeries { name: series.name.clone(), class: series.class, values }
        };
        let steps: Vec<_> = series.iter().map(step).collect();
        let mut chart = Self::new(title, of, labels, &steps, "", &format_value);
        for (at, bar) in chart.bars.iter_mut().enumerate() {
            let values = series.iter().map(|series| series.values.get(at).copied().unwrap_or(0));
            bar.values = values.map(&format_value).collect();
            let parts = series.iter().zip(&bar.values);
            let parts: Vec<_> =
                parts.map(|(part, value)| format!("{} {value}", part.name)).collect();
            bar.sum = parts.join(", ");
        }
        for entry in &mut chart.legend {
            entry.sum = String::new();
        }
        let series = series.iter().map(|series| series.values.clone()).collect();
        Self { series, is_nested: true, ..chart }
    }

    /// Adds the starts of the bars, which last a unit each.
    #[must_use]
    pub fn with_times(self, unit: RollupUnit, starts: &[Timestamp]) -> Self {
        let times: Vec<i64> = starts.iter().map(|at| at.0).collect();
        let data = starts.last().map(|last| {
            json!({
                "unit": unit.as_str(),
                "noun": self.unit,
                "times": times,
                "until": unit.start_of_next(*last).0,
                "isNested": self.is_nested,
                "series": self.series,
            })
        });
        Self { data: data.map(|data| data.to_string()), ..self }
    }

    pub fn is_empty(&self) -> bool {
        self.bars.iter().all(|bar| bar.segments.is_empty())
    }
}

/// Returns an even, round number that is not less than `most`.
fn round_up_scale(most: i64) -> i64 {
    let mut step = 1_i64;
    loop {
        for factor in [2, 4, 6, 10] {
            let top = step.saturating_mul(factor);
            if top >= most {
                return top;
            }
        }
        step = step.saturating_mul(10);
    }
}

/// Picks evenly spaced labels for the x axis, including the first and the last.
fn pick_labels(labels: &[String]) -> Vec<String> {
    let count = labels.len().clamp(1, LABELS_MAX);
    let at = |n: usize| n * labels.len().saturating_sub(1) / count.saturating_sub(1).max(1);
    (0..count).filter_map(|n| labels.get(at(n)).cloned()).collect()
}

/// Returns a quotient in hundredths.
fn ratio_hundredths(value: i64, by: i64) -> i64 {
    i64::try_from(i128::from(value) * 100 / i128::from(by.max(1))).unwrap_or(i64::MAX)
}

/// Formats hundredths as a decimal number.
fn format_hundredths(hundredths: i64) -> String {
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_series_are_drawn_behind_each_other_and_keep_their_values() {
        let series = [("p50", [2, 0]), ("p99", [10, 0])].map(|(name, values)| ChartSeries {
            name: name.into(),
            class: "a",
            values: values.to_vec(),
        });
        let labels = ["1".to_owned(), "2".to_owned()];
        let chart =
            BarChart::nested("t".into(), "Time", &labels, &series, |value| format!("{value} ms"));

        assert_eq!(chart.scale, ["10 ms", "5 ms", "0 ms"]);
        let bar = &chart.bars[0];
        assert_eq!(bar.sum, "p50 2 ms, p99 10 ms");
        assert_eq!(bar.values, ["2 ms", "10 ms"]);
        let boxes: Vec<_> = bar.segments.iter().map(|part| (&*part.y, &*part.height)).collect();
        assert_eq!(boxes, [("160.00", "40.00"), ("0.00", "160.00")]);
        assert!(chart.bars[1].segments.is_empty());
        assert!(chart.legend.iter().all(|entry| entry.sum.is_empty()));
    }

    fn bars(values: &[&[i64]]) -> BarChart {
        let count = values.first().map_or(0, |values| values.len());
        let labels: Vec<_> = (0..count).map(|at| at.to_string()).collect();
        let series: Vec<_> = values
            .iter()
            .map(|values| ChartSeries { name: "a".into(), class: "a", values: values.to_vec() })
            .collect();
        BarChart::new("t".into(), "Time", &labels, &series, "requests", |value| value.to_string())
    }

    #[test]
    fn bar_height_is_proportional_to_scale() {
        let chart = bars(&[&[50, 100, 0], &[25, 0, 0]]);

        assert_eq!(chart.scale, ["100", "50", "0"]);
        let heights = |bar: &Bar| -> Vec<_> {
            bar.segments.iter().map(|part| (part.y.clone(), part.height.clone())).collect()
        };
        let pair = |y: &str, height: &str| (y.to_owned(), height.to_owned());
        assert_eq!(heights(&chart.bars[0]), [pair("100.00", "100.00"), pair("50.00", "50.00")]);
        assert_eq!(heights(&chart.bars[1]), [pair("0.00", "200.00")]);
        assert_eq!(heights(&chart.bars[2]), []);
        assert!(!chart.is_empty() && bars(&[&[0, 0]]).is_empty() && bars(&[]).is_empty());
    }

    #[test]
    fn data_for_the_script_has_times_and_values() {
        let starts = [Timestamp(0), Timestamp(60_000)];
        let chart = bars(&[&[1, 0], &[2, 3]]).with_times(RollupUnit::Minute, &starts);

        let data: serde_json::Value =
            serde_json::from_str(&chart.data.expect("data")).expect("JSON");
        let expected = json!({
            "unit": "minute", "noun": "requests", "times": [0, 60_000], "until": 120_000, "isNested": false,
            "series": [[1, 0], [2, 3]],
        });
        assert_eq!(data, expected);
        assert_eq!(bars(&[]).with_times(RollupUnit::Day, &[]).data, None);
    }

    #[test]
    fn round_up_scale_returns_even_round_number() {
        let tops = [0, 1, 3, 5, 7, 11, 61, 99, 101, 4_000].map(round_up_scale);

        assert_eq!(tops, [2, 2, 4, 6, 10, 20, 100, 100, 200, 4_000]);
        assert_eq!(round_up_scale(i64::MAX), i64::MAX);
    }

    #[test]
    fn pick_labels_includes_first_and_last_label() {
        let labels: Vec<_> = (0..31).map(|at| at.to_string()).collect();

        assert_eq!(pick_labels(&labels), ["0", "10", "20", "30"]);
        assert_eq!(pick_labels(&labels[..2]), ["0", "1"]);
        assert_eq!(pick_labels(&labels[..1]), ["0"]);
        assert!(pick_labels(&[]).is_empty());
    }
}
