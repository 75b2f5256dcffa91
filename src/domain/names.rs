//! Names that are about to be kept.

use foundation::error::{Error, Result};
use foundation::model::is_hidden;

/// Fails where a name holds a character that changes how the text around it is shown. Those that are kept already
/// go on being found.
pub fn check(field: &str, name: &str) -> Result<()> {
    match name.chars().any(is_hidden) {
        true => Err(Error::invalid(field, fault(field))),
        false => Ok(()),
    }
}

/// As [`check`] words it.
pub fn fault(field: &str) -> String {
    format!(
        "{field} must not contain control characters or characters that change the direction of text"
    )
}
