//! Generates queries from bytes, for the fuzzer and the isolation test.

/// Interprets bytes as choices. Most generated queries are valid.
pub struct Growth<'a> {
    bytes: &'a [u8],
    at: usize,
}

const TIMED: &[&str] = &["key_verifications_per_hour_v1", "key_verifications_per_month_v1"];
const AGGREGATES: &[&str] =
    &["sum", "avg", "min", "max", "any", "groupArray", "quantile(0.9)", "uniq", "groupUniqArray"];
const UNITS: &[&str] = &["Second", "Minute", "Hour", "Day", "Week", "Month", "Quarter", "Year"];

impl<'a> Growth<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

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
                .pick(&[
                    "spent_credits",
                    "count",
                    "latency_avg",
                    "1",
                    "2.5",
                    "-3",
                    "1 / 0",
                    "NULL",
                    "9223372036854775807",
                    "1e99",
                    "1e-99",
                ])
                .to_owned();
        }
        let down = depth - 1;
        match self.byte() % 12 {
            0 => self.number(0),
            1 | 2 => {
                let (left, operator, right) =
                    (self.number(down), self.pick(&["+", "-", "*", "/"]), self.number(down));
                format!("({left} {operator} {right})")
            }
            8 => format!("(- {})", self.number(down)),
            9 => format!("(toInt64({}) % toInt64({}))", self.number(down), self.number(0)),
            10 => format!("toInt64({})", self.text(down)),
            11 => format!("(SELECT {} FROM {})", self.number(down), self.pick(TIMED)),
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
        match self.byte() % 8 {
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
            7 => format!(
                "substring({}, toInt64({}), toInt64({}))",
                self.text(down),
                self.number(0),
                self.number(0)
            ),
            _ => format!("JSONExtractString({}, 'mark', 1)", self.text(down)),
        }
    }

    fn time(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self.pick(&["time", "now()", "today()", "toDate('2026-03-01')"]).to_owned();
        }
        let down = depth - 1;
        match self.byte() % 7 {
            5 => format!("fromUnixTimestamp64Milli(toInt64({}))", self.number(down)),
            6 => format!("toDateTime({})", self.number(down)),
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

    pub fn query(&mut self, depth: usize) -> String {
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
