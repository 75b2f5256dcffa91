//! The faults of keys in a file that is imported, as an error lists them.

use api::FIELD_ERRORS_MAX;
use foundation::error::Error;

/// The maximum number of faults that an error lists: the keys of a file often have the same one.
const FAULTS_MAX: usize = 5;

/// Lists the faults of the keys in a request. `first` is the number of the first key in the file.
pub fn format_faults(error: &Error, first: usize) -> String {
    let Error::Invalid(faults) = error else { return number_keys(&error.to_string(), first) };
    let listed: Vec<_> =
        faults.iter().take(FAULTS_MAX).map(|fault| number_keys(&fault.message, first)).collect();
    let listed = listed.join("; ");
    match faults.len().saturating_sub(FAULTS_MAX) {
        0 => listed,
        // Validation has stopped at its maximum.
        more if faults.len() >= FIELD_ERRORS_MAX => format!("{listed}; and at least {more} more"),
        more => format!("{listed}; and {more} more"),
    }
}

/// Names the keys in an error by their numbers in the file: `keys[0].name` becomes `key 1: name`. `first` is the number of the
/// first one.
fn number_keys(message: &str, first: usize) -> String {
    let mut parts = message.split("keys[");
    let mut numbered = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let index = part.split_once(']');
        match index.and_then(|(at, rest)| Some((at.parse::<usize>().ok()?, rest))) {
            Some((at, rest)) => {
                let number = first.saturating_add(at).to_string();
                let (separator, rest) =
                    rest.strip_prefix('.').map_or(("", rest), |field| (": ", field));
                numbered.extend(["key ", number.as_str(), separator, rest]);
            }
            None => numbered.extend(["keys[", part]),
        }
    }
    numbered
}

#[cfg(test)]
mod tests {
    use foundation::error::FieldError;

    use super::*;

    #[test]
    fn faults_beyond_the_fifth_are_counted() {
        let list = |count: usize| {
            let fault = |at: usize| FieldError {
                location: String::new(),
                message: format!("keys[{at}].name is short"),
                fix: None,
            };
            format_faults(&Error::Invalid((0..count).map(fault).collect()), 11)
        };

        let five = "key 11: name is short; key 12: name is short; key 13: name is short; \
            key 14: name is short; key 15: name is short";
        assert_eq!(list(1), "key 11: name is short");
        assert_eq!(list(5), five);
        assert_eq!(list(6), format!("{five}; and 1 more"));
        assert_eq!(list(FIELD_ERRORS_MAX - 1), format!("{five}; and 94 more"));
        assert_eq!(list(FIELD_ERRORS_MAX), format!("{five}; and at least 95 more"));
    }

    #[test]
    fn keys_in_errors_have_their_numbers_in_the_file() {
        let message = "a of keys[0] is missing; keys[12].roles[1] is short; keys[x] keys[3";

        let numbered = "a of key 5 is missing; key 17: roles[1] is short; keys[x] keys[3";
        assert_eq!(number_keys(message, 5), numbered);
    }
}
