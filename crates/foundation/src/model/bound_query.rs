/// The SQL dialect of an event store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SqlDialect {
    Postgres,
    Sqlite,
    ClickHouse,
}

impl SqlDialect {
    /// Returns the element for this dialect.
    pub fn select<T>(self, [postgres, sqlite, clickhouse]: [T; 3]) -> T {
        match self {
            Self::Postgres => postgres,
            Self::Sqlite => sqlite,
            Self::ClickHouse => clickhouse,
        }
    }
}

/// A query in the SQL dialect of its event store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundQuery {
    /// The SQL text. On Postgres and SQLite, the rows have one text column; on ClickHouse, all columns.
    pub sql: String,
    /// The values bound to `$1`, `$2` …
    pub parameters: Vec<String>,
}
