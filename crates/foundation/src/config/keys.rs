//! The settings of the root key and the master keys.

use std::path::Path;

use super::Config;
use super::values::load_secret;
use crate::secret::Plaintext;
use crate::vault::{MasterKey, MasterKeys};

impl Config {
    pub(super) fn root_key(&self) -> Result<Option<Plaintext>, String> {
        let key =
            load_secret("KEYWARD_ROOT_KEY", self.root_key.as_ref(), self.root_key_file.as_deref())?;
        let Some(key) = key else { return Ok(None) };
        let length = key.chars().count();
        if !(20..=255).contains(&length) {
            return Err(format!(
                "KEYWARD_ROOT_KEY has {length} characters: it must have 20 to 255 characters"
            ));
        }
        if !key.chars().all(|c| c.is_ascii_graphic()) {
            return Err("KEYWARD_ROOT_KEY must be printable ASCII without spaces, \
                because it is sent in a header"
                .into());
        }
        Ok(Some(Plaintext::from(key)))
    }

    pub(super) fn master_keys(&self) -> Result<Option<MasterKeys>, String> {
        let parse_key = |name: &str, value: Option<&String>, file: Option<&Path>| {
            let Some(text) = load_secret(name, value, file)? else { return Ok(None) };
            MasterKey::parse(&text).map(Some).map_err(|error| format!("{name} {error}"))
        };
        let (name, previous_name) = ("KEYWARD_MASTER_KEY", "KEYWARD_MASTER_KEY_PREVIOUS");
        let current = parse_key(name, self.master_key.as_ref(), self.master_key_file.as_deref())?;
        let (value, file) = (&self.master_key_previous, &self.master_key_previous_file);
        let previous = parse_key(previous_name, value.as_ref(), file.as_deref())?;
        match (current, previous) {
            (Some(current), previous) => {
                Ok(Some(MasterKeys { current_key: current, previous_key: previous }))
            }
            (None, None) => Ok(None),
            (None, Some(_)) => {
                Err(format!("{previous_name} is set and {name} is not: set both, or neither"))
            }
        }
    }
}
