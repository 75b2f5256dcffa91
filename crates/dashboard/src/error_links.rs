//! Where the errors of a form are shown: beside their fields, and in a summary with links to them.

use std::borrow::Cow;

use super::field_reader::without_indexes;
use super::form::FormErrors;

/// An error in the summary of a form.
pub struct ErrorLink {
    /// The id of the field in the page; `None` if the error is about no single field.
    pub id: Option<String>,
    pub text: String,
}

/// The fields of forms: path, id in the page, label.
const FIELDS: [(&str, &str, &str); 50] = [
    ("name", "name", "Name"),
    ("externalId", "externalId", "External ID"),
    ("prefix", "prefix", "Prefix"),
    ("byteLength", "bytes", "Random bytes"),
    ("bytes", "bytes", "Default random bytes"),
    ("networks", "networks", "Allowed networks"),
    ("expires", "expires", "Expires"),
    ("credits.remaining", "remaining", "Remaining credits"),
    ("credits.refill", "refill", "Refill"),
    ("credits.refill.interval", "refill", "Refill"),
    ("credits.refill.amount", "refill-amount", "Refill amount"),
    ("credits.refill.refillDay", "refill-day", "Day of the month"),
    ("roles", "roles", "Roles"),
    ("permissions", "permissions", "Permissions"),
    ("meta", "meta", "Metadata"),
    ("slug", "slug", "Slug"),
    ("description", "description", "Description"),
    ("scope", "scope", "APIs"),
    ("permission", "everywhere", "Permissions"),
    ("identifier", "identifier", "Identifier"),
    ("limit", "limit", "Limit"),
    ("duration", "duration", "Window"),
    ("cost", "cost", "Cost"),
    ("operation", "operation", "Operation"),
    ("value", "value", "Amount"),
    ("ratelimits", "limits", "Rate limits"),
    ("rules", "rules", "Rules"),
    ("namespaces", "namespaces", "Namespaces"),
    ("outage", "outage", "Outage policy"),
    ("algorithm", "algorithm", "Hash algorithm"),
    ("apiId", "api", "API"),
    ("file", "file", "File"),
    ("apiIds", "apiIds", "APIs"),
    ("keyFrom", "keyFrom", "Key locations"),
    ("identityHeaders.headers", "headers", "Headers"),
    ("identityHeaders.meta", "meta", "Metadata fields"),
    ("onFailure", "onFailure", "Error format"),
    ("allowFrom", "allowFrom", "Trusted networks"),
    ("resource", "resource", "Protected resource"),
    ("authorizationServers", "authorizationServers", "Authorization servers"),
    ("keyward", "keyward", "Address of Keyward"),
    ("service", "service", "Address of the service"),
    ("method", "method", "Method"),
    ("path", "target", "Path"),
    ("key", "key", "Key"),
    ("headers", "headers", "Other headers"),
    ("address", "address", "Client address"),
    ("email", "email", "E-mail"),
    ("current", "current", "Current password"),
    ("password", "password", "Password"),
];

impl FormErrors {
    /// Returns the errors of a field, such as `credits.remaining` or `ratelimits[0].limit`, each as a sentence without the
    /// path. Those of subfields are not included; those of the entries of a list are.
    pub fn beside(&self, path: &str) -> Vec<String> {
        let is_row = path.contains('[');
        let errors = self.iter().filter(|(field, message)| match is_row {
            true => {
                let named = path_of(message);
                let rest = named.strip_prefix(path);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('['))
            }
            false => *field == path,
        });
        errors.map(|(field, message)| to_sentence(&message_without_path(field, message))).collect()
    }

    /// Returns all errors, each with the label and the id of its field.
    pub fn links(&self) -> Vec<ErrorLink> {
        self.iter().map(|(field, message)| build_link(field, message)).collect()
    }
}

fn build_link(field: &str, message: &str) -> ErrorLink {
    let rest = message_without_path(field, message);
    if let Some(place) = RowField::parse(&path_of(message)) {
        let text = format!("{}: {} {rest}", place.row, column_label(&place.column));
        return ErrorLink { id: Some(place.id), text };
    }
    let Some((_, id, label)) = FIELDS.iter().find(|(path, ..)| *path == field) else {
        return ErrorLink { id: None, text: message.to_owned() };
    };
    let text = match rest {
        Cow::Borrowed(rest) if rest.len() == message.len() => message.to_owned(),
        // The number of an entry.
        Cow::Owned(rest) => format!("{label}, {rest}"),
        Cow::Borrowed(rest) => format!("{label} {rest}"),
    };
    ErrorLink { id: Some((*id).to_owned()), text }
}

/// A field of a row of a form.
struct RowField {
    /// The id in the page.
    id: String,
    /// The label of the row.
    row: String,
    /// The name of the field, as in the path.
    column: String,
}

impl RowField {
    /// Finds the field of a path, such as `ratelimits[0].limit` or `rules[1].ratelimits[0].cost`.
    fn parse(path: &str) -> Option<Self> {
        let (list, at, column) = split_row(path)?;
        let column = column.split('[').next().unwrap_or_default();
        let nested = path.split_once("].").and_then(|(_, rest)| split_row(rest));
        let (id, row) = match (list, column, nested) {
            ("ratelimits", "name" | "limit" | "duration", _) => {
                (format!("limit-{column}-{at}"), format!("Rate limit {}", at + 1))
            }
            ("rules", "ratelimits", Some((_, nth, column))) => {
                let id = if column == "duration" { "window" } else { column };
                let row = format!("Limit {} of rule {}", nth + 1, at + 1);
                return Some(Self {
                    id: format!("limit-{id}-{at}-{nth}"),
                    row,
                    column: column.to_owned(),
                });
            }
            ("rules", "methods" | "path" | "permissions" | "cost" | "tags", _) => {
                (format!("rule-{column}-{at}"), format!("Rule {}", at + 1))
            }
            ("namespaces", column, _) => {
                let id = match column {
                    "defaultLimit.limit" => format!("namespace-limit-{at}"),
                    "defaultLimit.duration" => format!("namespace-window-{at}"),
                    _ => format!("namespace-{at}"),
                };
                (id, format!("Namespace {}", at + 1))
            }
            _ => return None,
        };
        Some(Self { id, row, column: column.to_owned() })
    }
}

/// Returns the label of a field of a row, within a sentence.
fn column_label(column: &str) -> &str {
    match column {
        "duration" => "window",
        "namespace" => "name",
        "defaultLimit.limit" => "default limit",
        "defaultLimit.duration" => "default window",
        column => column,
    }
}

/// Splits a path such as `rules[1].path` into list, index and field.
fn split_row(path: &str) -> Option<(&str, usize, &str)> {
    let (list, rest) = path.split_once('[')?;
    let (at, column) = rest.split_once("].")?;
    Some((list, at.parse().ok()?, column))
}

/// Returns the path that begins a message. An error of a whole row is that of its main field.
fn path_of(message: &str) -> String {
    let path = first_word(message);
    let whole_row = path.strip_suffix(']').and_then(|rest| rest.rsplit_once('['));
    match whole_row.map(|(list, _)| list.rsplit('.').next().unwrap_or(list)) {
        Some("ratelimits") => format!("{path}.limit"),
        Some("namespaces") => format!("{path}.namespace"),
        _ => path.to_owned(),
    }
}

fn first_word(message: &str) -> &str {
    message.split(' ').next().unwrap_or_default()
}

/// Removes the path of the field from the beginning of a message. The path of an entry of a list, such as `roles[2]`,
/// becomes the number of the entry.
fn message_without_path<'m>(field: &str, message: &'m str) -> Cow<'m, str> {
    let path = first_word(message);
    if field.is_empty() || without_indexes(path) != field {
        return Cow::Borrowed(message);
    }
    let rest = message[path.len()..].trim_start();
    let entry = path_of(message)
        .strip_suffix(']')
        .and_then(|rest| rest.rsplit('[').next()?.parse::<usize>().ok());
    entry.map_or(Cow::Borrowed(rest), |at| Cow::Owned(format!("entry {} {rest}", at + 1)))
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
            ("ratelimits.limit", "ratelimits[0].limit must be a whole number from 1 to 5"),
            ("ratelimits.limit", "ratelimits[10].limit must be a whole number from 1 to 5"),
            ("roles", "role x does not exist; create it first"),
            ("prefix", "prefix must contain only letters, digits and _ . -"),
            ("credits.refill.amount", "credits.refill.amount must be a whole number from 1 to 5"),
            ("keyFrom", "keyFrom[1] must be a location"),
            ("rules.tags", "rules[1].tags[2] must be short"),
            ("rules.ratelimits", "rules[0].ratelimits[2] must have both"),
            ("namespaces", "namespaces[1] is repeated"),
        ]);

        assert_eq!(errors.beside("externalId"), ["Must have at most 5 characters."]);
        assert_eq!(errors.beside("ratelimits[10].limit"), ["Must be a whole number from 1 to 5."]);
        assert_eq!(errors.beside("ratelimits[1].limit"), [""; 0]);
        assert_eq!(errors.beside("roles"), ["Role x does not exist; create it first."]);
        assert_eq!(errors.beside("prefix"), ["Must contain only letters, digits and _ . -"]);
        assert_eq!(errors.beside("credits.refill"), [""; 0]);
        assert_eq!(errors.beside("credits.refill.amount").len(), 1);
        assert_eq!(errors.beside("keyFrom"), ["Entry 2 must be a location."]);
        assert_eq!(errors.beside("rules[1].tags"), ["Entry 3 must be short."]);
        assert_eq!(errors.beside("rules[0].ratelimits[2].limit"), ["Must have both."]);
        assert_eq!(errors.beside("rules[0].ratelimits[2].name"), [""; 0]);
        assert_eq!(errors.beside("namespaces[1].namespace"), ["Is repeated."]);
    }

    #[test]
    fn summary_names_and_links_fields() {
        let errors = errors(&[
            ("byteLength", "byteLength must be a whole number from 16 to 255"),
            ("ratelimits.duration", "ratelimits[2].duration must be longer"),
            ("permissions", "permissions[1] must contain only letters"),
            ("ratelimits", "ratelimits must have at most 50 entries"),
            ("", "the whole form is wrong"),
            ("rules.path", "rules[1].path must begin with a slash"),
            ("rules.tags", "rules[1].tags[2] must be short"),
            ("rules.ratelimits.duration", "rules[1].ratelimits[0].duration must be longer"),
            ("rules.ratelimits", "rules[0].ratelimits[2] must have both"),
            (
                "namespaces.defaultLimit.duration",
                "namespaces[3].defaultLimit.duration must be longer",
            ),
            ("namespaces", "namespaces[1] is repeated"),
        ]);

        let links = errors.links();
        let found: Vec<_> = links.iter().map(|link| (link.id.as_deref(), &*link.text)).collect();
        let expected = [
            (Some("bytes"), "Random bytes must be a whole number from 16 to 255"),
            (Some("limit-duration-2"), "Rate limit 3: window must be longer"),
            (Some("permissions"), "Permissions, entry 2 must contain only letters"),
            (Some("limits"), "Rate limits must have at most 50 entries"),
            (None, "the whole form is wrong"),
            (Some("rule-path-1"), "Rule 2: path must begin with a slash"),
            (Some("rule-tags-1"), "Rule 2: tags entry 3 must be short"),
            (Some("limit-window-1-0"), "Limit 1 of rule 2: window must be longer"),
            (Some("limit-limit-0-2"), "Limit 3 of rule 1: limit must have both"),
            (Some("namespace-window-3"), "Namespace 4: default window must be longer"),
            (Some("namespace-1"), "Namespace 2: name is repeated"),
        ];
        assert_eq!(found, expected);
    }
}
