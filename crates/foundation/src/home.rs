//! Homes: the region that counts the limits of an API's keys, of an identity, or of a namespace.
//!
//! A home moves between two windows: a window is counted, from its begin to its end, where its home was when it began.

use std::fmt;
use std::str::FromStr;

use crate::clock::Timestamp;

/// The maximum number of moves that are remembered. Windows may be years long, so none is forgotten.
const MOVES_MAX: usize = 16;

/// The region that counts something. Its text form, as in the database, is `us` or, after it has moved there from `eu`,
/// `us eu<1764115200000`. What has no home is counted in the first region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    pub region: String,
    /// Where it was before, the earliest first, and until when.
    past: Vec<PastHome>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct PastHome {
    region: String,
    /// Windows that begin at this time or later are counted elsewhere.
    until: Timestamp,
}

/// The region that counts the windows of one duration from a number on, until those of the next one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HomeWindows<'a> {
    /// 0 for the first region.
    pub first_window: i64,
    pub region: &'a str,
}

impl Home {
    /// Returns a home that has never moved.
    pub fn new(region: impl Into<String>) -> Self {
        Self { region: region.into(), past: Vec::new() }
    }

    /// Returns the home after a move at a time, which is later than that of earlier moves. `None`: it has moved too often.
    pub fn moved_to(&self, region: &str, at: Timestamp) -> Option<Self> {
        let mut past = self.past.clone();
        let is_in_order = past.last().is_none_or(|last| last.until < at);
        if past.len() >= MOVES_MAX || !is_in_order {
            return None;
        }
        past.push(PastHome { region: self.region.clone(), until: at });
        Some(Self { region: region.into(), past })
    }

    /// Returns when it moves, or has moved last; `None`: never.
    pub fn last_move(&self) -> Option<Timestamp> {
        self.past.last().map(|past| past.until)
    }

    /// Returns the region that counts the windows of this duration that begin at this time or later, until it moves again.
    fn region_at(&self, start: Timestamp) -> &str {
        let past = self.past.iter().find(|past| start < past.until);
        past.map_or(&self.region, |past| &past.region)
    }

    /// Returns the regions that count windows of a duration, the earliest first; none if all are counted in one.
    pub fn list_windows(&self, duration_ms: i64) -> Vec<HomeWindows<'_>> {
        let start = |number: i64| Timestamp(number.saturating_mul(duration_ms));
        let mut found: Vec<HomeWindows<'_>> = Vec::new();
        for PastHome { until, .. } in &self.past {
            // The first window that begins at the time of the move or later.
            let is_inside = until.0.rem_euclid(duration_ms) != 0;
            let first_window = until.0.div_euclid(duration_ms) + i64::from(is_inside);
            let region = self.region_at(start(first_window));
            if found.is_empty() {
                let region = self.region_at(start(first_window - 1));
                found.push(HomeWindows { first_window: 0, region });
            }
            if found.last().is_some_and(|last| last.region != region) {
                found.push(HomeWindows { first_window, region });
            }
        }
        if found.len() > 1 { found } else { Vec::new() }
    }
}

impl fmt::Display for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.region)?;
        self.past.iter().try_for_each(|past| write!(f, " {}<{}", past.region, past.until.0))
    }
}

impl FromStr for Home {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut words = text.split(' ');
        let region = words.next().unwrap_or_default().to_owned();
        let past = words.map(|word| {
            let (region, until) = word.split_once('<')?;
            Some(PastHome { region: region.into(), until: Timestamp(until.parse().ok()?) })
        });
        let past = past.collect::<Option<_>>().ok_or_else(|| format!("invalid home {text:?}"))?;
        Ok(Self { region, past })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(text: &str) -> Home {
        text.parse().expect("a home")
    }

    #[test]
    fn parse_returns_what_display_writes() {
        for text in ["us", "us eu<1764115200000", "ap eu<1 us<5"] {
            assert_eq!(home(text).to_string(), text);
        }
        assert_eq!(home("us"), Home::new("us"));
        for invalid in ["us eu", "us eu<", "us eu<soon", "us "] {
            assert!(invalid.parse::<Home>().is_err(), "{invalid}");
        }
    }

    #[test]
    fn window_is_counted_where_its_home_was_when_it_began() {
        let windows = |text: &str, duration_ms| {
            let home = home(text);
            let found = home.list_windows(duration_ms).into_iter();
            let found = found.map(|it| format!("{} {}", it.first_window, it.region));
            found.collect::<Vec<_>>().join(", ")
        };

        assert_eq!(windows("us", 10), "");
        assert_eq!(windows("us eu<95", 10), "0 eu, 10 us");
        assert_eq!(windows("us eu<100", 10), "0 eu, 10 us", "at its begin");
        assert_eq!(windows("us eu<101", 10), "0 eu, 11 us");
        assert_eq!(windows("ap eu<95 us<215", 10), "0 eu, 10 us, 22 ap");
        assert_eq!(windows("eu eu<95 us<105", 10), "0 eu, 10 us, 11 eu", "back after one window");
        assert_eq!(windows("ap eu<95 us<215", 1_000), "0 eu, 1 ap", "both in the same window");
        assert_eq!(windows("eu eu<95 us<99", 1_000), "", "it returns in the same window");
    }

    #[test]
    fn home_moves_a_bounded_number_of_times_and_in_order() {
        let mut moving = Home::new("eu");
        for n in 1..=16 {
            moving = moving.moved_to("us", Timestamp(n)).expect("a move");
            assert_eq!(moving.last_move(), Some(Timestamp(n)));
        }
        assert_eq!(moving.moved_to("us", Timestamp(17)), None);
        assert_eq!(home("us eu<5").moved_to("eu", Timestamp(5)), None);
    }
}
