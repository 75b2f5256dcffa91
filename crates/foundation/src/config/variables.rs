//! Lists the names of the environment variables.

use std::ffi::OsString;

use clap::Args as _;

use super::Config;

/// The prefix of every variable.
const PREFIX: &str = "KEYWARD_";

impl Config {
    /// Returns the names of all variables.
    pub fn list_variables() -> Vec<String> {
        let command = Self::augment_args(clap::Command::new("keyward"));
        let named = command.get_arguments().filter_map(|argument| argument.get_env());
        named.map(|name| name.to_string_lossy().into_owned()).collect()
    }

    /// Returns those names that have the prefix and are not a variable.
    pub fn list_unknown_variables(names: impl Iterator<Item = OsString>) -> Vec<String> {
        let variables = Self::list_variables();
        let texts = names.map(|name| name.to_string_lossy().into_owned());
        let mut unknown: Vec<_> =
            texts.filter(|name| name.starts_with(PREFIX) && !variables.contains(name)).collect();
        unknown.sort();
        unknown
    }
}
