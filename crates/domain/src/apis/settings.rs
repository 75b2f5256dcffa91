//! Settings of an API and their validation.

use foundation::error::{Error, FieldError, Result};
use foundation::model::{AllowedChars, Api, Networks, Patch};

use crate::bounds::{API_NAME_MAX, API_NAME_MIN, KEY_BYTES_MAX, KEY_BYTES_MIN, KEY_PREFIX_MAX};
use crate::names;

/// A change to an API. Absent fields keep their values.
#[derive(Debug, Default)]
pub struct ApiChange {
    pub name: Option<String>,
    /// Empty: no default prefix.
    pub default_prefix: Option<String>,
    pub default_byte_length: Patch<i64>,
    pub recoverable_keys: Option<bool>,
    pub delete_protection: Option<bool>,
    /// Networks and addresses, separated by commas. Empty: all addresses are allowed.
    pub allowed_networks: Option<String>,
}

/// A change that has been validated.
pub struct ValidatedApiChange {
    change: ApiChange,
    networks: Patch<Networks>,
}

/// Reports whether a text is a valid key prefix: at most [`KEY_PREFIX_MAX`] letters, digits and `_`.
pub fn is_valid_prefix(text: &str) -> bool {
    text.len() <= KEY_PREFIX_MAX && text.chars().all(|c| AllowedChars::Word.contains(c))
}

impl ApiChange {
    /// Validates the change. The error lists all invalid fields.
    pub fn validate(self) -> Result<ValidatedApiChange> {
        let mut errors = Vec::new();
        let mut reject = |location: &str, message: String| {
            errors.push(FieldError { location: location.to_owned(), message, fix: None });
        };
        let is_name = |name: &String| (API_NAME_MIN..=API_NAME_MAX).contains(&name.chars().count());
        if self.name.as_deref().is_some_and(|name| names::validate("name", name).is_err()) {
            reject("name", names::error_message("name"));
        } else if !self.name.as_ref().is_none_or(is_name) {
            let message = format!("name must have {API_NAME_MIN} to {API_NAME_MAX} characters");
            reject("name", message);
        }
        if !self.default_prefix.as_deref().is_none_or(is_valid_prefix) {
            let message = format!(
                "prefix must have at most {KEY_PREFIX_MAX} letters, digits and underscores"
            );
            reject("prefix", message);
        }
        if let Patch::Set(length) = self.default_byte_length
            && !(KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&length)
        {
            let message =
                format!("random bytes must be a number from {KEY_BYTES_MIN} to {KEY_BYTES_MAX}");
            reject("bytes", message);
        }
        let networks = match self.allowed_networks.as_deref().map(Networks::parse) {
            None => Patch::Keep,
            Some(Ok(networks)) if networks.len() > Networks::MAX => {
                reject("networks", format!("at most {} networks are allowed", Networks::MAX));
                Patch::Keep
            }
            Some(Ok(networks)) => Networks::new(networks).map_or(Patch::Clear, Patch::Set),
            Some(Err(message)) => {
                reject("networks", message);
                Patch::Keep
            }
        };
        if errors.is_empty() {
            return Ok(ValidatedApiChange { change: self, networks });
        }
        Err(Error::Invalid(errors))
    }
}

impl ValidatedApiChange {
    pub fn apply(self, api: &mut Api) {
        let ApiChange { name, default_prefix, default_byte_length, .. } = self.change;
        let settings = &mut api.settings;
        if let Some(prefix) = default_prefix {
            settings.default_prefix = Some(prefix).filter(|prefix| !prefix.is_empty());
        }
        default_byte_length
            .map(|length| u8::try_from(length).unwrap_or(u8::MAX))
            .apply(&mut settings.default_byte_length);
        settings.allows_recoverable_keys =
            self.change.recoverable_keys.unwrap_or(settings.allows_recoverable_keys);
        settings.is_delete_protected =
            self.change.delete_protection.unwrap_or(settings.is_delete_protected);
        self.networks.apply(&mut settings.allowed_networks);
        if let Some(name) = name {
            api.name = name;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invalid_fields(change: ApiChange) -> Vec<String> {
        match change.validate() {
            Err(Error::Invalid(errors)) => errors.into_iter().map(|error| error.location).collect(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn api_change_is_rejected_when_value_is_out_of_bounds() {
        let name = |length| ApiChange { name: Some("é".repeat(length)), ..ApiChange::default() };
        let prefix =
            |text: &str| ApiChange { default_prefix: Some(text.into()), ..ApiChange::default() };
        let bytes =
            |length| ApiChange { default_byte_length: Patch::Set(length), ..ApiChange::default() };
        let from =
            |text: &str| ApiChange { allowed_networks: Some(text.into()), ..ApiChange::default() };

        for valid in
            [name(3), name(256), prefix(""), prefix(&"a".repeat(16)), bytes(16), bytes(255)]
        {
            assert_eq!(invalid_fields(valid), Vec::<String>::new());
        }
        assert_eq!([invalid_fields(name(2)), invalid_fields(name(257))], [["name"], ["name"]]);
        assert_eq!(
            [invalid_fields(prefix(&"a".repeat(17))), invalid_fields(prefix("a-b"))],
            [["prefix"], ["prefix"]]
        );
        assert_eq!([invalid_fields(bytes(15)), invalid_fields(bytes(256))], [["bytes"], ["bytes"]]);
        assert_eq!(invalid_fields(from("10.0.0.0/8, ::1")), Vec::<String>::new());
        assert_eq!(invalid_fields(from("here")), ["networks"]);
        assert_eq!(invalid_fields(from(&["10.0.0.1"; 101].join(","))), ["networks"]);
    }
}
