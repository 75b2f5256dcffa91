/// A question in the words of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundQuery {
    /// Gives rows of one column, a text each.
    pub sql: String,
    /// What is bound to `$1`, `$2` …
    pub texts: Vec<String>,
}
