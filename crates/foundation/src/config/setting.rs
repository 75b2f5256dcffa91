//! Settings that state their variable, their default and their allowed values once: [`Config::validate`], the help and
//! the documentation use the same constant.
//!
//! The command line accepts any text for them. Otherwise `keyward doctor` could not report an invalid value, and
//! commands that need no settings would fail.
//!
//! [`Config::validate`]: super::Config::validate

use std::ffi::OsStr;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Command};

use crate::model::Retention;

/// A setting that is a whole number. As a default value of clap, it stands for its default.
#[derive(Clone, Copy)]
pub struct NumberSetting {
    /// The environment variable.
    pub name: &'static str,
    pub default: u64,
    pub min: u64,
    pub max: u64,
}

impl NumberSetting {
    /// Parses a value, or returns the default. The error names the variable, the value and the bounds.
    pub fn parse(self, value: Option<&str>) -> Result<u64, String> {
        let Self { name, default, min, max } = self;
        let Some(text) = value else { return Ok(default) };
        match text.parse() {
            Ok(number) if (min..=max).contains(&number) => Ok(number),
            _ => Err(format!("{name} is {text:?}: it must be a whole number from {min} to {max}")),
        }
    }

    /// Like [`NumberSetting::parse`], for a number of connections.
    pub fn parse_u32(self, value: Option<&str>) -> Result<u32, String> {
        Ok(u32::try_from(self.parse(value)?).unwrap_or(u32::MAX))
    }

    /// Like [`NumberSetting::parse`], for a number of things in memory.
    pub fn parse_usize(self, value: Option<&str>) -> Result<usize, String> {
        Ok(usize::try_from(self.parse(value)?).unwrap_or(usize::MAX))
    }
}

impl From<NumberSetting> for clap::builder::OsStr {
    fn from(setting: NumberSetting) -> Self {
        setting.default.to_string().into()
    }
}

/// A setting that is one of a few words. As a value parser of clap, it accepts any text, and shows the words in the
/// help and in completions.
#[derive(Clone, Copy)]
pub struct ChoiceSetting<T: 'static> {
    /// The environment variable.
    pub name: &'static str,
    /// One of the words.
    pub default: &'static str,
    /// At least two words with their meanings.
    pub choices: &'static [(&'static str, T)],
}

impl<T: Copy> ChoiceSetting<T> {
    /// Parses a value, or returns the meaning of the default. The error names the variable, the value and the words.
    pub fn parse(&self, value: Option<&str>) -> Result<T, String> {
        let text = value.unwrap_or(self.default);
        let found = self.choices.iter().find(|(word, _)| *word == text);
        found.map(|(_, choice)| *choice).ok_or_else(|| {
            let words: Vec<_> = self.choices.iter().map(|(word, _)| *word).collect();
            let last = words.len() - 1;
            let words = format!("{} or {}", words[..last].join(", "), words[last]);
            format!("{} is {text:?}: it must be {words}", self.name)
        })
    }
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for ChoiceSetting<T> {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.choices.iter().map(|(word, _)| PossibleValue::new(*word))))
    }
}

/// The maximum retention in days: ten years.
const DAYS_MAX: u32 = 3650;

/// A setting that is the retention of one kind of events. As a default value of clap, it stands for its default.
#[derive(Clone, Copy)]
pub struct RetentionSetting {
    /// The environment variable.
    pub name: &'static str,
    pub default: Retention,
}

impl RetentionSetting {
    /// Parses days by unit, such as `raw=7,hour=30`; other units keep their default.
    pub fn parse(self, value: Option<&str>) -> Result<Retention, String> {
        let Self { name, default: mut retention } = self;
        for part in value.into_iter().flat_map(|text| text.split(',')) {
            let invalid = || {
                format!(
                    "{name} has {part:?}: it must be a list such as raw=7,minute=7,hour=30,day=365,month=1095, \
                    each with 1 to {DAYS_MAX} days"
                )
            };
            let (unit, days) = part.trim().split_once('=').ok_or_else(invalid)?;
            let days = days.parse().ok().filter(|days| (1..=DAYS_MAX).contains(days));
            let days = days.ok_or_else(invalid)?;
            match unit {
                "raw" => retention.raw_days = days,
                "minute" => retention.minute_days = days,
                "hour" => retention.hour_days = days,
                "day" => retention.day_days = days,
                "month" => retention.month_days = days,
                _ => return Err(invalid()),
            }
        }
        Ok(retention)
    }
}

impl From<RetentionSetting> for clap::builder::OsStr {
    fn from(setting: RetentionSetting) -> Self {
        let Retention {
            raw_days: raw,
            minute_days: minute,
            hour_days: hour,
            day_days: day,
            month_days: month,
        } = setting.default;
        format!("raw={raw},minute={minute},hour={hour},day={day},month={month}").into()
    }
}

/// Returns the help of a setting that has no default value of clap, because it matters whether it is set.
pub fn help_with_default(help: &str, default: &str) -> String {
    format!("{help} [default: {default}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBER: NumberSetting = NumberSetting { name: "KEYWARD_X", default: 5, min: 2, max: 9 };
    const TWO: ChoiceSetting<bool> = ChoiceSetting {
        name: "KEYWARD_X",
        default: "off",
        choices: &[("on", true), ("off", false)],
    };
    const THREE: ChoiceSetting<u8> =
        ChoiceSetting { name: "KEYWARD_X", default: "a", choices: &[("a", 1), ("b", 2), ("c", 3)] };

    #[test]
    fn number_is_parsed_within_its_bounds() {
        assert_eq!(NUMBER.parse(None), Ok(5));
        assert_eq!((NUMBER.parse(Some("2")), NUMBER.parse(Some("9"))), (Ok(2), Ok(9)));
        for invalid in ["1", "10", "", " 5", "-5", "5.0", "five", "99999999999999999999"] {
            let expected =
                format!("KEYWARD_X is {invalid:?}: it must be a whole number from 2 to 9");
            assert_eq!(NUMBER.parse(Some(invalid)), Err(expected));
        }
    }

    #[test]
    fn choice_is_parsed_and_error_lists_the_words() {
        assert_eq!((TWO.parse(None), TWO.parse(Some("on"))), (Ok(false), Ok(true)));
        assert_eq!((THREE.parse(None), THREE.parse(Some("c"))), (Ok(1), Ok(3)));
        for (error, expected) in [
            (TWO.parse(Some("ON")).err(), "KEYWARD_X is \"ON\": it must be on or off"),
            (TWO.parse(Some("")).err(), "KEYWARD_X is \"\": it must be on or off"),
            (THREE.parse(Some("d")).err(), "KEYWARD_X is \"d\": it must be a, b or c"),
        ] {
            assert_eq!(error.as_deref(), Some(expected));
        }
    }

    #[test]
    fn retention_keeps_the_default_of_other_units() {
        let default =
            Retention { raw_days: 1, minute_days: 2, hour_days: 3, day_days: 4, month_days: 5 };
        let setting = RetentionSetting { name: "KEYWARD_X", default };

        let text = std::ffi::OsString::from(clap::builder::OsStr::from(setting));
        assert_eq!(setting.parse(text.to_str()), Ok(default));
        assert_eq!(setting.parse(None), Ok(default));
        assert_eq!(
            setting.parse(Some("hour=3650, raw=7")),
            Ok(Retention { raw_days: 7, hour_days: 3650, ..default })
        );
        for invalid in ["", "hour", "hour=0", "hour=3651", "year=1", "hour=1,"] {
            let error = setting.parse(Some(invalid)).expect_err("an error");
            assert!(error.contains("KEYWARD_X") && error.contains("1 to 3650 days"), "{error}");
        }
    }
}
