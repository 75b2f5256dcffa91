//! Where the errors of a form are shown: beside their fields, and in a summary with links to them.

use super::form::FormErrors;

/// An error in the summary of a form.
pub struct ErrorLink {
    /// The id of the field in the page; `None` if the error is about no single field.
    pub id: Option<String>,
    pub text: String,
}

/// The fields of forms whose summary has links: path, id in the page, label.
const FIELDS: [(&str, &str, &str); 13] = [
    ("name", "name", "Name"),
    ("externalId", "externalId", "External ID"),
    ("prefix", "prefix", "Prefix"),
    ("byteLength", "bytes", "Random bytes"),
    ("expires", "expires", "Expires"),
    ("credits.remaining", "remaining", "Remaining credits"),
    ("credits.refill", "refill", "Refill"),
    ("credits.refill.interval", "refill", "Refill"),
    ("credits.refill.amount", "refill-amount", "Refill amount"),
    ("credits.refill.refillDay", "refill-day", "Day of the month"),
    ("roles", "roles", "Roles"),
    ("permissions", "permissions", "Permissions"),
    ("meta", "meta", "Metadata"),
];

impl FormErrors {
    /// Returns the errors of a field, such as `credits.remaining` or `ratelimits[0].limit`, each as a sentence without the
    /// path. Those of subfields are not included.
    pub fn beside(&self, path: &str) -> Vec<String> {
        let is_row = path.contains('[');
        let errors = self.iter().filter(|(field, message)| match is_row {
            true => first_word(message) == path,
            false => *field == path,
        });
        errors.map(|(field, message)| to_sentence(message_without_path(field, message))).collect()
    }

    /// Returns all errors, each with the label and the id of its field.
    pub fn links(&self) -> Vec<ErrorLink> {
        self.iter().map(|(field, message)| build_link(field, message)).collect()
    }
}

fn build_link(field: &str, message: &str) -> ErrorLink {
    let rest = message_without_path(field, message);
    if let Some((at, column)) = parse_row(first_word(message)) {
        let text = format!("Rate limit {}: {column} {rest}", at + 1);
        return ErrorLink { id: Some(format!("limit-{column}-{at}")), text };
    }
    match FIELDS.iter().find(|(path, ..)| *path == field) {
        Some((_, id, label)) if rest.len() < message.len() => {
            ErrorLink { id: Some((*id).to_owned()), text: format!("{label} {rest}") }
        }
        Some((_, id, _)) => ErrorLink { id: Some((*id).to_owned()), text: message.to_owned() },
        None => ErrorLink { id: None, text: message.to_owned() },
    }
}

/// Returns the row and the column of a path such as `ratelimits[0].limit`.
fn parse_row(path: &str) -> Option<(usize, &str)> {
    let (at, column) = path.strip_prefix("ratelimits[")?.split_once("].")?;
    let at = at.parse().ok()?;
    ["name", "limit", "duration"].contains(&column).then_some((at, column))
}

fn first_word(message: &str) -> &str {
    message.split(' ').next().unwrap_or_default()
}

/// Removes the path of the field from the beginning of a message. A message that begins with that of an item, such as
/// `roles[2]`, keeps it.
fn message_without_path<'m>(field: &str, message: &'m str) -> &'m str {
    let path = first_word(message);
    let is_path = !field.is_empty() && (path == field || parse_row(path).is_some());
    if is_path { message[path.len()..].trim_start() } else { message }
}

fn to_sentence(text: &str) -> String {
    let mut letters = text.chars();
    let mut sentence: String =
        letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect();
    // A message may end with a list of characters.
    if sentence.ends_with(char::is_alphanumeric) {
        sentence.push('.');
    }
    sentence
}

#[cfg(test)]
mod tests {
    use foundation::error::{Error, FieldError};

    use super::super::form::split_form_errors;
    use super::*;

    fn errors(pairs: &[(&str, &str)]) -> FormErrors {
        let error = |(location, message): &(&str, &str)| FieldError {
            location: (*location).to_owned(),
            message: (*message).to_owned(),
            fix: None,
        };
        let invalid = Error::Invalid(pairs.iter().map(error).collect());
        match split_form_errors::<()>(Err(invalid)) {
            Ok(Err(errors)) => errors,
            _ => panic!("no errors"),
        }
    }

    #[test]
    fn errors_are_beside_their_fields() {
        let errors = errors(&[
            ("externalId", "externalId must have at most 5 characters"),
            ("ratelimits.limit", "ratelimits[0].limit must be an integer from 1 to 5"),
            ("ratelimits.limit", "ratelimits[10].limit must be an integer from 1 to 5"),
            ("roles", "role x does not exist; create it first"),
            ("prefix", "prefix must contain only letters, digits and _ . -"),
            ("credits.refill.amount", "credits.refill.amount must be an integer from 1 to 5"),
        ]);

        assert_eq!(errors.beside("externalId"), ["Must have at most 5 characters."]);
        assert_eq!(errors.beside("ratelimits[10].limit"), ["Must be an integer from 1 to 5."]);
        assert_eq!(errors.beside("ratelimits[1].limit"), [""; 0]);
        assert_eq!(errors.beside("roles"), ["Role x does not exist; create it first."]);
        assert_eq!(errors.beside("prefix"), ["Must contain only letters, digits and _ . -"]);
        assert_eq!(errors.beside("credits.refill"), [""; 0]);
        assert_eq!(errors.beside("credits.refill.amount").len(), 1);
    }

    #[test]
    fn summary_names_and_links_fields() {
        let errors = errors(&[
            ("byteLength", "byteLength must be an integer from 16 to 255"),
            ("ratelimits.duration", "ratelimits[2].duration must be longer"),
            ("permissions", "permissions[1] must contain only letters"),
            ("ratelimits", "ratelimits must have at most 50 entries"),
            ("", "the whole form is wrong"),
        ]);

        let links = errors.links();
        let found: Vec<_> = links.iter().map(|link| (link.id.as_deref(), &*link.text)).collect();
        let expected = [
            (Some("bytes"), "Random bytes must be an integer from 16 to 255"),
            (Some("limit-duration-2"), "Rate limit 3: duration must be longer"),
            (Some("permissions"), "permissions[1] must contain only letters"),
            (None, "ratelimits must have at most 50 entries"),
            (None, "the whole form is wrong"),
        ];
        assert_eq!(found, expected);
    }
}
