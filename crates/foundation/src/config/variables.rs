//! The names of the variables, as the program itself knows them.

use std::ffi::OsString;

use clap::Args as _;

use super::Config;

/// What the name of every variable begins with.
const PREFIX: &str = "KEYWARD_";

impl Config {
    /// Every variable.
    pub fn variables() -> Vec<String> {
        let command = Self::augment_args(clap::Command::new("keyward"));
        let named = command.get_arguments().filter_map(|argument| argument.get_env());
        named.map(|name| name.to_string_lossy().into_owned()).collect()
    }

    /// Of these names, those that look like ours and are none.
    pub fn unknown(names: impl Iterator<Item = OsString>) -> Vec<String> {
        let known = Self::variables();
        let texts = names.map(|name| name.to_string_lossy().into_owned());
        let mut unknown: Vec<_> =
            texts.filter(|name| name.starts_with(PREFIX) && !known.contains(name)).collect();
        unknown.sort();
        unknown
    }
}
