//! Parsed forms and queries, and their validation errors.

use foundation::error::{Error, FieldError};

use super::failure::Failure;

/// Limits the number of fields that are read.
pub const FIELDS_MAX: usize = 2_000;

/// The fields of a form in the order in which they were sent. A name may occur more than once.
#[derive(Debug, Clone, Default)]
pub struct Form(Vec<(String, String)>);

impl Form {
    /// Parses URL-encoded fields.
    pub fn parse(bytes: &[u8]) -> Self {
        Self::from_fields(form_urlencoded::parse(bytes).take(FIELDS_MAX))
    }

    /// Creates a form of fields that were read within their bounds. NUL, which Postgres cannot store in text, is replaced by
    /// U+FFFD.
    pub fn from_fields<T: AsRef<str>>(fields: impl Iterator<Item = (T, T)>) -> Self {
        let whole = |text: T| text.as_ref().replace('\0', "\u{fffd}");
        Self(fields.map(|(name, value)| (whole(name), whole(value))).collect())
    }

    /// Returns the first value of a field; empty if the field is missing.
    pub fn text(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    /// Iterates over all values of a field.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Returns all non-empty fields except these, as a query.
    pub fn query_without(&self, names: &[&str]) -> form_urlencoded::Serializer<'static, String> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        let others = self
            .0
            .iter()
            .filter(|(name, value)| !names.contains(&name.as_str()) && !value.is_empty());
        query.extend_pairs(others);
        query
    }
}

/// The validation errors of a form: field names and messages.
#[derive(Debug, Default)]
pub struct FormErrors(Vec<(String, String)>);

impl FormErrors {
    /// Creates the errors of fields. Messages of the API are Markdown: what stands in backticks is quoted.
    pub fn new(errors: Vec<FieldError>) -> Self {
        let quoted = |fault: FieldError| {
            (field_from_location(&fault.location), fault.message.replace('`', "\""))
        };
        Self(errors.into_iter().map(quoted).collect())
    }

    /// Creates a single error. An empty field name means the whole form.
    pub fn single(field: &str, sentence: impl Into<String>) -> Self {
        Self(vec![(field.to_owned(), sentence.into())])
    }

    /// Iterates over field names and messages.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(field, sentence)| (field.as_str(), sentence.as_str()))
    }

    /// Iterates over all messages, for the top of the page.
    pub fn messages(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(_, sentence)| sentence.as_str())
    }

    /// Returns whether a field or one of its subfields has an error: `credits` includes `credits.refill`.
    pub fn has_error(&self, field: &str) -> bool {
        self.0.iter().any(|(found, _)| {
            found.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }
}

/// Converts a schema location to a field name: `/properties/credits/properties/remaining/minimum` is
/// `credits.remaining`. A location that does not start with `/` already is a field name.
fn field_from_location(location: &str) -> String {
    if !location.starts_with('/') {
        return location.to_owned();
    }
    let mut parts = location.split('/').skip(1);
    let mut names = Vec::new();
    while let Some(part) = parts.next() {
        if part == "properties" {
            names.extend(parts.next());
        }
    }
    names.join(".")
}

/// Separates errors that the form can show beside its fields from failures that get their own page.
pub fn split_form_errors<T>(done: Result<T, Error>) -> Result<Result<T, FormErrors>, Failure> {
    match done {
        Ok(done) => Ok(Ok(done)),
        Err(Error::Invalid(errors)) => Ok(Err(FormErrors::new(errors))),
        Err(
            error @ (Error::AlreadyExists(_)
            | Error::DuplicateRatelimit(_)
            | Error::PreconditionFailed(_)),
        ) => Ok(Err(FormErrors::single("", error.to_string()))),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_returns_form_field_when_given_schema_location() {
        let errors = FormErrors(vec![
            (field_from_location("/properties/credits/properties/remaining/minimum"), "a".into()),
            (field_from_location("/properties/ratelimits/items/properties/limit"), "b".into()),
            (field_from_location("permission"), "c".into()),
            (field_from_location("/required"), "d".into()),
        ]);

        let places: Vec<_> = errors.0.iter().map(|(field, _)| field.as_str()).collect();
        assert_eq!(places, ["credits.remaining", "ratelimits.limit", "permission", ""]);
        assert!(
            errors.has_error("credits")
                && errors.has_error("credits.remaining")
                && !errors.has_error("credit")
        );
    }

    #[test]
    fn errors_quote_what_stands_in_backticks() {
        let invalid = Error::invalid("path", "path must not contain the segments `.` and `..`");
        let Ok(Err(errors)) = split_form_errors::<()>(Err(invalid)) else { panic!("no errors") };

        let messages: Vec<_> = errors.messages().collect();
        assert_eq!(messages, [r#"path must not contain the segments "." and "..""#]);
    }

    #[test]
    fn query_without_keeps_other_fields() {
        let query = Form::parse(b"q=a%26b&from=x&show=all&empty=");

        assert_eq!(query.query_without(&["from"]).finish(), "q=a%26b&show=all");
    }
}
