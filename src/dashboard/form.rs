//! What a form was filled in with, or a query says, and what is wrong with it.

use foundation::error::{Error, FieldError};

use super::failure::Failure;

/// The most fields that are read.
const FIELDS_MAX: usize = 2_000;

/// Fields in the order in which they were sent; a name may come more than once.
#[derive(Debug, Clone, Default)]
pub struct Form(Vec<(String, String)>);

impl Form {
    /// Without the one character that no text of the database can hold.
    pub fn parse(bytes: &[u8]) -> Self {
        let whole = |text: std::borrow::Cow<'_, str>| text.replace('\0', "\u{fffd}");
        let fields = form_urlencoded::parse(bytes).take(FIELDS_MAX);
        Self(fields.map(|(name, value)| (whole(name), whole(value))).collect())
    }

    /// The first value of a field; empty where there is none.
    pub fn text(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    /// All values of a field.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// All fields but these, as a query.
    pub fn query_without(&self, names: &[&str]) -> form_urlencoded::Serializer<'static, String> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        let kept = self
            .0
            .iter()
            .filter(|(name, value)| !names.contains(&name.as_str()) && !value.is_empty());
        query.extend_pairs(kept);
        query
    }
}

/// What is wrong with a form: sentences, and the fields that they are about.
#[derive(Debug, Default)]
pub struct FormErrors(Vec<(String, String)>);

impl FormErrors {
    fn new(faults: Vec<FieldError>) -> Self {
        Self(faults.into_iter().map(|fault| (field(&fault.location), fault.message)).collect())
    }

    /// One fault, of the form as a whole where the field is empty.
    pub fn one(field: &str, sentence: impl Into<String>) -> Self {
        Self(vec![(field.to_owned(), sentence.into())])
    }

    /// All sentences, for the top of the page.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(_, sentence)| sentence.as_str())
    }

    /// Whether a field is wrong, or one that is part of it: `credits` has `credits.refill`.
    pub fn has(&self, field: &str) -> bool {
        self.0.iter().any(|(found, _)| {
            found.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }
}

/// The field of a place in a schema: `/properties/credits/properties/remaining/minimum` is `credits.remaining`. What is
/// no such place names the field itself.
fn field(location: &str) -> String {
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

/// What a form was to do: done, or what is wrong with what was filled in. Everything else that fails has a page.
pub fn split_form_errors<T>(done: Result<T, Error>) -> Result<Result<T, FormErrors>, Failure> {
    match done {
        Ok(done) => Ok(Ok(done)),
        Err(Error::Invalid(faults)) => Ok(Err(FormErrors::new(faults))),
        Err(error @ (Error::Taken(_) | Error::Doubled(_) | Error::Refused(_))) => {
            Ok(Err(FormErrors::one("", error.to_string())))
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_a_schema_is_a_field_of_the_form() {
        let faults = FormErrors(vec![
            (field("/properties/credits/properties/remaining/minimum"), "a".into()),
            (field("/properties/ratelimits/items/properties/limit"), "b".into()),
            (field("permission"), "c".into()),
            (field("/required"), "d".into()),
        ]);

        let places: Vec<_> = faults.0.iter().map(|(field, _)| field.as_str()).collect();
        assert_eq!(places, ["credits.remaining", "ratelimits.limit", "permission", ""]);
        assert!(faults.has("credits") && faults.has("credits.remaining") && !faults.has("credit"));
    }

    #[test]
    fn the_rest_of_a_query_is_kept() {
        let query = Form::parse(b"q=a%26b&from=x&show=all&empty=");

        assert_eq!(query.query_without(&["from"]).finish(), "q=a%26b&show=all");
    }
}
