//! Validation of names before they are stored.

use foundation::error::{Error, Result};
use foundation::model::AllowedChars;

/// Returns an error if a name contains a character that changes how the text around it is displayed. Lookups do not
/// use this check, so names that were stored before it existed can still be found.
pub fn validate(field: &str, name: &str) -> Result<()> {
    match name.chars().all(|c| AllowedChars::Printable.contains(c)) {
        true => Ok(()),
        false => Err(Error::invalid(field, error_message(field))),
    }
}

/// Returns the message of the error that [`validate`] returns.
pub fn error_message(field: &str) -> String {
    format!("{field} {}", AllowedChars::Printable.rule())
}
