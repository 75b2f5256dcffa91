//! Charts: bars made on the server as SVG, with a table behind each.
//!
//! The drawing has no text, so it can be stretched to any width; scales and labels are HTML around it.

/// How wide and high a drawing is, in units of its own.
const WIDTH: i64 = 1_000;
const HEIGHT: i64 = 200;
/// How many moments are named below a chart.
const LABELS: usize = 4;

/// Bars, each made of parts that stand on each other.
pub struct Bars {
    /// What the chart shows, also for who does not see it.
    pub title: String,
    /// What the first column of the table holds.
    pub of: &'static str,
    /// The parts, from the bottom up.
    pub parts: Vec<Part>,
    pub bars: Vec<Bar>,
    /// The values on the scale, from the top down.
    pub scale: [String; 3],
    /// What is named below, from the left.
    pub labels: Vec<String>,
    pub unit: &'static str,
}

/// What a colour stands for.
pub struct Part {
    pub name: String,
    /// The class that has the colour.
    pub class: &'static str,
    /// All of it.
    pub sum: String,
}

pub struct Bar {
    pub label: String,
    /// What all parts come to.
    pub sum: String,
    /// The value of each part, as it is told.
    pub values: Vec<String>,
    pub boxes: Vec<Piece>,
}

/// A part of a bar as it is drawn.
pub struct Piece {
    pub x: String,
    pub y: String,
    pub width: String,
    pub height: String,
    pub class: &'static str,
}

/// What a chart is made of.
pub struct Series {
    pub name: String,
    pub class: &'static str,
    /// A value for each bar.
    pub values: Vec<i64>,
}

impl Bars {
    /// `labels` and the values of all series are as many as there are bars. `told` words a value.
    pub fn new(
        title: String,
        of: &'static str,
        labels: &[String],
        series: &[Series],
        unit: &'static str,
        told: impl Fn(i64) -> String,
    ) -> Self {
        let value = |series: &Series, at: usize| series.values.get(at).copied().unwrap_or(0);
        let sum = |at: usize| series.iter().map(|series| value(series, at)).sum::<i64>();
        let top = nice(labels.iter().enumerate().map(|(at, _)| sum(at)).max().unwrap_or(0));
        let slot = hundredths(WIDTH, i64::try_from(labels.len()).unwrap_or(1).max(1));
        // A gap between bars, as long as they are wide enough to have one.
        let width = if slot > 400 { slot * 4 / 5 } else { slot };
        let bar = |(at, label): (usize, &String)| {
            let (mut boxes, mut below) = (Vec::new(), 0);
            for series in series {
                let value = value(series, at);
                if value <= 0 {
                    continue;
                }
                // What there is can be seen, however little it is.
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
                sum: told(sum(at)),
                values: series.iter().map(|series| told(value(series, at))).collect(),
                boxes,
            }
        };
        let part = |series: &Series| Part {
            name: series.name.clone(),
            class: series.class,
            sum: told(series.values.iter().sum()),
        };
        Self {
            title,
            of,
            parts: series.iter().map(part).collect(),
            bars: labels.iter().enumerate().map(bar).collect(),
            scale: [told(top), told(top / 2), told(0)],
            labels: spread(labels),
            unit,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.bars.iter().all(|bar| bar.boxes.is_empty())
    }
}

/// A round number that is no less, and even.
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

/// So many of the labels, evenly apart.
fn spread(labels: &[String]) -> Vec<String> {
    let count = labels.len().clamp(1, LABELS);
    let at = |n: usize| n * labels.len().saturating_sub(1) / count.saturating_sub(1).max(1);
    (0..count).filter_map(|n| labels.get(at(n)).cloned()).collect()
}

/// A quotient in hundredths.
fn hundredths(value: i64, by: i64) -> i64 {
    i64::try_from(i128::from(value) * 100 / i128::from(by.max(1))).unwrap_or(i64::MAX)
}

/// Hundredths as a number.
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
    fn a_bar_is_as_high_as_its_share_of_the_scale() {
        let chart = bars(&[&[50, 100, 0], &[25, 0, 0]]);

        assert_eq!(chart.scale, ["100", "50", "0"]);
        let told = |bar: &Bar| -> Vec<_> {
            bar.boxes.iter().map(|part| (part.y.clone(), part.height.clone())).collect()
        };
        let pair = |y: &str, height: &str| (y.to_owned(), height.to_owned());
        assert_eq!(told(&chart.bars[0]), [pair("100.00", "100.00"), pair("50.00", "50.00")]);
        assert_eq!(told(&chart.bars[1]), [pair("0.00", "200.00")]);
        assert_eq!(told(&chart.bars[2]), []);
        assert!(!chart.is_empty() && bars(&[&[0, 0]]).is_empty() && bars(&[]).is_empty());
    }

    #[test]
    fn a_scale_ends_at_a_round_number_that_can_be_halved() {
        let tops = [0, 1, 3, 5, 7, 11, 61, 99, 101, 4_000].map(nice);

        assert_eq!(tops, [2, 2, 4, 6, 10, 20, 100, 100, 200, 4_000]);
        assert_eq!(nice(i64::MAX), i64::MAX);
    }

    #[test]
    fn few_moments_are_named_and_the_first_and_the_last_among_them() {
        let labels: Vec<_> = (0..31).map(|at| at.to_string()).collect();

        assert_eq!(spread(&labels), ["0", "10", "20", "30"]);
        assert_eq!(spread(&labels[..2]), ["0", "1"]);
        assert_eq!(spread(&labels[..1]), ["0"]);
        assert!(spread(&[]).is_empty());
    }
}
