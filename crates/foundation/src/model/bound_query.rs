/// What answers questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SqlDialect {
    Postgres,
    Sqlite,
    ClickHouse,
}

impl SqlDialect {
    /// What is for this engine.
    pub fn pick<T>(self, [postgres, sqlite, clickhouse]: [T; 3]) -> T {
        match self {
            Self::Postgres => postgres,
            Self::Sqlite => sqlite,
            Self::ClickHouse => clickhouse,
        }
    }
}

/// A question in the words of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundQuery {
    /// Of Postgres and SQLite it gives rows of one column, a text each; of ClickHouse, rows of all columns.
    pub sql: String,
    /// What is bound to `$1`, `$2` …
    pub texts: Vec<String>,
}
