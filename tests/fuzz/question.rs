//! Questions in SQL: whatever the text is, it is refused, or becomes a query that SQLite can prepare and that speaks of
//! nothing but the public tables; in ClickHouse, of nothing but rows that may be seen.

use std::panic::{RefUnwindSafe, UnwindSafe};

use keyward::domain::analytics::sql::{self, Asked, Engine, Family, Visible};
use keyward::error::Error;
use keyward::model::{Delivered, Retention};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Executor as _, SqlSafeStr as _, SqliteConnection};
use tokio::runtime::Runtime;

use crate::spelled;

const PIECES: &[&str] = &[
    "SELECT ",
    " FROM ",
    "key_verifications_v1",
    "key_verifications_per_day_v1",
    " WHERE ",
    " GROUP BY ",
    " ORDER BY ",
    " LIMIT ",
    " UNION ALL ",
    "WITH x AS (",
    "(",
    ")",
    ", ",
    " AS ",
    "x",
    "key_id",
    "time",
    "tags",
    "count()",
    "sum(",
    "1",
    "'mark'",
    " = ",
    " + ",
    " AND ",
    " OVER (",
    "PARTITION BY ",
    "arrayJoin(",
    "now()",
    " - INTERVAL 1 DAY",
    "*",
    ".",
    "verifications",
    " JOIN ",
    " ON ",
    "CASE WHEN ",
    " THEN ",
    " END",
    "--",
    "/*",
    "*/",
    ";",
    "\"",
    "`",
    "'",
    "\\",
    "$1",
    "::Int64",
    " IN ",
    " -> ",
    "[",
    "]",
    "{",
    "}",
    "é",
    "SETTINGS ",
    " EXCEPT ",
];

#[test]
fn any_text_is_refused_or_becomes_a_query() {
    let mut database = Database::new();
    bolero::check!(name = "question").for_each(|bytes: &[u8]| {
        database.hold(&String::from_utf8_lossy(bytes));
        database.hold(&spelled(bytes, PIECES).concat());
        database
            .hold(&format!("SELECT {} FROM key_verifications_v1", spelled(bytes, PIECES).concat()));
    });
}

#[test]
fn what_is_grown_as_a_query_becomes_one() {
    let mut database = Database::new();
    bolero::check!(name = "question").for_each(|bytes: &[u8]| {
        let text = Growth { bytes, at: 0 }.query(2);
        database.hold(&text);
        // What a slip of the finger makes of it.
        let slip = bytes.iter().fold(0, |sum, byte| sum + usize::from(*byte)) % text.len();
        database.hold(&format!("{}{}", &text[..slip], &text[slip + 1..]));
        database.hold(&format!("{}){}", &text[..slip], &text[slip..]));
    });
    assert!(database.accepted > 0);
}

/// SQLite with the tables of events and nothing in them.
struct Database {
    runtime: Runtime,
    connection: SqliteConnection,
    accepted: usize,
}

/// A failure ends the run, so nobody sees what it left behind.
impl UnwindSafe for Database {}
impl RefUnwindSafe for Database {}

impl Database {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let connection = runtime.block_on(async {
            let options = sqlx::sqlite::SqliteConnectOptions::new().in_memory(true);
            let mut connection = options.connect().await.unwrap();
            let schema = include_str!("../../migrations/events/sqlite/0001_events.sql");
            connection.execute(schema).await.unwrap();
            connection
        });
        Self { runtime, connection, accepted: 0 }
    }

    fn hold(&mut self, text: &str) {
        for family in [Family::Verifications, Family::Ratelimits] {
            let asked = Asked {
                family,
                visible: Visible {
                    workspace_id: "ws_mark".into(),
                    only: Some(vec!["mark".into()]),
                },
                now: 1_773_144_000_000,
                retention: Retention { raw: 90, minute: 90, hour: 90, day: 365, month: 1095 },
                rows_max: 10,
                inner_rows_max: None,
                delivered: Delivered { last: 7, void: vec![3, 5], summed_until: 1_773_100_800_000 },
            };
            for engine in [Engine::Postgres, Engine::Sqlite, Engine::ClickHouse] {
                match sql::translate(text, engine, &asked) {
                    Err(Error::Question(_, told)) => assert!(told.len() < 600, "{told}"),
                    Err(other) => panic!("{text:?}: {other:?}"),
                    Ok(question) if engine == Engine::ClickHouse => {
                        hold_reads(text, &question.query.sql);
                    }
                    Ok(question) => self.hold_query(text, engine, &question.query.sql),
                }
            }
        }
    }

    fn hold_query(&mut self, text: &str, engine: Engine, query: &str) {
        self.accepted += 1;
        let (views, rest) = query.split_once(" SELECT CASE WHEN octet_length(r.line)").unwrap();
        let tables = views.matches(" AS NOT MATERIALIZED (").count();
        assert!(
            tables > 0 && views.matches("s.workspace_id = CAST($").count() == tables,
            "{query}"
        );
        for own in
            ["mark", "verifications v", "_series", "batches", "ratelimits v", "sqlite_", "pg_"]
        {
            assert!(!rest.contains(own) && !views.contains("mark"), "{text:?} became {query}");
        }
        assert!(query.is_ascii(), "{query}");
        if engine == Engine::Sqlite {
            let sql = AssertSqlSafe(query.to_owned()).into_sql_str();
            let prepared = self.runtime.block_on(self.connection.prepare(sql));
            assert!(prepared.is_ok(), "{text:?} became {query}: {:?}", prepared.err());
        }
    }
}

/// Whatever ClickHouse reads, it reads by the conditions that say what may be seen.
fn hold_reads(text: &str, query: &str) {
    let count = |words: &str| query.matches(words).count();
    let tables = ["verifications", "verification_hours", "ratelimits", "ratelimit_hours"];
    let reads = tables.map(|table| count(&format!("FROM {table} WHERE workspace_id = $")));
    let reads: usize = reads.iter().sum();
    assert!(reads > 0, "{text:?} became {query}");
    for (words, times) in [
        ("verification", count("FROM verification")),
        ("ratelimit", count("FROM ratelimit")),
        ("FROM ", reads + count("FROM (")),
        (" AND delivery <= 7 AND delivery NOT IN (3, 5) AND ", reads),
        ("_id IN ($", reads),
        ("mark", 0),
    ] {
        assert_eq!(count(words), times, "{words} in what {text:?} became: {query}");
    }
    assert!(query.is_ascii(), "{query}");
}

/// Bytes as choices. What is grown is mostly a query that is right.
struct Growth<'a> {
    bytes: &'a [u8],
    at: usize,
}

const TIMED: &[&str] = &["key_verifications_per_hour_v1", "key_verifications_per_month_v1"];
const AGGREGATES: &[&str] =
    &["sum", "avg", "min", "max", "any", "groupArray", "quantile(0.9)", "uniq", "groupUniqArray"];
const UNITS: &[&str] = &["Second", "Minute", "Hour", "Day", "Week", "Month", "Quarter", "Year"];

impl Growth<'_> {
    fn byte(&mut self) -> usize {
        let length = self.bytes.len().max(1);
        let byte = self.bytes.get(self.at % length).copied().unwrap_or(0);
        self.at += 1;
        usize::from(byte) + self.at / length
    }

    fn pick<'p>(&mut self, from: &[&'p str]) -> &'p str {
        from[self.byte() % from.len()]
    }

    fn number(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self
                .pick(&["spent_credits", "count", "latency_avg", "1", "2.5", "-3", "1 / 0", "NULL"])
                .to_owned();
        }
        let down = depth - 1;
        match self.byte() % 8 {
            0 => self.number(0),
            1 | 2 => {
                let (left, operator, right) =
                    (self.number(down), self.pick(&["+", "-", "*", "/"]), self.number(down));
                format!("({left} {operator} {right})")
            }
            3 => format!(
                "{}({})",
                self.pick(&["round", "floor", "ceil", "abs", "toInt64", "toFloat64"]),
                self.number(down)
            ),
            4 => format!("length({})", self.either(down, Self::text, Self::list)),
            5 => format!("if({}, {}, {})", self.condition(down), self.number(down), self.number(0)),
            6 => format!("toUnixTimestamp64Milli({})", self.time(down)),
            _ => format!("({} - {})", self.time(down), self.time(0)),
        }
    }

    fn text(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self
                .pick(&["key_id", "outcome", "external_id", "'mark'", "''", "'mark''\\n'"])
                .to_owned();
        }
        let down = depth - 1;
        match self.byte() % 7 {
            0 => self.text(0),
            1 => format!(
                "{}({})",
                self.pick(&["lower", "upper", "trim", "toString"]),
                self.text(down)
            ),
            2 => format!("concat({}, {}, {})", self.text(down), self.number(0), self.time(0)),
            3 => format!("substring({}, {})", self.text(down), self.pick(&["2", "-2", "count"])),
            4 => format!("CASE WHEN {} THEN {} END", self.condition(down), self.text(down)),
            5 => format!("formatDateTime({}, '%F %T mark')", self.time(down)),
            _ => format!("JSONExtractString({}, 'mark', 1)", self.text(down)),
        }
    }

    fn time(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self.pick(&["time", "now()", "today()", "toDate('2026-03-01')"]).to_owned();
        }
        let down = depth - 1;
        match self.byte() % 5 {
            0 => self.time(0),
            1 => format!("toStartOf{}({})", self.pick(&UNITS[1..]), self.time(down)),
            2 => {
                let (time, operator) = (self.time(down), self.pick(&["+", "-"]));
                format!("({time} {operator} INTERVAL 2 {})", self.pick(UNITS))
            }
            3 => format!("({} + toInterval{}(count))", self.time(down), self.pick(UNITS)),
            _ => format!("{}({})", self.pick(&["toDate", "toDateTime"]), self.time(down)),
        }
    }

    fn list(&mut self, depth: usize) -> String {
        match self.byte() % 4 {
            0 if depth > 0 => format!(
                "arrayFilter(x -> startsWith(x, {}), {})",
                self.text(0),
                self.list(depth - 1)
            ),
            1 => format!("['mark', {}]", self.text(depth.saturating_sub(1))),
            _ => "tags".to_owned(),
        }
    }

    fn condition(&mut self, depth: usize) -> String {
        let down = depth.saturating_sub(1);
        let compared = ["=", "!=", "<", ">=", "==", "<>"];
        match self.byte() % 10 {
            0 | 1 if depth > 0 => {
                let (left, operator, right) =
                    (self.condition(down), self.pick(&["AND", "OR"]), self.condition(down));
                format!("({left} {operator} {right})")
            }
            2 => format!("{} {} {}", self.number(down), self.pick(&compared), self.number(down)),
            3 => format!("{} {} {}", self.text(down), self.pick(&compared), self.text(down)),
            4 => format!(
                "{}({}, {})",
                self.pick(&["has", "hasAny", "hasAll"]),
                self.list(down),
                self.pick(&["tags", "'mark'", "['x']"])
            ),
            5 => format!("{} IN ({}, {})", self.text(down), self.text(0), self.text(0)),
            6 => format!(
                "{} NOT BETWEEN {} AND {}",
                self.number(down),
                self.number(0),
                self.number(0)
            ),
            7 => format!(
                "{} {} 'm_rk%[*'",
                self.text(down),
                self.pick(&["LIKE", "ILIKE", "NOT LIKE"])
            ),
            8 => format!(
                "{} IN (SELECT outcome FROM {} WHERE {})",
                self.text(down),
                self.pick(TIMED),
                self.condition(0)
            ),
            _ => format!("NOT {} IS NULL", self.text(down)),
        }
    }

    fn either(
        &mut self,
        depth: usize,
        one: fn(&mut Self, usize) -> String,
        other: fn(&mut Self, usize) -> String,
    ) -> String {
        if self.byte().is_multiple_of(2) { one(self, depth) } else { other(self, depth) }
    }

    fn value(&mut self, depth: usize) -> String {
        let kinds = [Self::number, Self::text, Self::time, Self::list, Self::condition];
        kinds[self.byte() % kinds.len()](self, depth)
    }

    fn aggregate(&mut self, depth: usize) -> String {
        match self.byte() % 4 {
            0 => format!("countIf({})", self.condition(depth)),
            1 => format!("sumIf({}, {})", self.number(depth), self.condition(0)),
            2 => format!("uniq({}, {})", self.value(depth), self.value(0)),
            _ => format!("{}({})", self.pick(AGGREGATES), self.number(depth)),
        }
    }

    fn query(&mut self, depth: usize) -> String {
        let table = self.pick(TIMED);
        let down = depth.saturating_sub(1);
        match self.byte() % 7 {
            0 | 1 => format!(
                "SELECT {} AS n, {} AS m FROM {table} WHERE {} GROUP BY n HAVING {} > 1 ORDER BY m, n LIMIT 5",
                self.value(depth),
                self.aggregate(depth),
                self.condition(depth),
                self.aggregate(0)
            ),
            2 => format!(
                "SELECT arrayJoin({}) AS n, toString({}) AS m FROM {table} WHERE n LIKE 'mark%' ORDER BY {}",
                self.list(depth),
                self.value(depth),
                self.value(0)
            ),
            3 => format!(
                "SELECT key_id AS n, {}({}) OVER (PARTITION BY {} ORDER BY {}) AS m FROM {table}",
                self.pick(&["sum", "count", "min", "groupArray"]),
                self.number(depth),
                self.text(0),
                self.time(0)
            ),
            4 if depth > 0 => format!(
                "WITH w AS ({}) SELECT w.m AS m, t.outcome AS n FROM w {} {table} AS t ON {} = t.key_id",
                self.query(down),
                self.pick(&["JOIN", "LEFT JOIN", "RIGHT JOIN"]),
                self.text(0)
            ),
            5 if depth > 0 => format!(
                "SELECT toString(n) AS n, toString(m) AS m FROM ({}) AS a {} SELECT key_id, outcome FROM {table}",
                self.query(down),
                self.pick(&["UNION ALL", "UNION DISTINCT", "EXCEPT", "INTERSECT"])
            ),
            _ => format!(
                "SELECT DISTINCT {} AS n, {} AS m, * FROM {table} WHERE {} ORDER BY n",
                self.value(depth),
                self.value(depth),
                self.condition(depth)
            ),
        }
    }
}
