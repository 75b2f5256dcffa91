//! What a form was filled in with, or a query says.

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
}
