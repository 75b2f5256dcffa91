/// What keeps the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    Postgres,
    Sqlite,
}

impl Engine {
    /// What is for one engine, or for the other.
    pub fn pick<T>(self, postgres: T, sqlite: T) -> T {
        match self {
            Self::Postgres => postgres,
            Self::Sqlite => sqlite,
        }
    }
}

/// A question in the words of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundQuery {
    /// Gives rows of one column, a text each.
    pub sql: String,
    /// What is bound to `$1`, `$2` …
    pub texts: Vec<String>,
}
