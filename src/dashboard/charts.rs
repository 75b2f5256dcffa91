//! Renders bar charts as SVG on the server, each with a table of its values.
//!
//! The SVG contains no text, so it can be stretched to any width. Scales and labels are HTML around it.

/// The width and height of a chart, in SVG units.
const WIDTH: i64 = 1_000;
const HEIGHT: i64 = 200;
/// The number of labels on the x axis.
const LABELS: usize = 4;

/// A stacked bar chart.
pub struct Bars {
    /// The title, also used as the accessible name.
    pub title: String,
    /// The header of the first table column.
    pub of: &'static str,
    /// The legend entries, from the bottom of a bar up.
    pub parts: Vec<Part>,
    pub bars: Vec<Bar>,
    /// The values on the y axis, from the top down.
    pub scale: [String; 3],
    /// The labels on the x axis, from the left.
    pub labels: Vec<String>,
    pub unit: &'static str,
}

/// A legend entry.
pub struct Part {
    pub name: String,
    /// The CSS class that sets the color.
    pub class: &'static str,
    /// The sum over all bars.
    pub sum: String,
}

pub struct Bar {
    pub label: String,
    /// The sum over all series.
    pub sum: String,
    /// The formatted value of each series.
    pub values: Vec<String>,
    pub boxes: Vec<Piece>,
}

/// A rectangle of a bar, in SVG units.
pub struct Piece {
    pub x: String,
    pub y: String,
    pub width: String,
    pub height: String,
    pub class: &'static str,
}

/// A data series of a chart.
pub struct Series {
    pub name: String,
    pub class: &'static str,
    /// One value per bar.
    pub values: Vec<i64>,
}

impl Bars {
    /// Creates a chart. `labels` and each series have one item per bar; `format_value` formats a value.
    pub fn new(
        title: String,
        of: &'static str,
        labels: &[String],
        series: &[Series],
        unit: &'static str,
        format_value: impl Fn(i64) -> String,
    ) -> Self {
        let value = |series: &Series, at: usize| series.values.get(at).copied().unwrap_or(0);
        let sum = |at: usize| series.iter().map(|series| value(series, at)).sum::<i64>();
        let top = nice(labels.iter().enumerate().map(|(at, _)| sum(at)).max().unwrap_or(0));
        let slot = hundredths(WIDTH, i64::try_from(labels.len()).unwrap_or(1).max(1));
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
                let height = hundredths(value * HEIGHT, top).max(100);
                let x = i64::try_from(at).unwrap_or(0) * slot + (slot - width) / 2;
                boxes.push(Piece {
                    x: decimal(x),
                    y: decimal(HEIGHT * 100 - below - height),
                    width: decimal(width),
                    height: decimal(height),
                    class: series.class,
                });
                below += height;
            }
            Bar {
                label: label.clone(),
                sum: format_value(sum(at)),
                values: series.iter().map(|series| format_value(value(series, at))).collect(),
                boxes,
            }
        };
        let part = |series: &Series| Part {
            name: series.name.clone(),
            class: series.class,
            sum: format_value(series.values.iter().sum()),
        };
        Self {
            title,
            of,
            parts: series.iter().map(part).collect(),
            bars: labels.iter().enumerate().map(bar).collect(),
            scale: [format_value(top), format_value(top / 2), format_value(0)],
            labels: spread(labels),
            unit,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.bars.iter().all(|bar| bar.boxes.is_empty())
    }
}

/// Returns an even, round number that is not less than `most`.
fn nice(most: i64) -> i64 {
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
fn spread(labels: &[String]) -> Vec<String> {
    let count = labels.len().clamp(1, LABELS);
    let at = |n: usize| n * labels.len().saturating_sub(1) / count.saturating_sub(1).max(1);
    (0..count).filter_map(|n| labels.get(at(n)).cloned()).collect()
}

/// Returns a quotient in hundredths.
fn hundredths(value: i64, by: i64) -> i64 {
    i64::try_from(i128::from(value) * 100 / i128::from(by.max(1))).unwrap_or(i64::MAX)
}

/// Formats hundredths as a decimal number.
fn decimal(hundredths: i64) -> String {
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(values: &[&[i64]]) -> Bars {
        let count = values.first().map_or(0, |values| values.len());
        let labels: Vec<_> = (0..count).map(|at| at.to_string()).collect();
        let series: Vec<_> = values
            .iter()
            .map(|values| Series { name: "a".into(), class: "a", values: values.to_vec() })
            .collect();
        Bars::new("t".into(), "Time", &labels, &series, "requests", |value| value.to_string())
    }

    #[test]
    fn bar_height_is_proportional_to_scale() {
        let chart = bars(&[&[50, 100, 0], &[25, 0, 0]]);

        assert_eq!(chart.scale, ["100", "50", "0"]);
        let heights = |bar: &Bar| -> Vec<_> {
            bar.boxes.iter().map(|part| (part.y.clone(), part.height.clone())).collect()
        };
        let pair = |y: &str, height: &str| (y.to_owned(), height.to_owned());
        assert_eq!(heights(&chart.bars[0]), [pair("100.00", "100.00"), pair("50.00", "50.00")]);
        assert_eq!(heights(&chart.bars[1]), [pair("0.00", "200.00")]);
        assert_eq!(heights(&chart.bars[2]), []);
        assert!(!chart.is_empty() && bars(&[&[0, 0]]).is_empty() && bars(&[]).is_empty());
    }

    #[test]
    fn nice_returns_even_round_number() {
        let tops = [0, 1, 3, 5, 7, 11, 61, 99, 101, 4_000].map(nice);

        assert_eq!(tops, [2, 2, 4, 6, 10, 20, 100, 100, 200, 4_000]);
        assert_eq!(nice(i64::MAX), i64::MAX);
    }

    #[test]
    fn spread_includes_first_and_last_label() {
        let labels: Vec<_> = (0..31).map(|at| at.to_string()).collect();

        assert_eq!(spread(&labels), ["0", "10", "20", "30"]);
        assert_eq!(spread(&labels[..2]), ["0", "1"]);
        assert_eq!(spread(&labels[..1]), ["0"]);
        assert!(spread(&[]).is_empty());
    }
}
